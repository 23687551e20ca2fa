"""Expansion of a sweep file into trials: cells of the grid or of a search, with every seed."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, SweepError, did_you_mean
from auxlearn.core.lazy import library
from auxlearn.core.rng import derive_seed
from auxlearn.core.validation import validate
from auxlearn.data.run_data import FoundKinds, with_found_kind
from auxlearn.kinds.metrics import sign
from auxlearn.sweeps.sweep_file import (
    CASE,
    FOLD,
    LABEL,
    MOST_TRIALS,
    PLUGIN_OPTION,
    Range,
    Search,
    SweepFile,
    excluded_values,
    label,
    texts_in,
)

if TYPE_CHECKING:
    import optuna


#: Combinations of the values of a grid that are expanded, before ``exclude`` removes some.
MOST_COMBINATIONS = 100_000
#: Hash of a configuration. It names folders, so that no other text may be read from a file.
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]


@dataclass(frozen=True)
class Trial:
    """One run of a sweep, known by the hash of its whole resolved configuration."""

    cell: Mapping[str, str]  # label of each axis
    seed: int
    config: RunConfig
    digest: Digest

    @property
    def setting(self) -> dict[str, str]:
        """Data set, encoder and metric, whether or not they are axes."""
        data, encoder = (Path(name).name for name in (self.config.dataset, self.config.encoder))
        return {"dataset": data, "encoder": encoder, "metric": self.config.metric}

    @property
    def title(self) -> str:
        """The labels and the seed in one line."""
        labels = [_titled(axis, value) for axis, value in self.cell.items()]
        return ", ".join([*labels, f"seed {self.seed}"])


@dataclass(frozen=True)
class TrialRecord:
    """A trial as the folder of its sweep knows it."""

    digest: Digest
    cell: Mapping[str, str]  # label of each axis
    seed: int
    state: str = "unfinished"  # "finished", "unfinished", or how it failed.
    error: str = ""  # in one line, if it failed
    chosen: bool = False  # whether its hyper-parameters are those chosen on dev
    dev: Mapping[str, float] = field(default_factory=dict)  # metrics on dev, if it has finished
    #: Metrics by set other than dev, if it has finished and was chosen.
    evaluations: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    best_epoch: float | None = None  # of the checkpoint, if it has finished with one
    #: Data set, encoder and metric, whether or not they are axes.
    setting: Mapping[str, str] = field(kw_only=True)

    @property
    def finished(self) -> bool:
        return self.state == "finished"


@dataclass(frozen=True)
class Cell:
    """One combination of values of the axes: the label of each axis, and settings."""

    labels: Mapping[str, str]
    settings: Mapping[str, Any]

    def extended(self, values: Mapping[str, Any]) -> Cell:
        """Return the cell with further axes, each a setting and its value."""
        labels = {**self.labels, **{axis: label(value) for axis, value in values.items()}}
        return Cell(labels, {**self.settings, **values})

    def trials(self, seeds: Sequence[int], known: FoundKinds) -> list[Trial]:
        """Return one trial for each seed, with the kind of labels that its data have."""
        where = ", ".join(self.labels.values()) or "base"
        settings = join_settings(self.settings, where)
        config = with_found_kind(validate(RunConfig, settings, where), None, known).resolved()
        seeded = [config.model_copy(update={"seed": seed}) for seed in seeds]
        return [Trial(self.labels, of_seed.seed, of_seed, of_seed.digest) for of_seed in seeded]


def expand_cells(sweep: SweepFile) -> list[Cell]:
    """Return every combination of grid, cases and folds that is not excluded; later axes count."""
    axes: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for axis, values in sweep.grid.items():
        if isinstance(values, list):
            axes[axis] = [(label(value), {axis: value}) for value in values]
        else:
            axes[axis] = list(values.items())
    if sweep.cases:
        cases = [{**case} for case in sweep.cases]
        axes[CASE] = [(case.pop("name"), case) for case in cases]
    if sweep.folds:
        folds = [f"{number}/{sweep.folds}" for number in range(1, sweep.folds + 1)]
        axes[FOLD] = [(fold, {FOLD: fold}) for fold in folds]
    combinations = math.prod(map(len, axes.values()))
    if combinations > MOST_COMBINATIONS:
        raise SweepError(
            f"sweep '{sweep.name}' has {combinations:,} combinations of its grid: at most "
            f"{MOST_COMBINATIONS:,} are expanded; take values out, or search with 'search'"
        )
    cells = []
    excluded = [
        {axis: set(map(label, excluded_values(value))) for axis, value in rule.items()}
        for rule in sweep.exclude
    ]
    for chosen in itertools.product(*axes.values()):
        labels = {axis: name for axis, (name, _) in zip(axes, chosen, strict=True)}
        if any(all(labels.get(a) in values for a, values in rule.items()) for rule in excluded):
            continue
        settings = dict(sweep.base)
        for _, more in chosen:
            settings |= more
        cells.append(Cell(labels, {key: _fill_in_labels(v, labels) for key, v in settings.items()}))
    trials = len(cells) * len(sweep.seeds) * (sweep.search.trials if sweep.search else 1)
    if trials > MOST_TRIALS:
        raise SweepError(
            f"sweep '{sweep.name}' has {trials:,} trials ({len(cells):,} combinations, "
            f"{len(sweep.seeds):,} seeds): at most {MOST_TRIALS:,}; divide it into several sweeps"
        )
    return cells


def plan_trials(
    sweep: SweepFile, cells: Sequence[Cell], known: FoundKinds | None = None
) -> list[Trial]:
    """Return the trials of the cells; one error names all invalid cells."""
    trials: list[Trial] = []
    problems: list[str] = []
    known = {} if known is None else known
    for cell in cells:
        try:
            trials += cell.trials(sweep.seeds, known)
        except ConfigError as error:
            problems += str(error).splitlines()
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    if not trials:
        raise SweepError(f"sweep '{sweep.name}' has no trials: 'exclude' leaves none")
    without_aux = not any(trial.config.aux for trial in trials)
    for axis in sweep.grid:
        if axis.startswith("weights.") and without_aux and not sweep.search:
            raise ConfigError(f"grid: {axis} has no effect without an auxiliary task: add aux")
    unused = [trial.config.without_effect(sweep.base) for trial in trials]
    if all(unused) and not sweep.search:
        raise ConfigError(f"base: {unused[0]}")
    if sweep.pretrain and not sweep.search:
        output = sweep.pretrain.output  # the encoder, or one that an option names
        if not any(output in texts_in(trial.config.model_dump(mode="json")) for trial in trials):
            raise ConfigError(
                f"pretrain: no trial begins from its output: name {output} as the encoder, in base "
                "or in the grid"
            )
    seen: dict[str, Trial] = {}
    for trial in trials:
        other = seen.setdefault(trial.digest, trial)
        if other is not trial:
            raise SweepError(
                f"'{other.title}' and '{trial.title}' are the same run: leave one of them out"
            )
    return trials


def join_settings(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Move settings named ``aux.NAME.OPTION`` or ``weights.NAME.OPTION`` to the plug-in's options;
    a task that is chosen twice is named as in the results: ``random_mlm``, then ``random_mlm_2``.
    """
    plain = {key: value for key, value in settings.items() if "." not in key}
    dotted = {key: value for key, value in settings.items() if "." in key}
    if not dotted:
        return plain
    chosen = validate(RunConfig, {k: plain[k] for k in ("aux", "weights") if k in plain}, where)
    names = chosen.objective_names()[1:]
    aux = {name: dict(choice.options) for name, choice in zip(names, chosen.aux, strict=True)}
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
    tasks = [{choice.written: aux[name]} for name, choice in zip(names, chosen.aux, strict=True)]
    return {**plain, "aux": tasks, "weights": weights}


