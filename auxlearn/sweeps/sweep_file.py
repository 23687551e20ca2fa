"""Schema of a sweep file: what it may hold, how it is read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, did_you_mean, shorten, suggestion
from auxlearn.core.files import LONGEST_NAME
from auxlearn.core.run_settings import PretrainSettings
from auxlearn.core.settings import PathText
from auxlearn.core.validation import Settings, validate
from auxlearn.core.yaml_files import read_yaml
from auxlearn.sweeps.published import published_problem

#: Name of the axis formed by the cases of a sweep file.
CASE = "case"
#: Name of the axis formed by the folds of a cross-validation, whose values never compete.
FOLD = "fold"
#: Names of columns beside the axes, in the tables of trials and of comparisons.
_TAKEN = {CASE, FOLD, "seed", "state", "chosen", "best_epoch", "error", "folder"}
_TAKEN |= {"set", "mean", "sd", "low", "high", "best"}
#: Axes that define a setting; by default the values of all other axes compete.
SETTING_AXES = ("dataset", "encoder", "metric")

#: Trials that a sweep may have, seeds and suggested points included.
MOST_TRIALS = 20_000

#: An option of a plug-in as a setting: ``aux.NAME.OPTION`` or ``weights.NAME.OPTION``.
PLUGIN_OPTION = re.compile(r"(aux|weights)\.([a-z][a-z0-9_-]*)\.(\w+)")
#: The label of an axis in a text, as in ``runs/mlm-{dataset}``.
LABEL = re.compile(r"\{(\w+)\}")


class Range(Settings):
    """Numbers from ``low`` to ``high``, both included; integers if both are integers."""

    low: int | float
    high: int | float
    log: bool = False

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Range:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range needs low above 0, got {self.low}")
        return self


class Search(Settings):
    """A search by Optuna, in each cell of the grid."""

    sampler: Literal["random", "tpe"] = Field("tpe", description="Sampler of the points.")
    trials: int = Field(
        20, ge=1, le=MOST_TRIALS, description="Number of points; each is trained with every seed."
    )
    batch: int = Field(4, ge=1, description="Points suggested at once, which run in parallel.")
    seed: int = Field(0, ge=0, description="Seed of the sampler.")
    space: dict[str, Range | list[Any]] = Field(description="Values by setting.")


class Select(Settings):
    """Selection of hyper-parameters on dev."""

    over: tuple[str, ...] = Field((), description="Axes whose best value is chosen.")
    metric: str | None = Field(None, description="Metric on dev; by default that of the run.")


class SweepPretraining(PretrainSettings):
    """A pretraining that precedes the trials, which name its folder as their encoder."""

    output: PathText
    """Folder of the pretrained encoder."""


class SweepFile(Settings):
    """Content of a sweep file."""

    name: str = Field(max_length=LONGEST_NAME, description="Name of the sweep and of its folder.")
    pretrain: SweepPretraining | None = Field(
        None, description="A pretraining to begin with; trials name its output as their encoder."
    )
    base: dict[str, Any] = Field({}, description="Settings of all runs.")
    grid: dict[str, list[Any] | dict[str, dict[str, Any]]] = Field(
        {}, description="A setting with its values, or an axis with named groups of settings."
    )
    cases: list[dict[str, Any]] = Field([], description="Named groups of settings: one more axis.")
    exclude: list[dict[str, Any]] = Field([], description="Combinations to leave out.")
    search: Search | None = Field(None, description="Hyper-parameter search by Optuna.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0, 1, 2, 3, 4), description="Seeds, or their number."
    )
    folds: int | None = Field(
        None, ge=2, le=100, description="Folds of a cross-validation of train: one more axis."
    )
    select: Select = Field(Select(), description="Selection of hyper-parameters on dev.")
    compare: tuple[str, ...] | None = Field(
        None, description="Axes whose values compete; by default all but " + ", ".join(SETTING_AXES)
    )
    published: str | None = Field(None, description="Published results to compare with.")

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ValueError("a folder is called so: take letters, digits, '_', '.' and '-'")
        return name

    @field_validator("grid", mode="before")
    @classmethod
    def _values_or_groups(cls, value: Any) -> Any:
        for axis, values in value.items() if isinstance(value, dict) else ():
            groups = values.values() if isinstance(values, dict) else [{}]
            for name in (axis, *(values if isinstance(values, dict) else ())):
                if not isinstance(name, str) or name != name.strip():
                    raise ValueError(f"{name!r}: a name is a quoted text, without blanks around it")
            if isinstance(values, list | dict) and all(isinstance(group, dict) for group in groups):
                continue
            raise ValueError(
                f"{shorten(str(axis))}: expected a list of values, or groups of settings by name"
            )
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_or_list(cls, value: Any) -> Any:
        number = value if isinstance(value, int) and not isinstance(value, bool) else None
        if (number or 0) > MOST_TRIALS or (isinstance(value, list) and len(value) > MOST_TRIALS):
            raise ValueError(f"a sweep has at most {MOST_TRIALS:,} seeds")
        if number is None and not isinstance(value, list | tuple):
            raise ValueError("write their number, or a list of them")
        return value if number is None else tuple(range(number))

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if not seeds:
            raise ValueError("a sweep needs a seed: write their number, or a list")
        if len(set(seeds)) < len(seeds):
            raise ValueError("a seed occurs twice")
        return seeds

    @model_validator(mode="after")
    def _names_are_known(self) -> SweepFile:
        problems = [*self._axis_problems(), *self._case_problems(), *self._reference_problems()]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _axis_problems(self) -> Iterator[str]:
        for axis, values in self.grid.items():
            if not values:
                yield f"grid.{axis} has no values"
            if axis in _TAKEN:
                yield f"grid.{axis}: that name is taken, use '{axis}s'"
            if isinstance(values, list):
                yield from _unknown_keys(f"grid: '{axis}'", [axis], "; or give it named groups")
                if len({label(value) for value in values}) < len(values):
                    yield f"grid.{axis} has a value twice"
                continue
            for name, settings in values.items():
                yield from _unknown_keys(f"grid.{axis}.{name}", settings)
        yield from _unknown_keys("base", self.base)
        if self.search and not self.search.space:
            yield "search.space is empty: name a setting with its values"
        for axis, choices in self.search.space.items() if self.search else ():
            if choices == []:
                yield f"search.space.{axis} has no values"
            if axis in self.grid:
                yield f"'{axis}' is an axis of both grid and search.space: leave one out"
        if self.search:
            yield from _unknown_keys("search.space", self.search.space)

    def _case_problems(self) -> Iterator[str]:
        names = [case.get("name") for case in self.cases]
        for number, (name, case) in enumerate(zip(names, self.cases, strict=True)):
            if not isinstance(name, str):
                yield f"cases: entry {number + 1} has no name"
            elif name != name.strip():
                yield f"cases: entry {number + 1} has a name with blanks around it"
            elif names.index(name) < number:
                yield f"cases: the name '{name}' occurs twice"
            yield from _unknown_keys(f"cases.{name}", [key for key in case if key != "name"])

    def _reference_problems(self) -> Iterator[str]:
        axes = self.axes
        if self.published and (problem := published_problem(self.published)):
            yield f"published: {problem}"
        labelled = [axis for axis in axes if not self.search or axis not in self.search.space]
        for text in dict.fromkeys(texts_in([self.base, self.grid, self.cases])):
            for axis in LABEL.findall(text):
                if axis not in labelled:
                    yield (
                        f"'{shorten(text)}': no axis '{shorten(axis)}' has a label to put there: "
                        f"{did_you_mean(shorten(axis), labelled)}"
                    )
        mentioned = [("select.over", axis) for axis in self.select.over]
        mentioned += [("compare", axis) for axis in self.compare or ()]
        mentioned += [("exclude", axis) for rule in self.exclude for axis in rule]
        for where, axis in mentioned:
            if axis == FOLD and where != "exclude":
                yield f"{where}: folds are means, not methods: leave '{FOLD}' out"
            elif axis not in axes:
                yield f"{where}: there is no axis '{axis}': {did_you_mean(axis, axes)}"
        for axis, value in (pair for rule in self.exclude for pair in rule.items()):
            values = self.grid.get(axis, [])
            known = [*map(label, values)] if isinstance(values, list) else list(values)
            for wanted in map(label, excluded_values(value)):
                if known and wanted not in known:
                    yield (
                        f"exclude: {axis} has no value '{shorten(wanted)}': "
                        f"{did_you_mean(shorten(wanted), map(shorten, known))}"
                    )

    @property
    def axes(self) -> tuple[str, ...]:
        """What trials differ in apart from the seed, in order."""
        return (
            *self.grid,
            *([CASE] if self.cases else []),
            *([FOLD] if self.folds else []),
            *(self.search.space if self.search else []),
        )

    @property
    def chosen_axes(self) -> tuple[str, ...]:
        """The axes whose best value is chosen on dev."""
        space = tuple(self.search.space) if self.search else ()
        return (*(axis for axis in self.select.over if axis not in space), *space)

    @property
    def competing_axes(self) -> tuple[str, ...]:
        """The axes whose values compete as methods."""
        if self.compare is not None:
            return self.compare
        rest = [axis for axis in self.axes if axis not in self.chosen_axes]
        methods = tuple(axis for axis in rest if axis not in (*SETTING_AXES, FOLD))
        return methods or tuple(axis for axis in rest if axis == "encoder")


def read_sweep(path: Path) -> SweepFile:
    content = read_yaml(path, "sweep file", ConfigError)
    sweep: SweepFile = validate(SweepFile, content, str(path))
    return sweep


def dump_sweep(sweep: SweepFile) -> str:
    """Return a sweep file as YAML that :func:`read_sweep` reads back."""
    content = sweep.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(content | {"seeds": list(sweep.seeds)}, sort_keys=False)


def excluded_values(value: Any) -> list[Any]:
    """Return the values of a rule of ``exclude``; no tasks, ``[]``, are one."""
    return value if isinstance(value, list) and value else [value]


def label(value: Any) -> str:
    """Return a setting's value as a short name for tables, such as ``l3mask(score=surprisal)``."""
    if value is None or value in ([], (), {}):
        return "none"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, list | tuple):
        return "+".join(label(item) for item in value)
    if isinstance(value, dict):
        parts = []
        for name, options in value.items():
            # One that is no mapping is no plug-in; whether it is allowed, the settings say.
            shown = "" if options is None else label(options)
            if isinstance(options, dict):
                shown = ", ".join(f"{key}={label(item)}" for key, item in options.items())
            parts.append(f"{name}({shown})" if shown else name)
        return "+".join(parts)
    return str(value)


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a value, those that lists and mappings hold included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_in(inner)


def _unknown_keys(where: str, keys: Iterable[str], advice: str = "") -> Iterator[str]:
    for key in map(shorten, keys):
        if key in ("seed", FOLD):
            yield f"{where}: '{key}' is set by '{key}s'"
        elif key in ("output", "cache_dir"):
            yield f"{where}: '{key}' is not part of a sweep file: give it on the command line"
        elif key not in RunConfig.model_fields and not PLUGIN_OPTION.fullmatch(key):
            near = suggestion(key, RunConfig.model_fields) or "see `auxlearn train --help`"
            yield f"{where}: unknown setting '{key}': {near}{advice}"
