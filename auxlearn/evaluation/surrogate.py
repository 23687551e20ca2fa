"""Differentiable surrogates of the metrics that checkpoints are selected by.

Decisions become probabilities: accuracy becomes the mean probability of the true class, and
macro-F1 that of expected counts. The cross-entropy is no such surrogate. Once a model is
overconfident, a few wrong examples dominate it, and whatever lowers confidence, useful or not,
lowers it as well: by the cross-entropy on validation examples, masked language modelling seems to
help a model that has overfitted, while its accuracy stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from auxlearn.config import Metric
from auxlearn.devices import upload
from auxlearn.metric_keys import SURROGATE, Quantity

#: What a validation loss stands for: a metric, or nothing but itself.
Surrogate = Metric | Literal["cross_entropy"]


def smooth_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the expected accuracy of classes drawn from the predicted probabilities.

    It is the mean of :math:`p_{ny}` over examples n with the class y. If every probability is 0 or
    1, it equals the accuracy. Its gradient by the logits is bounded by 1/4 for each example, and
    vanishes for an example that is certain, rightly or wrongly.

    Args:
        logits: ``(examples, classes)``.
        labels: ``(examples,)``; on the CPU, which avoids a synchronisation with the GPU.

    Returns:
        A scalar in [0, 1].
    """
    truth = upload(labels, logits.device)
    return logits.softmax(-1).gather(-1, truth[:, None]).mean()


def smooth_macro_f1(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the macro-F1 of predicted probabilities instead of decisions, which has a gradient.

    With the probability :math:`p_{nc}` of class c for example n and the one-hot label
    :math:`y_{nc}`, counts become expectations, and
    :math:`F1_c = 2 \sum_n p_{nc} y_{nc} / (\sum_n p_{nc} + \sum_n y_{nc})`. If every probability
    is 0 or 1, the mean equals macro-F1 over the classes that occur in the labels. Classes absent
    from ``labels`` are left out of the mean, as a batch has no information on their recall.

    Args:
        logits: ``(examples, classes)``.
        labels: ``(examples,)``; on the CPU, which avoids a synchronisation with the GPU.

    Returns:
        A scalar in [0, 1].
    """
    probabilities = logits.softmax(-1)
    present = upload(labels.unique(), logits.device)
    truth = nn.functional.one_hot(upload(labels, logits.device), logits.shape[-1])
    truth = truth.to(probabilities)
    overlap = 2 * (probabilities * truth).sum(0)
    f1 = overlap / (probabilities.sum(0) + truth.sum(0))
    return f1[present].mean()


def surrogate_loss(logits: Tensor, labels: Tensor, surrogate: Surrogate) -> Tensor:
    """Return the surrogate of a metric as a loss: one minus smooth accuracy or smooth macro-F1.

    Args:
        logits: ``(examples, classes)``.
        labels: ``(examples,)``, on the CPU.
        surrogate: The metric, or ``cross_entropy`` for the cross-entropy.

    Returns:
        A scalar: nats for the cross-entropy, otherwise in [0, 1].
    """
    if surrogate == "macro_f1":
        return 1 - smooth_macro_f1(logits, labels)
    if surrogate == "accuracy":
        return 1 - smooth_accuracy(logits, labels)
    return nn.functional.cross_entropy(logits, upload(labels, logits.device))


def surrogate_metric(
    probabilities: np.ndarray, labels: Sequence[int] | np.ndarray, surrogate: Surrogate
) -> float:
    """Return :func:`surrogate_loss` of predicted probabilities, ``(examples, classes)``."""
    logits = torch.from_numpy(probabilities).clamp(min=1e-300).log()
    return float(surrogate_loss(logits, torch.as_tensor(labels), surrogate))


def surrogate_from_sums(
    of_truth: np.ndarray,
    mass: np.ndarray,
    labels: Sequence[int] | np.ndarray,
    surrogate: Surrogate,
) -> float:
    """Return :func:`surrogate_metric` without the whole matrix of probabilities.

    Args:
        of_truth: Probability of the true class, ``(examples,)``.
        mass: Sum of the probabilities of each class, ``(classes,)``.
        labels: True classes, ``(examples,)``.
        surrogate: As of :func:`surrogate_loss`.
    """
    if surrogate == "cross_entropy":
        return float(-np.log(np.clip(of_truth, 1e-300, None)).mean())
    if surrogate == "accuracy":
        return float(1 - of_truth.mean())
    truth = np.bincount(labels, minlength=len(mass))
    overlap = 2 * np.bincount(labels, weights=of_truth, minlength=len(mass))
    present = truth > 0
    return float(1 - (overlap[present] / (mass + truth)[present]).mean())


def surrogate_report(
    entries: Sequence[Mapping[str, Any]], metric: Metric
) -> dict[str, float | int | None] | None:
    """Return how well the surrogate agreed with the metric over the evaluations of a run.

    Args:
        entries: Entries of ``metrics.jsonl``.
        metric: The metric of the surrogate.

    Returns:
        ``spearman``, the rank correlation of the metric with the negative surrogate: 1 if both
        order the evaluations alike, ``None`` with fewer than three evaluations or if one of the two
        never changed; and ``evaluations``, their number. ``None`` for a run without a surrogate.
    """
    from scipy.stats import spearmanr

    key, surrogate = Quantity.DEV.key(metric), Quantity.DEV.key(SURROGATE)
    pairs = [(entry[key], -entry[surrogate]) for entry in entries if surrogate in entry]
    if not pairs:
        return None
    left, right = zip(*pairs, strict=True)
    defined = len(pairs) > 2 and len(set(left)) > 1 and len(set(right)) > 1
    correlation = float(spearmanr(left, right).statistic) if defined else None
    return {"spearman": correlation, "evaluations": len(pairs)}
