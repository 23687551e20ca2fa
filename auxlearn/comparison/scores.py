"""Metrics of predictions, and how much they vary with the sample of evaluation examples.

Every metric is a function of sums over examples, so that one function gives the score of a run and
the scores without each example. Of single classes they are three numbers for each class: examples
of the class, predictions of it, and right ones; there are as many different scores without an
example as pairs of a true and a predicted class. What is summed for other labels, their kind says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from auxlearn.comparison.methods import Method
from auxlearn.core.errors import ConfigError, SweepError
from auxlearn.kinds.base import Kind
from auxlearn.kinds.predictions import Labels
from auxlearn.results.predictions import read_labels, read_stored


@dataclass(frozen=True)
class Predictions:
    """Predictions of several runs for the same examples."""

    kind: Kind
    names: tuple[str, ...]  # names of the outputs; of single classes in alphabetical order
    truth: Labels
    sums: Sequence[np.ndarray]  # what the kind sums up of each run, (examples, numbers)

    @property
    def examples(self) -> int:
        return len(self.truth)

    def knows(self, metric: str) -> bool:
        label = metric.partition(":")[2]
        if label or metric in self.kind.compared:
            return not label or label in self.kind.counted(self.names)
        try:
            self.kind.check_metric(metric, self.names)
        except ConfigError:
            return False
        return True

    def has(self, label: str) -> bool:
        of_class = self.kind.per_class(self.truth, self.truth, self.names).get(label)
        return of_class is not None and of_class["support"] > 0


def scores_and_covariance(predictions: Predictions, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of each run, and the jackknife's covariance over samples of examples (Efron
    and Stein, 1981, https://doi.org/10.1214/aos/1176345462); exact for means.
    """
    kind, names, examples = predictions.kind, predictions.names, predictions.examples
    values = np.array([kind.jackknife(metric, sums, names) for sums in predictions.sums])
    scores, without = values[:, 0], values[:, 1:]  # without each example, (runs, examples)
    if examples < 2:
        return scores, np.zeros((len(scores), len(scores)))
    without -= without.mean(1, keepdims=True)
    return scores, without @ without.T * ((examples - 1) / examples)


def read_predictions(
    methods: Sequence[Method], name: str
) -> tuple[Predictions, dict[tuple[str, int], int]]:
    runs = [
        (method, seed, path)
        for method in methods
        for seed, path in method.runs.items()
        if name in method.results[seed].evaluations
    ]
    places = {(method.name, seed): place for place, (method, seed, _) in enumerate(runs)}
    first = runs[0][0].results[runs[0][1]]
    kind, names = first.kind, tuple(first.dataset.label_names)
    numbers: dict[str, int] = {}
    truth: Any = None
    sums: list[np.ndarray] = []
    for method, seed, path in runs:
        if (other := method.results[seed].kind) is not kind:
            raise SweepError(
                f"labels of '{method.name}' are of the kind {other.name}, those of "
                f"'{runs[0][0].name}' of the kind {kind.name}: compare the runs of one kind"
            )
        labels: Labels
        predicted: Labels
        values: Sequence[np.ndarray] = ()
        if kind.sums_of_labels:  # the probabilities are not read
            labels, predicted = read_labels(path, name, numbers)
        else:
            stored = read_stored(path, name, kind, names)
            labels, predicted, values = stored.truth, stored.predicted, stored.values
        truth = labels if truth is None else truth
        if len(labels) != len(truth) or not np.all(labels == truth):
            raise SweepError(
                f"'{method.name}' (seed {seed}) and '{runs[0][0].name}' (seed {runs[0][1]}) were "
                f"evaluated on different examples of '{name}': the data has changed in between, "
                "run them again"
            )
        sums.append(kind.sums(labels, predicted, values, names))
    if kind.sums_of_labels:
        # Classes in alphabetical order, so that the order of the runs changes no digit.
        rank = np.argsort(np.argsort(list(numbers)))
        names, truth, sums = tuple(sorted(numbers)), rank[truth], [rank[cells] for cells in sums]
    return Predictions(kind, names, truth, sums), places
