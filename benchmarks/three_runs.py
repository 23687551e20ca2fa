r"""``meta`` as it was when ``two_ends.md`` was registered: the rule and what it decides by.

It trains the single task, each auxiliary task with a share of 0.3, then with 0.5 if the first was
better, else with 0.1, and at last all tasks that were better together. A run can be taken if its
calibrated log loss on dev is better than that of the single task by half a standard error.

The accuracy only counts the examples on which exactly one of two classifiers is right. The log loss
uses every example, but a model that has overfitted is too confident, and whatever makes it less so
looks like progress. So both are calibrated first: with :math:`p_i` the class probabilities of
example i, it is

.. math:: s_i = -\log \mathrm{softmax}(\beta \log p_i)_{y_i},

where :math:`\beta` minimises the mean of s (temperature scaling, Guo et al. 2017, "On Calibration
of Modern Neural Networks", https://arxiv.org/abs/1706.04599). It is fitted on one half of the
examples and used on the other, and the reverse, so that no example is scored with a :math:`\beta`
that has seen its label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from auxlearn.kinds.base import LEAST
from auxlearn.training.whole_runs.paired import Difference

RANGE = (-6.0, 4.0)  # range of the logarithm of beta

#: Weight of each objective in a run, the primary task first.
Weights = tuple[float, ...]

#: Smallest difference of the accuracy, in standard errors, with which a run can be taken.
LEAST_METRIC = -1.0


@dataclass(frozen=True)
class Gain:
    """How much better than the single task a run is on dev."""

    loss: Difference  # in calibrated log loss, nats per example
    correct: Difference  # in the share of correct predictions

    def suffices(self, evidence: float) -> bool:
        """Whether the run is to be taken, by so many standard errors of the log loss."""
        correct = self.correct.mean >= LEAST_METRIC * self.correct.error
        return self.loss.mean > evidence * self.loss.error and correct


def alone(task: int, share: float, tasks: int) -> Weights:
    """Return the weights of a run with one of several auxiliary tasks."""
    return (1 - share, *(share if number == task else 0.0 for number in range(tasks)))


def together(runs: Sequence[Weights]) -> Weights:
    """Return weights in which each task keeps its ratio to the primary task."""
    ratios = [
        sum(weights[place] / weights[0] for weights in runs) for place in range(1, len(runs[0]))
    ]
    total = 1 + sum(ratios)
    return (1 / total, *(ratio / total for ratio in ratios))


def best_of(gains: Mapping[Any, Gain], evidence: float) -> Any:
    """Return what is to be taken; ``None``: the single task."""
    sufficient = {point: gain for point, gain in gains.items() if gain.suffices(evidence)}
    return max(sufficient, key=lambda point: sufficient[point].loss.mean) if sufficient else None


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
