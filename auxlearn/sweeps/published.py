"""Results published in papers, kept as YAML files, to show beside new results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auxlearn.core.errors import ConfigError, did_you_mean, shorten
from auxlearn.core.files import user_path
from auxlearn.core.validation import Settings, validate
from auxlearn.core.yaml_files import read_yaml

FOLDER = Path(__file__).parent / "published_results"
#: Ends of the names that are paths.
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class PublishedResult:
    """One result from a paper."""

    #: Label of each axis, as the sweep file that reproduces the paper names them.
    labels: dict[str, str]
    set: str  # evaluation set
    metric: str
    mean: float  # over seeds, 0 to 100
    sd: float | None  # standard deviation over seeds, as printed, if the paper gives one


class _Table(Settings):
    """Results that share some labels; a result is written ``mean`` or ``[mean, sd]``."""

    cell: dict[str, str]
    metric: str = "accuracy"
    columns: list[tuple[dict[str, str], str]]
    rows: dict[str, list[float | tuple[float, float] | None]]


class _File(Settings):
    source: str
    row_axis: str
    notes: tuple[str, ...] = ()
    tables: list[_Table]


def published_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def published_problem(name: str) -> str | None:
    """Return why there are no published results of a name; a path is not looked at."""
    if name.endswith(_SUFFIXES) or name in (known := published_names()):
        return None
    return f"there are no published results '{shorten(name)}': {did_you_mean(name, known)}"


def named_by_sweep(name: str, sweep: Path) -> str | None:
    """Return the published results that a sweep names, unless outside of its folder."""
    if not name.endswith(_SUFFIXES):
        return name
    path = user_path(sweep / name, ConfigError)
    return str(path) if path.resolve().is_relative_to(sweep.resolve()) else None


def check_published(name: str | None, sweep: Path) -> None:
    """Refuse a file that is not in the folder of a sweep, before any trial of it is run."""
    if name and name.endswith(_SUFFIXES) and not (sweep / name).is_file():
        raise ConfigError(
            f"published: {sweep} has no file {shorten(name, 200)}: leave it out here, and name "
            "the file by `auxlearn compare --published`"
        )


def read_published(name: str) -> tuple[list[PublishedResult], str]:
    if problem := published_problem(name):
        raise ConfigError(problem)
    path = Path(name) if name.endswith(_SUFFIXES) else FOLDER / f"{name}.yaml"
    content = read_yaml(path, "published results", ConfigError)
    file: Any = validate(_File, content, str(path))
    results: list[PublishedResult] = []
    for table in file.tables:
        for row, values in table.rows.items():
            if len(values) != len(table.columns):
                raise ConfigError(
                    f"{path}: row '{row}' has {len(values)} results for "
                    f"{len(table.columns)} columns"
                )
            for (column, evaluation_set), value in zip(table.columns, values, strict=True):
                if value is not None:
                    mean, sd = value if isinstance(value, tuple) else (value, None)
                    labels = {**table.cell, **column, file.row_axis: row}
                    metric = column.get("metric", table.metric)
                    results.append(PublishedResult(labels, evaluation_set, metric, mean, sd))
    return results, file.source
