"""Differentiable surrogates of the metrics that a run can be evaluated by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from auxlearn.config import Metric
from auxlearn.devices import upload
from auxlearn.metric_keys import SURROGATE, Quantity


def smooth_macro_f1(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Macro-F1 of predicted probabilities instead of decisions, so that it has a gradient.

    With probabilities :math:`p_{nc}` and one-hot labels :math:`y_{nc}`, the counts of class c are
    expectations, and :math:`F1_c = 2 \sum_n p y / (\sum_n p + \sum_n y)`. Where every probability
    is 0 or 1 it equals macro-F1 over the classes that occur in the labels. Classes absent from
    ``labels`` are left out of the mean: a batch says nothing about finding them.

    Args:
        logits: ``(rows, classes)``.
        labels: ``(rows,)``; on the CPU, so that a GPU need not be waited for.

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


def surrogate_loss(logits: Tensor, labels: Tensor, metric: Metric) -> Tensor:
    """Return what stands in for a metric: cross-entropy, or one minus the smooth macro-F1.

    Args:
        logits: ``(rows, classes)``.
        labels: ``(rows,)``, on the CPU.
        metric: What is stood in for.
    """
    if metric == "macro_f1":
        return 1 - smooth_macro_f1(logits, labels)
    return nn.functional.cross_entropy(logits, upload(labels, logits.device))


def surrogate_metric(probabilities: np.ndarray, labels: Sequence[int], metric: Metric) -> float:
    """Return :func:`surrogate_loss` on predicted probabilities, ``(rows, classes)``."""
    logits = torch.from_numpy(probabilities).clamp(min=1e-300).log()
    return float(surrogate_loss(logits, torch.tensor(labels), metric))


def surrogate_report(
    rows: Sequence[Mapping[str, Any]], metric: Metric
) -> dict[str, float | int | None] | None:
    """Say how well the surrogate followed the metric over the evaluations of a run.

    Args:
        rows: Rows of ``metrics.jsonl``.
        metric: The metric that the surrogate stands in for.

    Returns:
        ``spearman``, the rank correlation of the metric with minus the surrogate, 1 if both order
        the evaluations alike, ``None`` with fewer than three evaluations or if one of the two never
        changed; and ``evaluations``. ``None`` for a run that has no surrogate.
    """
    from scipy.stats import spearmanr

    key, surrogate = Quantity.DEV.key(metric), Quantity.DEV.key(SURROGATE)
    pairs = [(row[key], -row[surrogate]) for row in rows if surrogate in row]
    if not pairs:
        return None
    left, right = zip(*pairs, strict=True)
    defined = len(pairs) > 2 and len(set(left)) > 1 and len(set(right)) > 1
    correlation = float(spearmanr(left, right).statistic) if defined else None
    return {"spearman": correlation, "evaluations": len(pairs)}
