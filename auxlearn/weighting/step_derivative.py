r"""The derivative of one optimizer step with respect to the weights of the objectives.

An update is :math:`\theta' = U(\theta, c(\sum_i w_i g_i))` with the optimizer's step ``U`` and
clipping ``c``. SGD and AdamW act on each number by itself, so :math:`\partial U / \partial g` is a
diagonal matrix with a closed form, and of clipping only a few inner products are needed. Large
tensors are gone through in pieces that fit the processor's cache: the work is a single pass over
memory, where a tape would make some thirty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from auxlearn.weighting.base import Gradient, read

#: Numbers that are worked on at once on a CPU; some ten such pieces fit the cache of a core.
PIECE = 1 << 15

#: Writes the derivative of a piece of the update by its gradient: ``(gradient, piece, out)``.
Diagonal = Callable[[Tensor, slice, Tensor], None]


def inner_products(*groups: Sequence[Gradient]) -> list[Tensor]:
    """Return the Gram matrix of each group of gradients; a GPU is waited for once for all.

    Args:
        groups: Gradients, one per objective, each with the same number of parameters.

    Returns:
        One ``(objectives, objectives)`` per group, float64, on the CPU.
    """
    found = []
    for gradients in groups:
        products = _Products(len(gradients))
        for parts in zip(*gradients, strict=True):
            sources = [(i, part.reshape(-1)) for i, part in enumerate(parts) if part is not None]
            if not sources:
                continue
            for piece in _pieces(sources[0][1]):
                for (i, one), (j, other) in combinations_with_replacement(sources, 2):
                    products.add(i, j, one[piece], other[piece])
        found.append(products)
    return [gram + gram.triu(1).T for gram in _totals(found)]


class UpdateDerivative:
    """The derivative of a step of SGD or AdamW by the weights of the gradients it was made from.

    Make it before the real step and ask it after: it reads the moments that the step has left.

    Args:
        optimizer: The optimizer about to be stepped: SGD, or AdamW without amsgrad.
        parameters: Its parameters, in the order of the gradients.
        max_grad_norm: Norm to which the gradient is clipped before the step; 0: not clipped.

    Raises:
        ValueError: The optimizer is of another kind.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[Tensor],
        max_grad_norm: float = 0.0,
    ) -> None:
        adamw = isinstance(optimizer, torch.optim.AdamW)
        if not adamw and not isinstance(optimizer, torch.optim.SGD):
            raise ValueError(
                f"the derivative of a step of {type(optimizer).__name__} is not known here"
            )
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        if any(group.get("amsgrad") for group in groups.values()):
            raise ValueError("the derivative of a step with amsgrad is not known here")
        self._optimizer = optimizer
        self._max_grad_norm = max_grad_norm
        self._parameters = list(parameters)
        self._groups = [groups[id(p)] for p in self._parameters]
        self._diagonal = self._adamw if adamw else self._sgd
        # SGD takes its first gradient into the momentum whole, whatever the dampening.
        self._fresh = [
            optimizer.state.get(p, {}).get("momentum_buffer") is None for p in self._parameters
        ]

    def by_weights(
        self, gradients: Sequence[Gradient], weights: Tensor, gram: Tensor, direction: Gradient
    ) -> tuple[Tensor, Tensor]:
        r"""Return the derivative of something at the updated parameters by the weights.

        Args:
            gradients: One per objective; the step was made with their weighted sum.
            weights: One per objective, float64.
            gram: Inner products of the gradients, as :func:`inner_products` gives them.
            direction: ``v``, the derivative of that something at the updated parameters.

        Returns:
            :math:`v^\top (\partial U / \partial g) g_i` for each objective, and the inner products
            of ``v`` with each gradient and, last, with itself; float64, on the CPU.
        """
        norm = float((weights @ gram @ weights).clamp(min=0).sqrt())
        excess = norm + 1e-6  # as torch clips
        factor = min(1.0, self._max_grad_norm / excess) if self._max_grad_norm else 1.0
        pulled = _Products(len(gradients))
        aligned = _Products(len(gradients) + 1)
        last = len(gradients)
        values = [weight * factor for weight in weights.tolist()]
        for number, v in enumerate(direction):
            if v is None:
                continue
            flat_v = v.reshape(-1)
            parts = enumerate(gradient[number] for gradient in gradients)
            given = [(i, part.reshape(-1)) for i, part in parts if part is not None]
            diagonal = self._diagonal(number) if given else None
            room = flat_v.new_empty(2, min(len(flat_v), _piece(flat_v)))
            for piece in _pieces(flat_v):
                part = flat_v[piece]
                aligned.add(last, last, part, part)
                if diagonal is None:
                    continue
                mixed, through = room[0, : len(part)], room[1, : len(part)]
                (first, source), *others = given
                torch.mul(source[piece], values[first], out=mixed)
                for index, other in others:
                    mixed.add_(other[piece], alpha=values[index])
                diagonal(mixed, piece, through)
                through.mul_(part)
                for index, source in given:
                    pulled.add(index, index, through, source[piece])
                    aligned.add(index, index, part, source[piece])
        through_update, validation = (found.diagonal() for found in _totals([pulled, aligned]))
        if factor < 1:
            # Clipping scales by M / (|g| + 1e-6), which depends on all of the gradient.
            along = (weights @ through_update) / (norm * excess)
            through_update = factor * (through_update - along * (gram @ weights))
        return through_update, validation

    def _sgd(self, number: int) -> Diagonal:
        group = self._groups[number]
        slope, momentum = 1.0, group["momentum"]
        if momentum:
            slope = 1.0 if self._fresh[number] else 1.0 - group["dampening"]
            if group["nesterov"]:
                slope = 1.0 + momentum * slope
        slope *= float(group["lr"]) if group["maximize"] else -float(group["lr"])

        def diagonal(gradient: Tensor, piece: slice, out: Tensor) -> None:
            out.fill_(slope)

        return diagonal

    def _adamw(self, number: int) -> Diagonal:
        group, state = self._groups[number], self._optimizer.state[self._parameters[number]]
        beta1, beta2 = group["betas"]
        step = float(state["step"])
        sign = -1.0 if group["maximize"] else 1.0
        rate = -sign * float(group["lr"]) / (1 - beta1**step)
        correction = (1 - beta2**step) ** 0.5
        first, second = state["exp_avg"].reshape(-1), state["exp_avg_sq"].reshape(-1)
        room = first.new_empty(min(len(first), _piece(first)))
        tiny = torch.finfo(first.dtype).tiny

        def diagonal(gradient: Tensor, piece: slice, out: Tensor) -> None:
            # With m and s the moments after the step and D = sqrt(s) / correction + eps:
            # d(m / D)/dg = (1 - beta1) / D - m (1 - beta2) g / (sqrt(s) correction D^2)
            root = torch.sqrt(second[piece], out=room[: len(out)])
            root.clamp_(min=tiny)  # where s is 0, so is g, and the term is to vanish
            torch.mul(first[piece], gradient, out=out)
            out.div_(root).mul_(sign * (beta2 - 1) / correction)
            root.div_(correction).add_(group["eps"])
            out.div_(root).add_(1 - beta1).div_(root).mul_(rate)

        return diagonal


class _Products:
    """Sums of inner products, gathered without making a GPU wait."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.found: dict[tuple[int, int], list[Tensor]] = {}

    def add(self, row: int, column: int, left: Tensor, right: Tensor) -> None:
        self.found.setdefault((row, column), []).append(torch.dot(left, right))


def _totals(products: Sequence[_Products]) -> list[Tensor]:
    """Return each matrix of sums, float64, on the CPU; a GPU is waited for once for all."""
    every = [torch.stack(parts).double().sum() for one in products for parts in one.found.values()]
    values = iter(read(every))
    matrices = []
    for one in products:
        matrix = torch.zeros(one.size, one.size, dtype=torch.float64)
        for place in one.found:
            matrix[place] = next(values)
        matrices.append(matrix)
    return matrices


def _piece(flat: Tensor) -> int:
    return PIECE if flat.device.type == "cpu" else max(1, len(flat))


def _pieces(flat: Tensor) -> Iterator[slice]:
    size = _piece(flat)
    for start in range(0, len(flat), size):
        yield slice(start, start + size)
