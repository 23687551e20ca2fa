"""What a comparison has found: scores over seeds, the best, significance, averages, ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from auxlearn.comparison.methods import Method
from auxlearn.comparison.restarts import Restarts
from auxlearn.comparison.runs import folds_of
from auxlearn.comparison.scores import metric_title
from auxlearn.comparison.statistics import Noise, Pair, Ranks, Record, ties_with
from auxlearn.core.metric_names import sign
from auxlearn.sweeps.published import PublishedResult

#: Name of the column of means over data sets.
AVERAGE = "average"


@dataclass(frozen=True)
class MetricComparison:
    """Methods compared by one metric on one evaluation set, or on the average of data sets.

    Attributes:
        dataset: Name of the data set; of an average, :data:`AVERAGE`, or "average of data sets" if
            one of them is called that.
        set: Name of the evaluation set.
        metric: The metric.
        scores: Score of each method by seed; of an average, of the seeds that all data sets have;
            of a cross-validation, by fold, the mean over seeds.
        means: Mean over seeds or folds of each method; of an average, the mean of those of the data
            sets.
        noises: Variance of the mean of each method.
        pairs: Test results of every two methods, or of every method and the one it is compared
            with.
        examples: Number of examples.
        detectable: Minimum detectable difference with these seeds and examples; NaN unless asked
            for, over folds, of a single method and of averages.
        averaged: Whether this is the average of data sets.
        by_fold: Whether scores are by fold of a cross-validation.
        restarts: The best of several seeds by dev of each method without auxiliary tasks, if asked
            for: a control, no method.
    """

    dataset: str
    set: str
    metric: str
    scores: Mapping[str, Mapping[int, float]]
    means: Mapping[str, float]
    noises: Mapping[str, Noise]
    pairs: tuple[Pair, ...]
    examples: int
    detectable: float = math.nan
    averaged: bool = False
    by_fold: bool = False
    restarts: Mapping[str, Restarts] = field(default_factory=dict)

    @property
    def incomplete(self) -> frozenset[str]:
        """Methods that lack a fold, which may be an easy or a hard one, so that means mislead."""
        every = {fold for by_fold in self.scores.values() for fold in by_fold}
        return frozenset(m for m, one in self.scores.items() if self.by_fold and every - {*one})

    @property
    def best(self) -> str | None:
        """The method with the best mean; over folds, of those that have all; else ``None``."""
        complete = [name for name in self.means if name not in self.incomplete]
        return max(complete, key=lambda name: sign(self.metric) * self.means[name], default=None)

    @property
    def ties(self) -> frozenset[str]:
        """Methods whose difference from the best is not significant."""
        return frozenset() if self.best is None else ties_with(self.best, self.pairs)

    def sd(self, method: str) -> float:
        """Return the standard deviation over seeds, ``n - 1`` in its denominator; NaN for one."""
        values = list(self.scores[method].values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


@dataclass(frozen=True)
class RankComparison:
    """Methods compared across data sets by one metric on the set of one name.

    Attributes:
        set: Name of the evaluation set.
        metric: The metric.
        ranks: Ranks and tests.
        records: Wins, ties and losses of each method.
        average: The average over data sets.
    """

    set: str
    metric: str
    ranks: Ranks
    records: Mapping[str, Record]
    average: MetricComparison


@dataclass(frozen=True)
class DatasetRuns:
    """The methods of one setting.

    Attributes:
        setting: Label of each axis that all methods share.
        methods: The methods, in the order of the table.
    """

    setting: Mapping[str, str]
    methods: Sequence[Method]

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.setting.get("dataset", "all data sets")

    @property
    def folds(self) -> int:
        """Number of folds of the cross-validation that the runs are; 0 if they are none."""
        return folds_of(self.setting)


@dataclass(frozen=True)
class Block:
    """What is in one table: methods on data sets, with the same encoder and metric of selection.

    Attributes:
        setting: Label of each axis that all share, the data set left out.
        datasets: Methods and runs on each data set.
        methods: Names of the methods, in the order of the table.
        columns: Comparison by each data set, evaluation set and metric, then averages.
        across: Comparison across data sets by each metric.
    """

    setting: Mapping[str, str]
    datasets: Sequence[DatasetRuns]
    methods: Sequence[str]
    columns: Sequence[MetricComparison]
    across: Sequence[RankComparison]

    @property
    def folds(self) -> int:
        """Number of folds of the cross-validation that the runs are; 0 if they are none."""
        return folds_of(self.setting)

    def runs_of(self, name: str) -> list[Method]:
        """Return the methods of a name, one for each data set that has it."""
        return [one for data in self.datasets for one in data.methods if one.name == name]

    @property
    def title(self) -> str:
        """The shared labels in one line."""
        parts = [
            f"checkpoints by {metric_title(value)}" if axis == "metric" else value
            for axis, value in self.setting.items()
        ]
        if len(self.datasets) == 1:
            parts.insert(0, self.datasets[0].name)
        return ", ".join(parts)


@dataclass(frozen=True, repr=False)
class ComparisonData:
    """What is known of the methods of sweeps and runs.

    Attributes:
        blocks: Comparison of the methods for each encoder.
        against: The method that all others are compared with; ``None`` for every two methods.
        chosen: Axes whose value was chosen on dev.
        published: Published results to show beside them.
        source: Reference of the published results.
        notes: What is missing, one sentence each.
        restarts: Number of seeds of which the best by dev is shown as a control; ``None`` for none.
    """

    blocks: Sequence[Block]
    against: str | None
    chosen: Sequence[str]
    published: Sequence[PublishedResult]
    source: str
    notes: Sequence[str]
    restarts: int | None = None
