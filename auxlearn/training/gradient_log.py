r"""Norms, cosines and conflicts of the objectives' gradients, measured for the record of a run.

Two objectives are in conflict in a step if the cosine of their gradients is negative (Yu et al.
2020, "Gradient Surgery for Multi-Task Learning", https://arxiv.org/abs/2001.06782, definition 1).
The gradients are those over the parameters that the objectives share, before any weight is applied
and before the optimizer step. Measuring changes no result of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations

from torch import Tensor

from auxlearn.core.metric_names import VALIDATION, Quantity
from auxlearn.objectives.base import Objective
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.gradients import Gradient, dot

#: Steps between two measurements that cost next to nothing, because the weighting computes the
#: gradients anyway.
FREE_EVERY = 10

#: Smallest product of two norms that an inner product is divided by.
SMALLEST = 1e-30


@dataclass(frozen=True)
class GradientLog:
    """When gradients are measured, and of which ``validation`` objective as well."""

    every: int = FREE_EVERY  # optimizer steps from one measurement to the next
    validation: ValidationObjective | None = None


def compare_gradients(names: Sequence[str], gradients: Sequence[Gradient]) -> dict[str, Tensor]:
    """Return norms, cosines and conflicts of gradients."""
    norms = {
        name: dot(gradient, gradient).sqrt()
        for name, gradient in zip(names, gradients, strict=True)
    }
    measured = {Quantity.GRADIENT_NORM.key(name): norm for name, norm in norms.items()}
    for (first, left), (second, right) in combinations(zip(names, gradients, strict=True), 2):
        size = (norms[first] * norms[second]).clamp(min=SMALLEST)
        cosine = dot(left, right).to(size.device) / size
        measured[Quantity.GRADIENT_COSINE.key(f"{first}/{second}")] = cosine
        if VALIDATION not in (first, second):
            measured[Quantity.CONFLICT.key(f"{first}/{second}")] = (cosine < 0).double()
    return measured


def copy_gradient(gradient: Gradient) -> Gradient:
    return [None if grad is None else grad.clone() for grad in gradient]


@contextmanager
def keeping_state(objectives: Sequence[Objective]) -> Iterator[None]:
    """Restore what objectives have learned by the end of the block."""
    states = [
        (objective, {key: value.detach().cpu().clone() for key, value in state.items()})
        for objective in objectives
        if (state := objective.state_dict())
    ]
    try:
        yield
    finally:
        for objective, state in states:
            objective.load_state_dict(state)
