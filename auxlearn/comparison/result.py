"""What a comparison has found: scores over seeds, the best, significance, averages, ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from auxlearn.comparison.methods import Method
from auxlearn.comparison.restarts import Restarts
from auxlearn.comparison.runs import folds_of
from auxlearn.comparison.statistics import Noise, Pair, Ranks, Record, ties_with
from auxlearn.kinds.metrics import metric_of, metric_title, sign

#: Name of the column of means over data sets.
AVERAGE = "average"


@dataclass(frozen=True)
class MetricComparison:
    """Methods compared by one metric on one evaluation set, or on the average of data sets."""

    dataset: str  # of an average, AVERAGE, or "average of data sets" if one is called that
    set: str
    metric: str
    # by method and seed (or fold) that all data sets have
    scores: Mapping[str, Mapping[int, float]]
    means: Mapping[str, float]  # over seeds or folds; of an average, of data sets
    noises: Mapping[str, Noise]  # variance of the mean of each method
    pairs: tuple[Pair, ...]  # of every two methods, or of each and the one compared with
    examples: int
    detectable: float = math.nan  # minimum detectable difference, if asked for
    averaged: bool = False  # whether this is the average of data sets
    by_fold: bool = False  # whether scores are by fold of a cross-validation
    restarts: Mapping[str, Restarts] = field(default_factory=dict)  # if asked for: a control

    @property
    def incomplete(self) -> frozenset[str]:
        """Methods that lack a fold, which may be an easy or a hard one, so that means mislead."""
        every = {fold for by_fold in self.scores.values() for fold in by_fold}
        return frozenset(
            method
            for method, by_fold in self.scores.items()
            if self.by_fold and every - by_fold.keys()
        )

    @property
    def complete(self) -> list[str]:
        """Methods that lack no fold."""
        return [method for method in self.scores if method not in self.incomplete]

    @property
    def best(self) -> str | None:
        """The method with the best mean; over folds, of those that have all; else ``None``."""
        better = sign(self.metric)
        return max(self.complete, key=lambda name: better * self.means[name], default=None)

    def is_best(self, method: str) -> bool:
        """Whether no method has a better mean; of equal ones, all are."""
        return method in self.complete and self.means[method] == self.means[str(self.best)]

    @property
    def ties(self) -> frozenset[str]:
        """Methods whose difference from the best is not significant."""
        return frozenset() if self.best is None else ties_with(self.best, self.pairs)

    def interval(self, method: str) -> tuple[float, float]:
        """Return the 95% interval of the mean of a method, within the range of the metric."""
        mean, half = self.means[method], self.noises[method].half_width()
        metric = metric_of(self.metric)
        low, high = np.clip([mean - half, mean + half], metric.least, metric.most)
        return float(low), float(high)

    def sd(self, method: str) -> float:
        """Return the standard deviation over seeds, ``n - 1`` in its denominator; NaN for one."""
        values = list(self.scores[method].values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


@dataclass(frozen=True)
class RankComparison:
    """Methods compared across data sets by one metric on the set of one name."""

    set: str
    metric: str
    ranks: Ranks
    records: Mapping[str, Record]  # wins, ties and losses of each method
    average: MetricComparison


@dataclass(frozen=True)
class DatasetRuns:
    """The methods of one setting."""

    setting: Mapping[str, str]  # label of each axis that all methods share
    methods: Sequence[Method]  # the methods, in the order of the table

    @property
    def name(self) -> str:
        return self.setting.get("dataset", "all data sets")

    @property
    def folds(self) -> int:
        """Number of folds of the cross-validation that the runs are; 0 if they are none."""
        return folds_of(self.setting)

    def only(self, names: Sequence[str]) -> DatasetRuns:
        """Return these with the methods of some names, in their order."""
        return replace(self, methods=[m for name in names for m in self.methods if m.name == name])


@dataclass(frozen=True)
class Block:
    """What is in one table: methods on data sets, with the same encoder and metric of selection."""

    setting: Mapping[str, str]  # label of each axis that all share, the data set left out
    datasets: Sequence[DatasetRuns]  # methods and runs on each data set
    methods: Sequence[str]  # names of the methods, in the order of the table
    columns: Sequence[MetricComparison]  # by data set, set and metric; then averages
    across: Sequence[RankComparison]  # comparison across data sets by each metric

    @property
    def folds(self) -> int:
        return folds_of(self.setting)

    def runs_of(self, name: str) -> list[Method]:
        """Return the methods of a name, one for each data set that has it."""
        return [m for data in self.datasets for m in data.methods if m.name == name]

    @property
    def title(self) -> str:
        parts = [
            f"checkpoints by {metric_title(value)}" if axis == "metric" else value
            for axis, value in self.setting.items()
        ]
        if len(self.datasets) == 1:
            parts.insert(0, self.datasets[0].name)
        return ", ".join(parts)


def methods_in(blocks: Sequence[Block]) -> list[Method]:
    """Return the methods of every data set of every block."""
    return [method for block in blocks for data in block.datasets for method in data.methods]
