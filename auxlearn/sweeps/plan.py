"""From a sweep file to its trials."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from auxlearn.config import Metric, RunConfig, Settings, validate
from auxlearn.errors import ConfigError, SweepError, did_you_mean

#: Name of the axis that the cases of a sweep file make up.
CASE = "case"
#: Axes that say what is learned from what; by default everything else competes.
SETTING_AXES = ("dataset", "encoder", "metric")

_PLUGIN_OPTION = re.compile(r"(aux|weights)\.([a-z][a-z0-9_-]*)\.(\w+)")


class Range(Settings):
    """Numbers from ``low`` to ``high``, both included; whole ones if both are whole."""

    low: int | float
    high: int | float
    log: bool = False

    @model_validator(mode="after")
    def _rises(self) -> Range:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range begins above 0, got low {self.low}")
        return self


class Search(Settings):
    """A search by Optuna, in each cell of the grid."""

    sampler: Literal["random", "tpe"] = Field("tpe", description="How points are suggested.")
    trials: int = Field(20, ge=1, description="Points to try; each is trained with every seed.")
    batch: int = Field(4, ge=1, description="Points suggested at once, and so run side by side.")
    seed: int = Field(0, ge=0, description="Seed of the suggestions.")
    space: dict[str, Range | list[Any]] = Field(min_length=1, description="Values by setting.")


class Select(Settings):
    """Choice of hyper-parameters on dev."""

    over: tuple[str, ...] = Field((), description="Axes of which the best value is chosen.")
    metric: Metric | None = Field(None, description="On dev; by default the run's own metric.")


class SweepFile(Settings):
    """What a sweep file holds."""

    name: str = Field(pattern=r"^[\w][\w.-]*$", description="Names the folder of the sweep.")
    base: dict[str, Any] = Field({}, description="Settings of every run.")
    grid: dict[str, list[Any] | dict[str, dict[str, Any]]] = Field(
        {}, description="A setting with its values, or an axis with named groups of settings."
    )
    cases: list[dict[str, Any]] = Field([], description="Named groups of settings: one more axis.")
    exclude: list[dict[str, Any]] = Field([], description="Combinations that are left out.")
    search: Search | None = Field(None, description="Hyper-parameters that Optuna suggests.")
    seeds: tuple[int, ...] = Field((0, 1, 2, 3, 4), min_length=1, description="A list, or a count.")
    select: Select = Field(Select(), description="What is chosen on dev.")
    compare: tuple[str, ...] | None = Field(
        None, description="Axes whose values compete; by default all but " + ", ".join(SETTING_AXES)
    )
    published: str | None = Field(None, description="Published figures to show beside the new.")

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_or_list(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return tuple(range(value))
        if isinstance(value, list) and len(set(map(str, value))) < len(value):
            raise ValueError("a seed occurs twice")
        return value

    @model_validator(mode="after")
    def _names_fit(self) -> SweepFile:
        problems = [*self._axis_problems(), *self._case_problems(), *self._reference_problems()]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _axis_problems(self) -> Iterator[str]:
        for axis, values in self.grid.items():
            if not values:
                yield f"grid.{axis} has no values"
            if axis in (CASE, "seed"):
                yield f"grid.{axis}: that name is taken, use '{axis}s'"
            if isinstance(values, list):
                yield from _unknown_keys(f"grid: '{axis}'", [axis], "; or give it named groups")
                if len({label(value) for value in values}) < len(values):
                    yield f"grid.{axis} has a value twice"
                continue
            for name, settings in values.items():
                yield from _unknown_keys(f"grid.{axis}.{name}", settings)
        yield from _unknown_keys("base", self.base)
        if self.search:
            yield from _unknown_keys("search.space", self.search.space)

    def _case_problems(self) -> Iterator[str]:
        names = [case.get("name") for case in self.cases]
        for number, name in enumerate(names):
            if not isinstance(name, str):
                yield f"cases: entry {number + 1} has no name"
            elif names.index(name) < number:
                yield f"cases: the name '{name}' occurs twice"
        for case in self.cases:
            settings = [key for key in case if key != "name"]
            yield from _unknown_keys(f"cases.{case.get('name')}", settings)

    def _reference_problems(self) -> Iterator[str]:
        axes = self.axes
        mentioned = [("select.over", axis) for axis in self.select.over]
        mentioned += [("compare", axis) for axis in self.compare or ()]
        mentioned += [("exclude", axis) for rule in self.exclude for axis in rule]
        for where, axis in mentioned:
            if axis not in axes:
                yield f"{where}: there is no axis '{axis}': {did_you_mean(axis, axes)}"

    @property
    def axes(self) -> tuple[str, ...]:
        """What trials differ in, in order; seeds apart."""
        return (
            *self.grid,
            *([CASE] if self.cases else []),
            *(self.search.space if self.search else []),
        )

    @property
    def chosen_axes(self) -> tuple[str, ...]:
        """The axes of which the best value is chosen on dev."""
        space = tuple(self.search.space) if self.search else ()
        return (*(axis for axis in self.select.over if axis not in space), *space)

    @property
    def competing_axes(self) -> tuple[str, ...]:
        """The axes whose values compete for the best figure."""
        if self.compare is not None:
            return self.compare
        rest = [axis for axis in self.axes if axis not in self.chosen_axes]
        found = tuple(axis for axis in rest if axis not in SETTING_AXES)
        return found or tuple(axis for axis in rest if axis == "encoder")


@dataclass(frozen=True)
class Trial:
    """One run of a sweep.

    Attributes:
        cell: Label of each axis.
        seed: The run's seed.
        config: The whole resolved configuration.
        digest: Its hash, by which the trial is known.
    """

    cell: Mapping[str, str]
    seed: int
    config: RunConfig
    digest: str

    @property
    def title(self) -> str:
        """The labels and the seed in one line."""
        return ", ".join([*self.cell.values(), f"seed {self.seed}"])


@dataclass(frozen=True)
class Cell:
    """One combination of the axes' values.

    Attributes:
        labels: Label of each axis.
        settings: The settings that the combination comes to.
    """

    labels: Mapping[str, str]
    settings: Mapping[str, Any]

    def extended(self, values: Mapping[str, Any]) -> Cell:
        """Return the cell with further axes, each a setting with its value."""
        labels = {**self.labels, **{axis: label(value) for axis, value in values.items()}}
        return Cell(labels, {**self.settings, **values})

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """Return one trial for each seed.

        Raises:
            ConfigError: The combination is no valid configuration.
        """
        where = ", ".join(self.labels.values()) or "base"
        settings = join_settings(self.settings, where)
        config = validate(RunConfig, settings, where).resolved()
        trials = []
        for seed in seeds:
            seeded = config.model_copy(update={"seed": seed})
            trials.append(Trial(self.labels, seed, seeded, seeded.digest))
        return trials


def read_sweep(path: Path) -> SweepFile:
    """Read a sweep file.

    Raises:
        ConfigError: It cannot be read, or holds unknown or impossible entries; all are named.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read sweep file {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a sweep file is a mapping")
    sweep: SweepFile = validate(SweepFile, content, str(path))
    return sweep


def cells_of(sweep: SweepFile) -> list[Cell]:
    """Return every combination of the grid's and the cases' values that is not excluded.

    Of settings that are given more than once, the later axis wins, and cases win over the grid.
    """
    axes: list[list[tuple[str, str, dict[str, Any]]]] = []
    for axis, values in sweep.grid.items():
        if isinstance(values, list):
            axes.append([(axis, label(value), {axis: value}) for value in values])
        else:
            axes.append([(axis, name, settings) for name, settings in values.items()])
    if sweep.cases:
        cases = [{**case} for case in sweep.cases]
        axes.append([(CASE, case.pop("name"), case) for case in cases])
    cells = []
    for chosen in itertools.product(*axes):
        labels = {axis: name for axis, name, _ in chosen}
        if any(_matches(rule, labels) for rule in sweep.exclude):
            continue
        settings = dict(sweep.base)
        for _, _, more in chosen:
            settings |= more
        cells.append(Cell(labels, {key: _filled(v, labels) for key, v in settings.items()}))
    return cells


def plan_trials(sweep: SweepFile, cells: Sequence[Cell]) -> list[Trial]:
    """Return the trials of cells; all faulty cells are named in one error.

    Raises:
        ConfigError: A cell is no valid configuration.
        SweepError: There are no cells, or two of them come to the same configuration.
    """
    trials: list[Trial] = []
    problems: list[str] = []
    for cell in cells:
        try:
            trials += cell.trials(sweep.seeds)
        except ConfigError as error:
            problems += str(error).splitlines()
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    if not trials:
        raise SweepError(f"sweep '{sweep.name}' has no trials: 'exclude' leaves none")
    seen: dict[str, Trial] = {}
    for trial in trials:
        other = seen.setdefault(trial.digest, trial)
        if other is not trial:
            raise SweepError(
                f"'{other.title}' and '{trial.title}' are the same run: leave one of them out"
            )
    return trials


def join_settings(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Put options written ``aux.NAME.OPTION`` or ``weights.NAME.OPTION`` into their plug-in.

    A task that is chosen several times is named as in the results: ``random_mlm``, then
    ``random_mlm_2``.

    Raises:
        ConfigError: The plug-in is not among those chosen.
    """
    plain = {key: value for key, value in settings.items() if "." not in key}
    dotted = {key: value for key, value in settings.items() if "." in key}
    if not dotted:
        return plain
    chosen = validate(RunConfig, {k: plain[k] for k in ("aux", "weights") if k in plain}, where)
    names = chosen.objective_names()[1:]
    aux = {name: dict(one.options) for name, one in zip(names, chosen.aux, strict=True)}
    weights = {chosen.weights.name: dict(chosen.weights.options)}
    for key, value in dotted.items():
        match = _PLUGIN_OPTION.fullmatch(key)
        assert match is not None
        kind, name, option = match.groups()
        owners = aux if kind == "aux" else weights
        if name not in owners:
            raise ConfigError(
                f"{where}: {key}: '{name}' is not chosen here ({', '.join(owners) or 'none'}): "
                "set it beside the choice, or exclude this combination"
            )
        owners[name][option] = value
    tasks = [{one.name: aux[name]} for name, one in zip(names, chosen.aux, strict=True)]
    return {**plain, "aux": tasks, "weights": weights}


def label(value: Any) -> str:
    """Return a setting's value as a short name for tables.

    >>> label(0.0001), label([]), label({"l3mask": {"score": "surprisal"}})
    ('0.0001', 'none', 'l3mask(score=surprisal)')
    """
    if value is None or value == [] or value == ():
        return "none"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, list | tuple):
        return "+".join(label(item) for item in value)
    if isinstance(value, dict):
        parts = []
        for name, options in value.items():
            shown = ", ".join(f"{key}={label(item)}" for key, item in (options or {}).items())
            parts.append(f"{name}({shown})" if shown else name)
        return "+".join(parts)
    return str(value)


def dump_sweep(sweep: SweepFile) -> str:
    """Return a sweep file as YAML that :func:`read_sweep` reads back."""
    content = sweep.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(content | {"seeds": list(sweep.seeds)}, sort_keys=False)


def _filled(value: Any, labels: Mapping[str, str]) -> Any:
    """Put the label of an axis where a text has the axis in braces: ``runs/mlm-{dataset}``."""
    if not isinstance(value, str):
        return value
    return re.sub(r"\{(\w+)\}", lambda found: labels.get(found[1], found[0]), value)


def _matches(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    for axis, value in rule.items():
        wanted = value if isinstance(value, list) else [value]
        if labels.get(axis) not in [label(item) for item in wanted]:
            return False
    return True


def _unknown_keys(where: str, keys: Any, advice: str = "") -> Iterator[str]:
    for key in keys:
        if key == "seed":
            yield f"{where}: 'seed' is set by 'seeds'"
        elif key in ("output", "cache_dir"):
            yield f"{where}: '{key}' is not part of a sweep file: give it on the command line"
        elif key not in RunConfig.model_fields and not _PLUGIN_OPTION.fullmatch(key):
            hint = did_you_mean(key, RunConfig.model_fields)
            yield f"{where}: unknown setting '{key}': {hint}{advice}"
