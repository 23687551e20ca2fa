r"""Which of two classifiers is better, by their predictions for the same examples.

The accuracy only counts the examples on which exactly one of them is right. The log loss uses every
example, but a model that has overfitted is too confident, and whatever makes it less so looks like
progress. So both are calibrated first: with :math:`p_i` the class probabilities of example i, it is

.. math:: s_i = -\log \mathrm{softmax}(\beta \log p_i)_{y_i},

where :math:`\beta` minimises the mean of s (temperature scaling, Guo et al. 2017, "On Calibration
of Modern Neural Networks", https://arxiv.org/abs/1706.04599). It is fitted on one half of the
examples and used on the other, and the reverse, so that no example is scored with a :math:`\beta`
that has seen its label.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar

from auxlearn.kinds.base import LEAST
from auxlearn.kinds.metrics import mean_over
from auxlearn.results.predictions import read_stored
from auxlearn.results.record import RunResults

RANGE = (-6.0, 4.0)  # range of the logarithm of beta


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences, positive where the second model is better."""

    mean: float
    error: float


def log_losses(probabilities: np.ndarray, labels: np.ndarray, beta: float) -> np.ndarray:
    """Return the log loss of each example at an inverse temperature, in nats, ``(examples,)``."""
    logits = beta * np.log(np.maximum(probabilities, LEAST))
    top = logits.max(1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(1))
    return np.asarray(total - logits[np.arange(len(labels)), labels])


def fitted_beta(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the inverse temperature with the smallest mean log loss, in which it is convex."""

    def mean(logarithm: float) -> float:
        return float(log_losses(probabilities, labels, float(np.exp(logarithm))).mean())

    minimum = minimize_scalar(mean, bounds=RANGE, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(minimum.x))


def calibrated_log_losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the log losses after cross-fitted temperature scaling; classes are halved evenly."""
    order = np.argsort(labels, kind="stable")
    half = np.empty(len(labels), dtype=int)
    half[order] = np.arange(len(labels)) % 2
    losses = np.empty(len(labels))
    for part in (0, 1):
        fit, use = half != part, half == part
        beta = fitted_beta(probabilities[fit], labels[fit]) if fit.any() else 1.0
        losses[use] = log_losses(probabilities[use], labels[use], beta)
    return losses


def example_weights(labels: np.ndarray, balanced: bool) -> np.ndarray:
    """Return weights of examples with mean 1; with ``balanced``, every class has the same sum."""
    if not balanced:
        return np.ones(len(labels))
    counts = np.bincount(labels)
    return np.asarray(len(labels) / (np.count_nonzero(counts) * counts[labels]))


def paired_difference(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> Difference:
    """Return the weighted mean of ``first - second`` with its error; weights have mean 1."""
    values = weights * (first - second)
    count = len(values)
    error = values.std(ddof=1) / np.sqrt(count) if count > 1 else np.inf
    return Difference(float(values.mean()), float(error))


@dataclass(frozen=True)
class ExampleLosses:
    """Losses of a run on the dev examples whose label the model knows."""

    labels: np.ndarray
    losses: np.ndarray  # calibrated log losses
    wrong: np.ndarray  # 1 for a wrong prediction

    @classmethod
    def of(cls, path: Path, results: RunResults) -> ExampleLosses:
        """Read them: means over the labels, or words, of each example; of numbers, the errors."""
        kind, names = results.kind, results.names_of("dev")
        classes = len(results.dataset.label_names)
        stored = read_stored(path, "dev", kind, names)
        outputs = [kind.output(value) for value in stored.values]
        if kind.offers("unknown_labels count"):
            labels = np.array(stored.truth)
            known = labels < classes
            wrong = (labels != np.array(stored.predicted))[known].astype(float)
            probabilities = np.array(outputs)[known, :classes]
            return cls(labels[known], calibrated_log_losses(probabilities, labels[known]), wrong)
        decisions, none = kind.decisions(stored.truth, outputs), np.zeros(len(outputs), dtype=int)
        if decisions is None:
            errors = np.array(stored.truth) - np.array(stored.predicted)
            return cls(none, errors**2, np.abs(errors))
        probabilities, labels, owners = decisions
        losses = mean_over(owners, calibrated_log_losses(probabilities, labels), len(none))
        wrong = mean_over(owners, (probabilities.argmax(1) != labels).astype(float), len(none))
        return cls(none, losses, wrong)

    def minus(self, other: ExampleLosses, balanced: bool) -> tuple[Difference, Difference]:
        """Return by how much the losses and the wrong predictions of the other run are fewer."""
        weights = example_weights(self.labels, balanced)
        return (
            paired_difference(self.losses, other.losses, weights),
            paired_difference(self.wrong, other.wrong, weights),
        )
