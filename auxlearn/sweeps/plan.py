"""Expansion of a sweep file into trials: cells of the grid, each with every seed."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from auxlearn.config import RunConfig, validate
from auxlearn.errors import ConfigError, SweepError
from auxlearn.sweeps.sweep_file import CASE, FOLD, MOST_TRIALS, PLUGIN_OPTION, SweepFile, label

#: Combinations of the values of a grid that are expanded, before ``exclude`` removes some.
MOST_COMBINATIONS = 100_000
#: Hash of a configuration. It names folders, so that no other text may be read from a file.
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]


@dataclass(frozen=True)
class Trial:
    """One run of a sweep.

    Attributes:
        cell: Label of each axis.
        seed: The run's seed.
        config: The whole resolved configuration.
        digest: Its hash, which identifies the trial.
    """

    cell: Mapping[str, str]
    seed: int
    config: RunConfig
    digest: Digest

    @property
    def title(self) -> str:
        """The labels and the seed in one line."""
        labels = [f"{FOLD} {v}" if axis == FOLD else v for axis, v in self.cell.items()]
        return ", ".join([*labels, f"seed {self.seed}"])


@dataclass(frozen=True)
class Cell:
    """One combination of values of the axes.

    Attributes:
        labels: Label of each axis.
        settings: Settings of the combination.
    """

    labels: Mapping[str, str]
    settings: Mapping[str, Any]

    def extended(self, values: Mapping[str, Any]) -> Cell:
        """Return the cell with further axes, each a setting and its value."""
        labels = {**self.labels, **{axis: label(value) for axis, value in values.items()}}
        return Cell(labels, {**self.settings, **values})

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """Return one trial for each seed.

        Raises:
            ConfigError: The combination is not a valid configuration.
        """
        where = ", ".join(self.labels.values()) or "base"
        settings = join_settings(self.settings, where)
        config = validate(RunConfig, settings, where).resolved()
        trials = []
        for seed in seeds:
            seeded = config.model_copy(update={"seed": seed})
            trials.append(Trial(self.labels, seed, seeded, seeded.digest))
        return trials


def expand_cells(sweep: SweepFile) -> list[Cell]:
    """Return every combination of the values of grid, cases and folds that is not excluded.

    Of a setting that is given several times, the value of the later axis counts; cases count as
    the last axis but folds.

    Raises:
        SweepError: There are too many combinations, or too many trials of them.
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
    if sweep.folds:
        folds = [f"{number}/{sweep.folds}" for number in range(1, sweep.folds + 1)]
        axes.append([(FOLD, fold, {FOLD: fold}) for fold in folds])
    combinations = math.prod(map(len, axes))
    if combinations > MOST_COMBINATIONS:
        raise SweepError(
            f"sweep '{sweep.name}' has {combinations:,} combinations of its grid: at most "
            f"{MOST_COMBINATIONS:,} are expanded; take values out, or search with 'search'"
        )
    cells = []
    for chosen in itertools.product(*axes):
        labels = {axis: name for axis, name, _ in chosen}
        if any(_matches(rule, labels) for rule in sweep.exclude):
            continue
        settings = dict(sweep.base)
        for _, _, more in chosen:
            settings |= more
        cells.append(Cell(labels, {key: _fill_in_labels(v, labels) for key, v in settings.items()}))
    trials = len(cells) * len(sweep.seeds) * (sweep.search.trials if sweep.search else 1)
    if trials > MOST_TRIALS:
        raise SweepError(
            f"sweep '{sweep.name}' has {trials:,} trials ({len(cells):,} combinations, "
            f"{len(sweep.seeds):,} seeds): at most {MOST_TRIALS:,}; divide it into several sweeps"
        )
    return cells


def plan_trials(sweep: SweepFile, cells: Sequence[Cell]) -> list[Trial]:
    """Return the trials of the cells; one error names all invalid cells.

    Raises:
        ConfigError: A cell is not a valid configuration.
        SweepError: There are no cells, or two of them have the same configuration.
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
    """Move settings named ``aux.NAME.OPTION`` or ``weights.NAME.OPTION`` to the plug-in's options.

    A task that is chosen several times is named as in the results: ``random_mlm``, then
    ``random_mlm_2``.

    Args:
        settings: Settings of a run.
        where: Name of the combination, for messages.

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
        match = PLUGIN_OPTION.fullmatch(key)
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


def _fill_in_labels(value: Any, labels: Mapping[str, str]) -> Any:
    """Replace the name of an axis in braces by its label, as in ``runs/mlm-{dataset}``."""
    if not isinstance(value, str):
        return value
    return re.sub(r"\{(\w+)\}", lambda found: labels.get(found[1], found[0]), value)


def _matches(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    for axis, value in rule.items():
        wanted = value if isinstance(value, list) else [value]
        if labels.get(axis) not in [label(item) for item in wanted]:
            return False
    return True
