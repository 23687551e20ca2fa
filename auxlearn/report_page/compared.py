"""Scores of methods with intervals; the only module of the report that uses the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auxlearn.comparison.bootstrap import bootstrap_metrics
from auxlearn.comparison.compare import compare_sweeps
from auxlearn.comparison.statistics import mean_interval
from auxlearn.comparison.tables import MARK, legend, setting_grid, setting_notes
from auxlearn.config import Metric
from auxlearn.errors import UserError
from auxlearn.report_page.collect import Collection, Run
from auxlearn.reporting.style import METRIC_TITLES
from auxlearn.results.folder import RunFolder, read_jsonl
from auxlearn.results.record import Evaluation, Scores


@dataclass(frozen=True)
class Score:
    """The score of a method on one set.

    Attributes:
        mean: Mean over seeds.
        sd: Standard deviation over seeds; ``None`` for a single seed.
        interval: 95% interval: over seeds (Student's), or for a single seed over examples
            (percentiles of the bootstrap); ``None`` without predictions.
        seeds: Number of seeds.
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
        return "" if self.interval is None else "[{:.3f}, {:.3f}]".format(*self.interval)


@dataclass(frozen=True)
class Setting:
    """Methods on the same data with the same encoder and metric.

    Attributes:
        title: Data set, encoder and metric.
        metric: Metric that checkpoints were selected by.
        columns: Sets and metrics.
        methods: Scores by column, by method.
        seeds: Number of seeds by method.
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
    grouped: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for run in runs:
        grouped.setdefault(run.setting, {}).setdefault(run.method, []).append(run)
    found = []
    for (name, _, encoder, _), methods in grouped.items():
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
        title = f"{name}, {encoder}, checkpoints by {METRIC_TITLES[metric]}"
        counts = {method: len(group) for method, group in methods.items()}
        found.append(Setting(title, metric, columns, scores, counts))
    return found


def score_of(scores: Scores, metric: Metric) -> float:
    """Return a score by the name of its metric."""
    return scores.accuracy if metric == "accuracy" else scores.macro_f1


def _score(runs: Sequence[Run], name: str, metric: Metric) -> Score:
    values = [score_of(run.results.evaluations[name].all, metric) for run in runs]
    mean = float(np.mean(values))
    if len(values) > 1:
        half = mean_interval(values)
        spread = float(np.std(values, ddof=1))
        return Score(mean, spread, (mean - half, mean + half), len(values))
    found = example_intervals(runs[0], name)
    return Score(mean, None, found.get(metric), 1)


def example_intervals(run: Run, name: str) -> dict[Metric, tuple[float, float]]:
    """Return the 95% bootstrap interval of each metric over examples; empty without predictions."""
    lines = read_jsonl(RunFolder(run.path).predictions_path / f"{name}.jsonl")
    labels = label_numbers(run.results.evaluations[name], lines)
    if not lines:
        return {}
    truth, predicted = (
        np.array([labels[str(line.get(key))] for line in lines]) for key in ("label", "predicted")
    )
    values = bootstrap_metrics(truth, predicted[None], len(labels))
    return {
        metric: (float(ends[0]), float(ends[1]))
        for metric, found in values.items()
        for ends in [np.percentile(found, [2.5, 97.5])]
    }


def label_numbers(evaluation: Evaluation, lines: Sequence[dict[str, object]]) -> dict[str, int]:
    """Return the number of each label of an evaluation, in the order of the classes."""
    named = [str(line.get(key)) for line in lines for key in ("label", "predicted")]
    order = dict.fromkeys([*evaluation.all.per_class, *named])
    return {label: number for number, label in enumerate(order)}


def difference_tables(collection: Collection) -> tuple[list[Table], list[str]]:
    """Return which differences between the methods of finished sweeps may be due to chance.

    Returns:
        The tables, and why there are none.
    """
    if not collection.sweeps or collection.notes:
        return [], []
    try:
        comparison = compare_sweeps(collection.sweeps)
    except UserError as error:
        return [], [str(error)]

    def style(mean: str, spread: str, best: bool, mark: bool) -> str:
        return f"{mean}{spread}" + (" (best)" if best else f" {MARK}" if mark else "")

    tables = [
        Table(one.title, *setting_grid(one, style), setting_notes(one))
        for one in comparison.settings
        if sum(bool(method.runs) for method in one.methods) > 1
    ]
    return tables, [line.replace("bold", "marked so") for line in legend(comparison)]
