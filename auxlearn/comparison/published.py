"""Figures of papers, kept as data files, to show beside new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from auxlearn.config import Metric, Settings, validate
from auxlearn.errors import ConfigError, did_you_mean

FOLDER = Path(__file__).parent / "published_results"


class PublishedFigure(Settings):
    """One figure of a paper.

    Attributes:
        cell: Label of each axis, as the sweep file that repeats the paper names them.
        set: Evaluation set.
        metric: Which metric.
        mean: Mean over seeds, 0 to 100.
        sd: Standard deviation over seeds, as printed; ``None`` if the paper gives none.
    """

    cell: dict[str, str]
    set: str
    metric: Metric
    mean: float
    sd: float | None


class _Group(Settings):
    """Figures that share some labels; a figure is written ``mean`` or ``[mean, sd]``."""

    cell: dict[str, str]
    metric: Metric = "accuracy"
    columns: list[tuple[dict[str, str], str]]
    rows: dict[str, list[float | list[float] | None]]


class _File(Settings):
    source: str
    row_axis: str
    notes: tuple[str, ...] = ()
    tables: list[_Group]


def published_names() -> list[str]:
    """Return the names of the files that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_published(name: str) -> tuple[list[PublishedFigure], str]:
    """Read published figures by name or path.

    Returns:
        The figures, and where they are from.

    Raises:
        ConfigError: There is no such file, or a row has more or fewer figures than columns.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        hint = did_you_mean(name, published_names())
        raise ConfigError(f"there are no published figures '{name}': {hint}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    file: Any = validate(_File, content, str(path))
    figures = []
    for group in file.tables:
        for row, values in group.rows.items():
            if len(values) != len(group.columns):
                raise ConfigError(
                    f"{path}: row '{row}' has {len(values)} figures for "
                    f"{len(group.columns)} columns"
                )
            for (labels, which), value in zip(group.columns, values, strict=True):
                if value is None:
                    continue
                metric = labels.get("metric", group.metric)
                mean, sd = value if isinstance(value, list) else (value, None)
                cell = {**group.cell, **labels, file.row_axis: row}
                figure = {"cell": cell, "set": which, "metric": metric, "mean": mean, "sd": sd}
                figures.append(validate(PublishedFigure, figure, str(path)))
    return figures, file.source