def _fill_in_labels(value: Any, labels: Mapping[str, str]) -> Any:
    """Replace the name of an axis in braces by its label, in every text of a value."""
    if isinstance(value, dict):
        return {key: _fill_in_labels(inner, labels) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill_in_labels(inner, labels) for inner in value]
    if isinstance(value, str):
        return LABEL.sub(lambda match: labels.get(match[1], match[0]), value)
    return value


#: Returns the dev metrics of a trial by its digest, or ``None`` if it has not finished.
DevMetrics = Callable[[str], Mapping[str, float] | None]


def chosen_trials(
    sweep: SweepFile, trials: Sequence[Trial | TrialRecord], dev: DevMetrics
) -> set[str]:
    """Return the digests of the trials that are best on dev for each combination of other axes."""
    groups: dict[tuple[str, ...], dict[tuple[str, ...], list[Trial | TrialRecord]]] = {}
    for trial in trials:
        fixed = tuple(v for axis, v in trial.cell.items() if axis not in sweep.chosen_axes)
        values = groups.setdefault(fixed, {})
        values.setdefault(tuple(trial.cell.values()), []).append(trial)
    chosen: set[str] = set()
    for values in groups.values():
        candidates = list(values.values())
        best = candidates[0]
        if len(candidates) > 1:  # else no results are read
            best = max(candidates, key=lambda members: _selection_key(members, sweep, dev))
        chosen |= {trial.digest for trial in best}
    return chosen


