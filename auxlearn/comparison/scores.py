"""Metrics of predictions, and how much they vary with the sample of evaluation examples.

Every metric is a function of three numbers for each class: examples of the class, predictions of
the class, and predictions of it that are right. So one function gives the score of a run, and the
scores without one example, of which there are as many as pairs of a true and a predicted class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auxlearn.comparison.runs import Method
from auxlearn.core.errors import ConfigError, SweepError, did_you_mean
from auxlearn.results.plots import METRIC_TITLES
from auxlearn.results.predictions import other_predictions, read_labels

#: Title of each metric that is not of a single class.
TITLES: dict[str, str] = {
    **{str(name): title for name, title in METRIC_TITLES.items()},
    "weighted_f1": "weighted F1",
    "mcc": "MCC",
}
#: Metrics of one class: ``f1:LABEL``.
CLASS_METRICS: dict[str, str] = {"f1": "F1", "precision": "precision", "recall": "recall"}
#: Numbers that are held at a time.
_BLOCK = 2**21


@dataclass(frozen=True)
class Predictions:
    """Predictions of several runs for the same examples.

    Attributes:
        labels: Names of the classes.
        truth: True classes, ``(examples,)``.
        predicted: Predicted classes, ``(runs, examples)``.
    """

    labels: tuple[str, ...]
    truth: np.ndarray
    predicted: np.ndarray

    @property
    def examples(self) -> int:
        """Number of examples."""
        return len(self.truth)

    def has(self, label: str) -> bool:
        """Return whether a class has examples."""
        return label in self.labels and bool((self.truth == self.labels.index(label)).any())


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


def scores_and_covariance(found: Predictions, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of each run, and the covariance of the scores over samples of examples.

    The covariance is the jackknife's (Efron and Stein, 1981,
    https://doi.org/10.1214/aos/1176345462). For accuracy it is exactly the covariance of the mean
    of independent examples.
    """
    runs, examples, classes = len(found.predicted), found.examples, len(found.labels)
    true = np.bincount(found.truth, minlength=classes).astype(float)
    scores = np.empty(runs)
    without = np.empty((runs, examples))
    for number, predicted in enumerate(found.predicted):
        said = np.bincount(predicted, minlength=classes).astype(float)
        hit = predicted == found.truth
        right = np.bincount(found.truth[hit], minlength=classes).astype(float)
        scores[number] = metric_values(metric, found.labels, true, said, right)
        cell = found.truth.astype(np.int64) * classes + predicted
        cells, cell = _distinct(cell, classes**2)
        left = np.concatenate(
            [
                _without(metric, found.labels, (true, said, right), *np.divmod(part, classes))
                for part in np.array_split(cells, 1 + len(cells) * classes // _BLOCK)
            ]
        )
        without[number] = left[cell]
    if examples < 2:
        return scores, np.zeros((runs, runs))
    without -= without.mean(1, keepdims=True)
    return scores, without @ without.T * ((examples - 1) / examples)


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
) -> tuple[Predictions, dict[tuple[str, int], int]]:
    """Read the predictions of all runs of a setting for an evaluation set."""
    numbers: dict[str, int] = {}
    runs: dict[tuple[str, int], int] = {}
    rows: list[np.ndarray] = []
    truth, origin = np.empty(0, dtype=np.int32), ""
    for method in methods:
        for seed, path in method.runs.items():
            if name not in method.results[seed].evaluations:
                continue
            found, predicted = read_labels(path, name, numbers)
            recorded = method.results[seed].evaluations[name].all
            right = float((found == predicted).mean())
            if len(found) != recorded.examples or abs(right - recorded.accuracy) > 1e-9:
                raise other_predictions(path, name)
            if not rows:
                truth, origin = found, f"'{method.name}' (seed {seed})"
            elif not np.array_equal(found, truth):
                raise SweepError(
                    f"'{method.name}' (seed {seed}) and {origin} were evaluated on different "
                    f"examples of '{name}': the data has changed in between, run them again"
                )
            runs[method.name, seed] = len(rows)
            rows.append(predicted)
    # Classes in alphabetical order, so that the order of the runs changes no digit.
    rank = np.argsort(np.argsort(list(numbers)))
    labels = tuple(sorted(numbers))
    return Predictions(labels, rank[truth], rank[np.stack(rows)]), runs
