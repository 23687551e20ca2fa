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
from auxlearn.core import metric_names
from auxlearn.core.errors import ConfigError, SweepError, did_you_mean
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION, kind_of
from auxlearn.results.predictions import other_predictions, read_labels, read_stored

#: Title of each metric that is not of a single class.
TITLES: dict[str, str] = metric_names.TITLES | {"weighted_f1": "weighted F1", "mcc": "MCC"}
#: Metrics of single classes.
OF_CLASSES = (*metric_names.METRICS["classification"], "weighted_f1", "mcc")
#: Metrics of one class: ``f1:LABEL``.
CLASS_METRICS: dict[str, str] = {"f1": "F1", "precision": "precision", "recall": "recall"}
#: Numbers that are held at a time.
_BLOCK = 2**21


@dataclass(frozen=True)
class Predictions:
    """Predictions of several runs for the same examples."""

    labels: tuple[str, ...]
    truth: np.ndarray  # true classes, (examples,)
    predicted: np.ndarray  # predicted classes, (runs, examples)

    @property
    def examples(self) -> int:
        """Number of examples."""
        return len(self.truth)

    def knows(self, metric: str) -> bool:
        """Return whether a metric is one of these labels."""
        label = metric.partition(":")[2]
        return label in self.labels if label else metric in OF_CLASSES

    def has(self, label: str) -> bool:
        """Return whether a class has examples."""
        return label in self.labels and bool((self.truth == self.labels.index(label)).any())

    def without_each(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return each run's score, and its scores without each example, ``(runs, examples)``."""
        runs, classes = len(self.predicted), len(self.labels)
        true = np.bincount(self.truth, minlength=classes).astype(float)
        scores = np.empty(runs)
        without = np.empty((runs, self.examples))
        for number, predicted in enumerate(self.predicted):
            said = np.bincount(predicted, minlength=classes).astype(float)
            hit = predicted == self.truth
            right = np.bincount(self.truth[hit], minlength=classes).astype(float)
            scores[number] = metric_values(metric, self.labels, true, said, right)
            cell = self.truth.astype(np.int64) * classes + predicted
            cells, cell = _distinct(cell, classes**2)
            left = np.concatenate(
                [
                    _without(metric, self.labels, (true, said, right), *np.divmod(part, classes))
                    for part in np.array_split(cells, 1 + len(cells) * classes // _BLOCK)
                ]
            )
            without[number] = left[cell]
        return scores, without


@dataclass(frozen=True)
class LabelPredictions:
    """Predictions of several runs for the same examples, whose labels are no single classes."""

    kind: Kind
    names: tuple[str, ...]  # names of the outputs
    truth: list[Any]
    sums: list[np.ndarray]  # what the kind sums up of each run, (examples, numbers)

    @property
    def examples(self) -> int:
        """Number of examples."""
        return len(self.truth)

    def knows(self, metric: str) -> bool:
        """Return whether a metric is one of these labels."""
        label = metric.partition(":")[2]
        if label:
            return label in self.kind.counted(self.names)
        try:
            self.kind.check_metric(metric, self.names)
        except ConfigError:
            return False
        return True

    def has(self, label: str) -> bool:
        """Return whether a label has examples."""
        counted = self.kind.counted(self.names)
        there = self.sums[0][:, 2 * len(counted) : 3 * len(counted)].sum(0)
        return label in counted and bool(there[counted.index(label)] > 0)

    def without_each(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return each run's score, and its scores without each example, ``(runs, examples)``."""
        found = np.array([self.kind.jackknife(metric, one, self.names) for one in self.sums])
        return found[:, 0], found[:, 1:]


def metric_title(metric: str) -> str:
    """Return a metric as tables name it.

    >>> metric_title("macro_f1"), metric_title("f1:entailment")
    ('macro-F1', 'F1 of entailment')
    """
    kind, colon, label = metric.partition(":")
    return f"{CLASS_METRICS[kind]} of {label}" if colon else TITLES[metric]


def check_metric(metric: str) -> str:
    """Return a metric that exists; a label is checked when there are predictions."""
    kind, colon, label = metric.partition(":")
    if metric in TITLES or (colon and label and kind in CLASS_METRICS):
        return metric
    known = [*TITLES, *(f"{name}:LABEL" for name in CLASS_METRICS)]
    hint = did_you_mean(metric, known)
    raise ConfigError(f"there is no metric '{metric}': {hint}")


def metric_values(
    metric: str,
    labels: Sequence[str],
    true: np.ndarray,
    predicted: np.ndarray,
    right: np.ndarray,
) -> np.ndarray:
    """Return a metric for counts of any leading shape.

    Macro-F1 is the mean over the classes that occur in labels or predictions; weighted F1 weights
    classes by their examples; MCC is the correlation coefficient of Gorodkin (2004,
    https://doi.org/10.1016/j.compbiolchem.2004.09.006), 0 where it is not defined. Precision,
    recall and F1 of a class are 0 where they are not defined. All are as in scikit-learn.
    """
    examples = true.sum(-1)
    kind, colon, label = metric.partition(":")
    if colon:
        number = labels.index(label)
        hits, of_class, said = right[..., number], true[..., number], predicted[..., number]
        parts = {
            "f1": (2 * hits, of_class + said),
            "precision": (hits, said),
            "recall": (hits, of_class),
        }
        return _ratio(*parts[kind])
    if metric == "accuracy":
        return _ratio(right.sum(-1), examples)
    if metric == "mcc":
        covariance = right.sum(-1) * examples - (true * predicted).sum(-1)
        spread = (examples**2 - (true**2).sum(-1)) * (examples**2 - (predicted**2).sum(-1))
        return _ratio(covariance, np.sqrt(spread))
    either = true + predicted
    f1 = _ratio(2 * right, either)
    if metric == "weighted_f1":
        return _ratio((true * f1).sum(-1), examples)
    return _ratio(f1.sum(-1), (either > 0).sum(-1))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    above = np.asarray(above, dtype=float)
    return np.divide(above, below, out=np.zeros_like(above), where=np.asarray(below) > 0)


def scores_and_covariance(
    found: Predictions | LabelPredictions, metric: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of each run, and the jackknife's covariance of the scores over samples of
    examples (Efron and Stein, 1981, https://doi.org/10.1214/aos/1176345462); exact for means.
    """
    scores, without = found.without_each(metric)
    if found.examples < 2:
        return scores, np.zeros((len(scores), len(scores)))
    without -= without.mean(1, keepdims=True)
    return scores, without @ without.T * ((found.examples - 1) / found.examples)


def _distinct(numbers: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct numbers below a limit, and the place of each number among them."""
    if limit > _BLOCK:
        return np.unique(numbers, return_inverse=True)
    occurs = np.bincount(numbers, minlength=limit) > 0
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[numbers]


def _without(
    metric: str,
    labels: Sequence[str],
    counts: tuple[np.ndarray, np.ndarray, np.ndarray],
    truth: np.ndarray,
    predicted: np.ndarray,
) -> np.ndarray:
    """Return the metric without an example of each pair of a true and a predicted class."""
    rows = np.arange(len(truth))
    true, said, right = (np.tile(count, (len(rows), 1)) for count in counts)
    true[rows, truth] -= 1
    said[rows, predicted] -= 1
    right[rows, truth] -= truth == predicted
    return metric_values(metric, labels, true, said, right)


def read_predictions(
    methods: Sequence[Method], name: str
) -> tuple[Predictions | LabelPredictions, dict[tuple[str, int], int]]:
    """Read the predictions of all runs of a setting for an evaluation set."""
    runs = [
        (method, seed, path)
        for method in methods
        for seed, path in method.runs.items()
        if name in method.results[seed].evaluations
    ]
    places = {(method.name, seed): place for place, (method, seed, _) in enumerate(runs)}
    first = runs[0][0].results[runs[0][1]]
    kind, names = kind_of(first.config.get("kind")), tuple(first.dataset.label_names)
    metric = next(one for one in kind.metrics if one in first.evaluations[name].all.metrics)
    numbers: dict[str, int] = {}
    truth: Any = None
    read: list[np.ndarray] = []
    own: Any
    for method, seed, path in runs:
        recorded = method.results[seed].evaluations[name].all
        if kind is CLASSIFICATION:
            own, found = read_labels(path, name, numbers)
            score = float((own == found).mean())
        else:
            stored = read_stored(path, name, kind, names)
            own = stored.truth
            found = kind.sums(own, stored.predicted, stored.values, names)
            score = float(kind.of_sums(metric, found.sum(0), names))
        if len(own) != recorded.examples or abs(score - recorded.metrics[metric]) > 1e-9:
            raise other_predictions(path, name)
        truth = own if truth is None else truth
        same = kind_of(method.results[seed].config.get("kind")) is kind
        if not same or len(own) != len(truth) or not np.all(own == truth):
            raise SweepError(
                f"'{method.name}' (seed {seed}) and '{runs[0][0].name}' (seed {runs[0][1]}) were "
                f"evaluated on different examples of '{name}': the data has changed in between, "
                "run them again"
            )
        read.append(found)
    if kind is not CLASSIFICATION:
        return LabelPredictions(kind, names, truth, read), places
    # Classes in alphabetical order, so that the order of the runs changes no digit.
    rank = np.argsort(np.argsort(list(numbers)))
    return Predictions(tuple(sorted(numbers)), rank[truth], rank[np.stack(read)]), places