def mean_dev(
    trials: Sequence[Trial | TrialRecord], sweep: SweepFile, dev: DevMetrics
) -> float | None:
    """Return the mean dev metric, negative for an error; ``None`` if a trial is unfinished."""
    values = []
    for trial in trials:
        metric = sweep.select.metric or trial.setting["metric"]
        metrics = dev(trial.digest)
        if metrics is None:
            return None
        if metric not in metrics:
            hint = did_you_mean(metric, metrics)
            raise SweepError(f"select.metric: the trials have no {metric} on dev: {hint}")
        values.append(sign(metric) * metrics[metric])
    return fmean(values)


def _selection_key(
    members: Sequence[Trial | TrialRecord], sweep: SweepFile, dev: DevMetrics
) -> tuple[bool, float]:
    """Return whether all seeds have finished, and the mean dev metric of those that have."""
    finished = [trial for trial in members if dev(trial.digest) is not None]
    score = mean_dev(finished, sweep, dev) if finished else None
    return len(finished) == len(members), float("-inf") if score is None else score


#: Returns the dev metric of the trials of a point, mean over seeds; ``None`` if one failed.
Score = Callable[[list[Trial]], float | None]


def rounds(sweep: SweepFile, score: Score) -> Iterator[list[Trial]]:
    """Yield the trials of a sweep in rounds, each taken after the previous one has run. A grid is
    one round. A search has a study for each cell; its points depend on the seed and the metrics of
    earlier rounds alone, so that a sweep started again gets the same ones.
    """
    cells = expand_cells(sweep)
    search = sweep.search
    if search is None:
        yield plan_trials(sweep, cells)
        return
    failed = library("optuna", "a search", "search").trial.TrialState.FAIL
    studies = [_study(search, cell) for cell in cells]
    known: set[str] = set()
    kinds: FoundKinds = {}
    left = search.trials
    while left > 0:
        asked = []
        for cell, study in zip(cells, studies, strict=True):
            for _ in range(min(search.batch, left)):
                point = study.ask()
                values = {key: _suggest(point, key, axis) for key, axis in search.space.items()}
                asked.append((study, point, plan_trials(sweep, [cell.extended(values)], kinds)))
        left -= search.batch
        new = [t for _, _, trials in asked for t in trials if t.digest not in known]
        new = list({trial.digest: trial for trial in new}.values())
        known |= {trial.digest for trial in new}
        yield new
        for study, point, trials in asked:
            value = score(trials)
            study.tell(point, value, failed if value is None else None)


def known_trials(
    sweep: SweepFile, ended: Callable[[Trial], bool], dev: DevMetrics
) -> tuple[list[Trial], bool]:
    """Return the trials that are known before any is run, and whether these are all: a search has
    further ones until the trials of a round have ended.
    """
    trials: list[Trial] = []
    for number, new in enumerate(rounds(sweep, lambda point: mean_dev(point, sweep, dev)), 1):
        trials += new
        if sweep.search and not all(map(ended, new)):
            return trials, number * sweep.search.batch >= sweep.search.trials
    return trials, True


def _titled(axis: str, value: str) -> str:
    """Return a label with its axis if it says nothing alone: a fold, a number that was drawn.

    >>> _titled("aux", "l3mask"), _titled("learning_rate", "3.1415926535897934e-05")
    ('l3mask', 'learning_rate 3.142e-05')
    """
    if axis == FOLD:
        return f"{axis} {value}"
    if len(value) > 12 and re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", value):
        return f"{axis} {float(value):.4g}"
    return value


def number_of_trials(sweep: SweepFile) -> int:
    """Return the number of trials; a search that suggests a point twice has fewer."""
    points = sweep.search.trials if sweep.search else 1
    return len(expand_cells(sweep)) * points * len(sweep.seeds)


def _study(search: Search, cell: Cell) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = derive_seed(search.seed, "search", *cell.labels.values()) % 2**32
    samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
    return optuna.create_study(direction="maximize", sampler=samplers[search.sampler](seed=seed))


def _suggest(point: optuna.Trial, key: str, values: Range | list[Any]) -> Any:
    if isinstance(values, list):
        # Optuna accepts scalars only: the index represents the value.
        return values[point.suggest_categorical(key, list(range(len(values))))]
    if isinstance(values.low, int) and isinstance(values.high, int):
        return point.suggest_int(key, values.low, values.high, log=values.log)
    return point.suggest_float(key, values.low, values.high, log=values.log)
