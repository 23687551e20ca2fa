"""Scores of methods with intervals, and the tests of their differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from auxlearn.comparison.compare import compare
from auxlearn.comparison.folds import TESTED, fold_noise, share_of_test
from auxlearn.comparison.formats import BEST
from auxlearn.comparison.methods import Setting as NamedSetting, without_fold
from auxlearn.comparison.runs import Method
from auxlearn.comparison.scores import read_predictions, scores_and_covariance
from auxlearn.comparison.statistics import Column, mean_interval, noise_of
from auxlearn.comparison.tables import Cell, Layout, block_notes, legend, marks, score_grid
from auxlearn.core.config import Metric
from auxlearn.core.errors import UserError
from auxlearn.reports.collect import Collection, Run
from auxlearn.results.plots import METRIC_TITLES
from auxlearn.results.record import Scores


@dataclass(frozen=True)
class Score:
    """The score of a method on one set.

    Attributes:
        mean: Mean over seeds; of a cross-validation, over folds of the means over seeds.
        sd: Standard deviation over seeds or folds; ``None`` for a single one.
        interval: 95% interval within 0 to 1: over seeds and examples as in comparisons
            (:mod:`auxlearn.comparison.statistics`), without predictions over seeds, or over folds
            on test (with the correction of :mod:`auxlearn.comparison.folds`); ``None`` for other
            sets of folds, and for a single seed without predictions.
        seeds: Number of seeds or folds.
    """

    mean: float
    sd: float | None
    interval: tuple[float, float] | None
    seeds: int

    @property
    def text(self) -> str:
        """Mean and standard deviation, in percent as in comparisons."""
        percent = Layout().percent
        return percent(self.mean) + ("" if self.sd is None else f" ± {percent(self.sd)}")

    @property
    def interval_text(self) -> str:
        """The interval in brackets, in percent."""
        ends = ", ".join(map(Layout().percent, self.interval or ()))
        return f"[{ends}]" if ends else ""


@dataclass(frozen=True)
class Setting:
    """Methods on the same data with the same encoder and metric.

    Attributes:
        title: Data set, encoder, metric, and the number of folds, if any.
        metric: Metric that checkpoints were selected by.
        columns: Sets and metrics.
        methods: Scores by column, by method.
        seeds: Number of runs by method.
    """

    title: str
    metric: Metric
    columns: list[tuple[str, Metric]]
    methods: dict[str, dict[tuple[str, Metric], Score]]
    seeds: dict[str, int]


@dataclass(frozen=True)
class Table:
    """A table of the comparison with its notes."""

    title: str
    heads: list[str]
    lines: list[list[str]]
    notes: list[str]


def settings_of(runs: Sequence[Run]) -> list[Setting]:
    """Group runs by setting and method, and return the scores of each method."""
    grouped: dict[NamedSetting, dict[str, list[Run]]] = {}
    for run in runs:
        setting, _ = without_fold(run.setting)
        grouped.setdefault(setting, {}).setdefault(run.method, []).append(run)
    found = []
    for setting, methods in grouped.items():
        every = [run for group in methods.values() for run in group]
        metric = every[0].config.metric
        order = dict.fromkeys(place for run in every for place in run.sets)
        names = sorted(order, key=lambda place: (place == "dev", place != "test"))
        titles = sorted(METRIC_TITLES, key=lambda one: one != metric)
        columns = [(place, one) for place in names for one in titles]
        scores: dict[str, dict[tuple[str, Metric], Score]] = {method: {} for method in methods}
        for (method, group), place in product(methods.items(), names):
            if having := [run for run in group if place in run.sets]:
                of_place = _scores(having, place)
                scores[method] |= {(place, one): of_place[one] for one in titles}
        title = ", ".join(
            f"checkpoints by {METRIC_TITLES[metric]}" if axis == "metric" else label
            for axis, label in setting
        )
        counts = {method: len(group) for method, group in methods.items()}
        found.append(Setting(title, metric, columns, scores, counts))
    return found


def score_of(scores: Scores, metric: Metric) -> float:
    """Return a score by the name of its metric."""
    return scores.metrics[metric]


def _scores(runs: Sequence[Run], name: str) -> dict[Metric, Score]:
    """Return the score of a method on one set by each metric."""
    folds = {without_fold(run.setting)[1] for run in runs}
    halves = example_noise(runs, name) if None in folds else {}
    return {metric: _score(runs, name, metric, halves.get(metric)) for metric in METRIC_TITLES}


def _score(runs: Sequence[Run], name: str, metric: Metric, half: float | None) -> Score:
    folds: dict[int | None, list[float]] = {}
    for run in runs:
        score = score_of(run.results.evaluations[name].all, metric)
        folds.setdefault(without_fold(run.setting)[1], []).append(score)
    values = [float(np.mean(each)) for each in folds.values()]
    if None in folds:
        values = folds[None]
    elif len(values) > 1:
        share = share_of_test([run.results for run in runs]) if name == TESTED else math.inf
        half = fold_noise(values, share).half_width()
    if half is None and len(values) > 1:
        half = mean_interval(values)
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    mean = float(np.mean(values))
    return Score(mean, spread, _ends(mean, half), len(values))


def _ends(mean: float, half: float | None) -> tuple[float, float] | None:
    """Return the ends of an interval, within 0 to 1."""
    if half is None or math.isnan(half):
        return None
    return max(0.0, mean - half), min(1.0, mean + half)


def example_noise(runs: Sequence[Run], name: str) -> dict[Metric, float]:
    """Return half the 95% interval of the mean of runs, over seeds and examples as in comparisons.

    It is empty without predictions on the same examples.
    """
    numbered = dict(enumerate(runs))
    method = Method(
        "runs",
        runs={number: run.path for number, run in numbered.items()},
        results={number: run.results for number, run in numbered.items()},
    )
    try:
        found, places = read_predictions([method], name)
    except UserError:
        return {}
    halves: dict[Metric, float] = {}
    for metric in METRIC_TITLES:
        values, covariance = scores_and_covariance(found, metric)
        scores = {method.name: dict(enumerate(values.tolist()))}
        column = Column(scores, places, covariance, found.examples)
        halves[metric] = noise_of(column, {method.name: 1.0}, list(numbered)).half_width()
    return halves


def example_intervals(run: Run, name: str) -> dict[Metric, tuple[float, float]]:
    """Return the 95% interval of each metric over examples; empty without predictions."""
    halves = example_noise([run], name)
    found = run.results.evaluations[name].all
    ends = {metric: _ends(score_of(found, metric), half) for metric, half in halves.items()}
    return {metric: one for metric, one in ends.items() if one is not None}


def difference_tables(
    collection: Collection, restarts: int | None = None
) -> tuple[list[Table], list[str]]:
    """Return which differences between the methods of finished sweeps may be due to chance."""
    if not collection.sweeps or collection.notes:
        if restarts is not None:
            raise UserError("restarts stand in the table of finished sweeps, and there is none")
        return [], []
    try:
        comparison = compare(*(sweep.path for sweep in collection.sweeps), restarts=restarts)
    except UserError as error:
        if restarts is not None:
            raise
        return [], [str(error)]
    layout = Layout()
    tables = []
    for block in comparison.blocks:
        if len(block.methods) < 2 and restarts is None:
            continue
        heads, lines = score_grid(block, layout, comparison.against).flat(_written)
        notes = [*filter(None, [marks(comparison, block)]), *block_notes(block)]
        notes = [note.replace("Best in bold", f"{BEST}: the best") for note in notes]
        tables.append(Table(block.title, heads, lines, notes))
    return tables, legend(comparison, layout)


def _written(cell: Cell) -> str:
    spread = f" ± {cell.spread}" if cell.spread else ""
    mark = BEST if cell.best else cell.mark
    return f"{cell.text}{spread}" + (f" {mark}" if mark else "")
