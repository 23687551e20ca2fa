"""Keys of ``metrics.jsonl``: a quantity, a slash, and the objective or metric it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

#: Title of each metric by kind of labels; the first one is the default.
METRICS: dict[str, dict[str, str]] = {
    "classification": {"accuracy": "accuracy", "macro_f1": "macro-F1"},
    "multi_label": {
        "micro_f1": "micro-F1",
        "macro_f1": "macro-F1",
        "accuracy": "accuracy",
        "lrap": "LRAP",
    },
    "regression": {"pearson": "Pearson", "spearman": "Spearman", "mae": "MAE"},
    "token_classification": {"span_f1": "span F1", "accuracy": "accuracy"},
    "dependency": {"las": "LAS", "uas": "UAS"},
}

#: Title of each metric.
TITLES = {metric: title for titles in METRICS.values() for metric, title in titles.items()}

ERRORS = frozenset({"mae"})  # metrics that are better the smaller they are

#: Least and greatest value of the metrics that are not from 0 to 1.
RANGES = {"pearson": (-1.0, 1.0), "spearman": (-1.0, 1.0), "mae": (0.0, float("inf"))}


def sign(metric: str) -> int:
    """Return 1 for a metric that is better the larger it is, and -1 for an error."""
    return -1 if metric in ERRORS else 1


def difference(metric: str, value: float) -> str:
    """Return a difference of a metric as it is shown: in points, of an error as it is."""
    return f"{value:+.4g}" if metric in ERRORS else f"{100 * value:+.1f} points"


#: Name of the validation objective, whose loss and gradient norm are logged beside the others.
VALIDATION = "validation"
SURROGATE = "surrogate"  # name of the differentiable surrogate among the metrics on dev


class Quantity(StrEnum):
    """What a logged number measures: the first part of its key."""

    LOSS = "loss"  # mean of an objective since the previous row, in its unit
    WEIGHT = "weight"  # of an objective
    CANDIDATE = "candidate"  # weight that is being learned for an objective, applied or not yet
    FACTOR = "factor"  # TASK/AXIS/VALUE: weight of the task's members that have this value together
    DEV = "dev"  # metric on dev: accuracy, macro_f1, loss, surrogate ...
    AUX = "aux"  # TASK/METRIC: metric of an auxiliary task on dev examples of its own
    NORM = "norm"  # L2 norm of an objective's gradient, as the weighting computes it
    COSINE = "cosine"  # with the validation gradient, as the weighting computes it
    SCALE = "scale"  # factor on an objective's gradient apart from its weight
    SLOPE = "slope"  # inner product of the gradients of its and the primary log loss
    # Under every weighting, means over the measured steps, see auxlearn.training.gradient_log;
    # A/B are two objectives, of which one may be validation.
    GRADIENT_NORM = "gradient_norm"  # L2 norm over the shared parameters
    GRADIENT_COSINE = "gradient_cosine"  # A/B: cosine over the shared parameters
    CONFLICT = "conflict"  # A/B: share of the measured steps in which that cosine is negative

    def key(self, name: str) -> str:
        """Return the key of this quantity for an objective or a metric."""
        return f"{self.value}/{name}"

    def row(self, names: Iterable[str], values: Iterable[float]) -> dict[str, float]:
        """Return the entries of a row for several objectives or metrics."""
        return {self.key(name): value for name, value in zip(names, values, strict=True)}

    def read(self, row: Mapping[str, Any]) -> dict[str, float]:
        """Return the values that a row has of this quantity, by objective or metric.

        >>> Quantity.WEIGHT.read({"step": 10, "weight/primary": 0.75, "loss/primary": 1.5})
        {'primary': 0.75}
        """
        prefix = self.key("")
        return {key.removeprefix(prefix): row[key] for key in row if key.startswith(prefix)}
