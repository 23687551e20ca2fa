"""Arithmetic of gradients: sums, inner products, moving averages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import torch
from torch import Tensor

from auxlearn.weighting.state import State

#: Gradient of one objective: a tensor per parameter, in the order of the parameters of a
#: :class:`~auxlearn.weighting.base.TrainingStep`; ``None`` where it does not depend on one.
Gradient = list[Tensor | None]

#: Where a parameter belongs: to the encoder, which all objectives share; to the classification head
#: of the primary task; or to another head, such as that for masked language modelling.
Placement = Literal["encoder", "primary_head", "other_head"]

#: Places of parameters that objectives do not share.
HEADS: tuple[Placement, ...] = ("primary_head", "other_head")


def weighted_sum(gradients: Sequence[Gradient], weights: Sequence[float] | Tensor) -> Gradient:
    """Return the weighted sum of gradients, one by objective, in new tensors; ``None`` for a
    parameter that no objective depends on.
    """
    values = [float(weight) for weight in weights]
    sums: Gradient = [None] * len(gradients[0])
    with torch.no_grad():  # one operation for all parameters
        for gradient, weight in zip(gradients, values, strict=True):
            present = [(number, grad) for number, grad in enumerate(gradient) if grad is not None]
            further = [
                (total, grad) for number, grad in present if (total := sums[number]) is not None
            ]
            first = [(number, grad) for number, grad in present if sums[number] is None]
            if further:
                totals, parts = zip(*further, strict=True)
                torch._foreach_add_(totals, parts, alpha=weight)
            if first:
                numbers, parts = zip(*first, strict=True)
                for number, total in zip(numbers, torch._foreach_mul(parts, weight), strict=True):
                    sums[number] = total
    return sums


def restricted(
    gradient: Gradient, placements: Sequence[Placement], kept: Collection[Placement]
) -> Gradient:
    """Return a gradient with ``None`` for the parameters of other places than some."""
    return [
        grad if placement in kept else None
        for grad, placement in zip(gradient, placements, strict=True)
    ]


def shared_gradient(gradient: Gradient, placements: Sequence[Placement]) -> Gradient:
    return restricted(gradient, placements, ["encoder"])


def dot(left: Gradient, right: Gradient) -> Tensor:
    """Return the inner product of two gradients, a float64 scalar; ``None`` counts as zero."""
    pairs = [(a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None]
    if not pairs:
        return torch.zeros((), dtype=torch.float64)
    products = torch._foreach_mul([a for a, _ in pairs], [b for _, b in pairs])
    return torch.stack([product.sum() for product in products]).double().sum()


def squared_norm(gradient: Gradient) -> Tensor:
    """Return the inner product of a gradient with itself, a float64 scalar, in few operations."""
    present = [part for part in gradient if part is not None]
    if not present:
        return torch.zeros((), dtype=torch.float64)
    return torch.stack(torch._foreach_norm(present)).double().square().sum()


def gather_scalars(scalars: Sequence[Tensor]) -> Tensor:
    """Copy scalars into one vector on the CPU, float64, with one synchronisation per device."""
    values = torch.empty(len(scalars), dtype=torch.float64)
    for device in {scalar.device for scalar in scalars}:
        places = [place for place, scalar in enumerate(scalars) if scalar.device == device]
        values[places] = torch.stack([scalars[place].detach().double() for place in places]).cpu()
    return values


def combine(
    gradients: Sequence[Gradient], weights: Tensor, placements: Sequence[Placement]
) -> Gradient:
    """Return the weighted sum over the shared parameters, and the plain sum over the heads."""
    shared = weighted_sum(
        [shared_gradient(gradient, placements) for gradient in gradients], weights
    )
    unshared = [restricted(gradient, placements, HEADS) for gradient in gradients]
    heads = weighted_sum(unshared, [1.0] * len(unshared))
    return [part if head is None else head for part, head in zip(shared, heads, strict=True)]


class GradientAverage(State):
    r"""The bias-corrected moving average of gradients, or of steps, with a decay below 1.

    The gradient of a few batches is mostly noise. Parameters change little from one step to the
    next, so that an average over steps has far less noise at the price of a small lag, and costs no
    further pass. With decay :math:`\beta` and the gradients :math:`v_1, \dots, v_t`,

    .. math:: \bar v_t = \frac{1 - \beta}{1 - \beta^t} \sum_{s=1}^{t} \beta^{t-s} v_s,

    the first moment of Adam with its bias correction (Kingma and Ba 2015, algorithm 1,
    https://arxiv.org/abs/1412.6980). Memory: one copy of the parameters that have a gradient; none
    if ``decay`` is 0.
    """

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self._count = 0
        self._sums: dict[int, Tensor] = {}

    def update(self, gradient: Gradient) -> Gradient:
        """Add a gradient, and return the average; what lacks one later counts as zero."""
        if not self.decay:
            return gradient
        self._count += 1
        correction = 1 - self.decay**self._count
        present = {number: part for number, part in enumerate(gradient) if part is not None}
        average: Gradient = [None] * len(gradient)
        with torch.no_grad():
            if present:  # the sums of a resumed run are on the CPU
                device = next(iter(present.values())).device
                self._sums = {number: total.to(device) for number, total in self._sums.items()}
            self._sums |= {
                number: torch.zeros_like(part)
                for number, part in present.items()
                if number not in self._sums
            }
            # One operation for all parameters, not one for each.
            if present:
                sums = [self._sums[number] for number in present]
                torch._foreach_lerp_(sums, list(present.values()), 1 - self.decay)
            if without := [total for number, total in self._sums.items() if number not in present]:
                torch._foreach_mul_(without, self.decay)
            if self._sums:
                means = torch._foreach_div(list(self._sums.values()), correction)
                for number, mean in zip(self._sums, means, strict=True):
                    average[number] = mean
        return average

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums by number of the parameter, and how many gradients they hold."""
        if not self._count:
            return {}
        sums = {str(number): total for number, total in self._sums.items()}
        return sums | {"count": torch.tensor(self._count)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self._count = int(tensors.pop("count", 0))
        self._sums = {int(number): total for number, total in tensors.items()}

    def clear(self) -> None:
        """Forget all gradients."""
        self.restore({})
