"""Scores of methods with intervals, and the tests of their differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from auxlearn.comparison.compare import compare
from auxlearn.comparison.folds import TESTED, fold_noise, share_of_test
from auxlearn.comparison.formats import BEST
from auxlearn.comparison.methods import Setting as NamedSetting, without_fold
from auxlearn.comparison.scores import Predictions, scores_and_covariance
from auxlearn.comparison.tables import Cell, Layout, block_notes, legend, marks, score_grid
from auxlearn.core.config import Metric
from auxlearn.core.errors import UserError
from auxlearn.reports.collect import Collection, Run
from auxlearn.results.plots import METRIC_TITLES
from auxlearn.results.predictions import predictions_path, read_labels
from auxlearn.results.record import Scores


@dataclass(frozen=True)
class Score:
    """The score of a method on one set.

    Attributes:
        mean: Mean over seeds; of a cross-validation, over folds of the means over seeds.
        sd: Standard deviation over seeds or folds; ``None`` for a single one.
        interval: 95% interval: over seeds (Student's), over folds on test (with the correction of
            :mod:`auxlearn.comparison.folds`), or for a single seed over examples (normal, with the
            jackknife's variance); ``None`` for other sets of folds and without predictions.
        seeds: Number of seeds or folds.
    """

    mean: float
    sd: float | None
    interval: tuple[float, float] | None
    seeds: int

    @property
    def text(self) -> str:
        """Mean and standard deviation."""
        return f"{self.mean:.3f}" + ("" if self.sd is None else f" ± {self.sd:.3f}")

    @property
    def interval_text(self) -> str:
        """The interval in brackets."""
        if self.interval is None:
            return ""
        low, high = self.interval
        return f"[{low:z.3f}, {high:z.3f}]"


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
        scores = {
            method: {
                key: _score(having, *key)
                for key in columns
                if (having := [run for run in group if key[0] in run.sets])
            }
            for method, group in methods.items()
        }
        title = ", ".join(
            f"checkpoints by {METRIC_TITLES[metric]}" if axis == "metric" else label
            for axis, label in setting
        )
        counts = {method: len(group) for method, group in methods.items()}
        found.append(Setting(title, metric, columns, scores, counts))
    return found


def score_of(scores: Scores, metric: Metric) -> float:
    """Return a score by the name of its metric."""
    return scores.accuracy if metric == "accuracy" else scores.macro_f1


def _score(runs: Sequence[Run], name: str, metric: Metric) -> Score:
    folds: dict[int | None, list[float]] = {}
    for run in runs:
        score = score_of(run.results.evaluations[name].all, metric)
        folds.setdefault(without_fold(run.setting)[1], []).append(score)
    values = [float(np.mean(each)) for each in folds.values()]
    if None in folds:
        values = folds[None]
    mean = float(np.mean(values))
    if None not in folds and len(values) > 1:
        share = share_of_test([run.results for run in runs]) if name == TESTED else math.inf
        half = fold_noise(values, share).half_width()
        ends = None if math.isnan(half) else (mean - half, mean + half)
        return Score(mean, float(np.std(values, ddof=1)), ends, len(values))
    if len(values) > 1:
        spread = float(np.std(values, ddof=1))
        half = float(stdtrit(len(values) - 1, 0.975)) * spread / len(values) ** 0.5
        return Score(mean, spread, (mean - half, mean + half), len(values))
    found = example_intervals(runs[0], name)
    return Score(mean, None, found.get(metric), 1)


def example_intervals(run: Run, name: str) -> dict[Metric, tuple[float, float]]:
    """Return the 95% interval of each metric over examples; empty without predictions.

    It is normal, with the jackknife's variance, within 0 to 1.
    """
    if not predictions_path(run.path, name).is_file():
        return {}
    labels = {label: n for n, label in enumerate(run.results.evaluations[name].all.per_class)}
    truth, predicted = read_labels(run.path, name, labels)
    found: dict[Metric, tuple[float, float]] = {}
    for metric in METRIC_TITLES:
        (score,), covariance = scores_and_covariance(
            Predictions(tuple(labels), truth, predicted[None]), metric
        )
        half = float(ndtri(0.975)) * float(covariance[0, 0]) ** 0.5
        found[metric] = max(0.0, float(score) - half), min(1.0, float(score) + half)
    return found


def difference_tables(
    collection: Collection, restarts: int | None = None
) -> tuple[list[Table], list[str]]:
    """Return which differences between the methods of finished sweeps may be due to chance.

    Args:
        collection: Runs and sweeps.
        restarts: Number of seeds of which the best by dev is shown as a control.

    Returns:
        The tables, and why there are none.

    Raises:
        UserError: There is no table that could show the control.
    """
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
