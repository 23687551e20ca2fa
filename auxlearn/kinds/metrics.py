"""Metrics by name, and the formulas that several kinds share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from auxlearn.core.errors import ConfigError, did_you_mean
from auxlearn.core.lazy import np
from auxlearn.core.registry import KINDS

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """A metric of predictions."""

    title: str  # as tables name it
    hub_id: str  # on the Hugging Face hub
    is_error: bool = False  # whether it is better the smaller it is
    least: float = 0.0
    most: float = 1.0
    note: str = ""  # for the model card, where the title does not say all


#: Metrics of a single label, such as ``f1:LABEL``.
OF_A_LABEL = {
    name: Metric(title, name)
    for name, title in {"f1": "F1", "precision": "precision", "recall": "recall"}.items()
}


def all_metrics() -> dict[str, Metric]:
    """Return the metrics of all kinds by name."""
    kinds = [KINDS.get(name) for name in KINDS.names()]
    return {
        name: metric for kind in kinds for name, metric in (kind.metrics | kind.compared).items()
    }


def metric_of(name: str) -> Metric:
    """Return the metric of a name; whether there is the label of ``f1:LABEL``, predictions say."""
    which, _, label = name.partition(":")
    if label and which in OF_A_LABEL:
        return Metric(f"{OF_A_LABEL[which].title} of {label}", which)
    known = all_metrics()
    if name not in known:
        hint = did_you_mean(name, [*known, *(f"{prefix}:LABEL" for prefix in OF_A_LABEL)])
        raise ConfigError(f"there is no metric '{name}': {hint}")
    return known[name]


def metric_title(name: str) -> str:
    return metric_of(name).title


def sign(name: str) -> int:
    """Return 1 for a metric that is better the larger it is, and -1 for an error."""
    return -1 if metric_of(name).is_error else 1


def difference(name: str, value: float) -> str:
    """Return a difference of a metric as it is shown: in points, of an error as it is."""
    return f"{value:+.4g}" if metric_of(name).is_error else f"{100 * value:+.1f} points"


def f1_of(right: float, guessed: float, there: float) -> dict[str, float]:
    """Return precision, recall, F1 and support by numbers of right, predicted and true items."""
    return {
        "precision": right / max(1, guessed),
        "recall": right / max(1, there),
        "f1": 2 * right / max(1, guessed + there),
        "support": there,
    }


def ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return a quotient, 0 where it is not defined."""
    above = np.asarray(above, dtype=float)
    return np.divide(above, below, out=np.zeros_like(above), where=np.asarray(below) > 0)


def constant_loss(classes: Tensor, metric: str) -> float:
    """Return the loss of the best constant prediction of classes, ``(choices,)``: for accuracy it
    is certain of the most frequent one, and the cross-entropy is the entropy of their shares.
    """
    shares = classes.unique(return_counts=True)[1].double() / len(classes)
    if metric == "accuracy":
        return 1 - float(shares.max())
    if metric == "cross_entropy":
        return -float((shares * shares.log()).sum())
    return 1.0


def of_counts(
    metric: str, right: np.ndarray, guessed: np.ndarray, there: np.ndarray, names: Sequence[str]
) -> np.ndarray:
    """Return ``macro_f1``, ``f1:NAME``, ``precision:NAME`` or ``recall:NAME``, else micro-F1, from
    numbers of right, predicted and true items, ``(..., names)``; 0 where it is not defined.
    """
    which, colon, name = metric.partition(":")
    if colon:
        right, guessed, there = (
            counts[..., names.index(name)] for counts in (right, guessed, there)
        )
    elif metric != "macro_f1":
        right, guessed, there = (counts.sum(-1) for counts in (right, guessed, there))
    parts = {"precision": (right, guessed), "recall": (right, there)}
    score = ratio(*parts.get(which, (2 * right, guessed + there)))
    return score.mean(-1) if metric == "macro_f1" else score


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def smooth_f1(chosen: Tensor, truth: Tensor, average: str) -> Tensor:
    r"""Return the F1 of expected counts: :math:`2 \sum p y / (\sum p + \sum y)`.

    p is the probability of each label to be chosen and y its truth, ``(examples, labels)`` each; if
    every probability is 0 or 1, ``micro`` equals the F1 of all choices together, and ``macro`` the
    mean over the labels that occur.
    """
    overlap, both = 2 * (chosen * truth).sum(0), chosen.sum(0) + truth.sum(0)
    if average == "micro":
        return overlap.sum() / both.sum()
    present = truth.sum(0) > 0  # a GPU is not waited for: absent labels add 0 and do not count
    return (overlap / both.where(present, 1)).sum() / present.sum().clamp(min=1)
