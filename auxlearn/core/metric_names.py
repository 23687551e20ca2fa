"""Keys of ``metrics.jsonl``: a quantity, a slash, and the objective or metric it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

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
        """Return the values that a row has of this quantity, by objective or metric."""
        prefix = self.key("")
        return {key.removeprefix(prefix): row[key] for key in row if key.startswith(prefix)}


def factor_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the latest weights of factors in ``metrics.jsonl``, by task, axis and value."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        for key, weight in Quantity.FACTOR.read(row).items():
            task, axis, value = key.split("/", 2)
            table.setdefault(task, {}).setdefault(axis, {})[value] = weight
    return table
