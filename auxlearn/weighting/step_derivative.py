r"""Derivative of an optimizer step with respect to the weights of the objectives, in closed form.

A step is :math:`\theta' = U(\theta, c(\sum_i w_i g_i))`, with parameters :math:`\theta`, weights
:math:`w_i` and gradients :math:`g_i` of the objectives, gradient clipping c, and the optimizer U.
SGD and AdamW work elementwise, so :math:`\partial U / \partial g` is a diagonal matrix with a
closed form; clipping only needs a few inner products. Large tensors are processed in chunks that
fit the processor's cache: one pass over memory, where autograd would make some thirty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from auxlearn.weighting.base import Gradient, gather_scalars

#: Elements of a chunk on a CPU; some ten chunks fit the cache of a core.
CHUNK_SIZE = 1 << 15

#: Writes the derivative of a chunk of the step with respect to its gradient into ``out``:
#: ``(gradient, chunk, out)``.
Diagonal = Callable[[Tensor, slice, Tensor], None]


def gram_matrices(*groups: Sequence[Gradient]) -> list[Tensor]:
    """Return the Gram matrix of each group of gradients, with one synchronisation with a GPU.

    Args:
        groups: Gradients, one by objective, each with the same number of parameters.

    Returns:
        The inner products of each group, ``(objectives, objectives)``, float64, on the CPU.
    """
    found = []
    for gradients in groups:
        products = _Products(len(gradients))
        for by_objective in zip(*gradients, strict=True):
            sources = [(i, g.reshape(-1)) for i, g in enumerate(by_objective) if g is not None]
            if not sources:
                continue
            for chunk in _chunks(sources[0][1]):
                for (i, one), (j, other) in combinations_with_replacement(sources, 2):
                    products.add(i, j, one[chunk], other[chunk])
        found.append(products)
    return [gram + gram.triu(1).T for gram in _totals(found)]


class StepDerivative:
    """Derivative of a step of SGD or AdamW with respect to the weights of the gradients.

    To be constructed before the optimizer step, and called after it: it uses the moments after the
    step.

    Args:
        optimizer: The optimizer about to be stepped: SGD, or AdamW without amsgrad.
        parameters: Its parameters, in the order of the gradients.
        max_grad_norm: Norm to which the gradient is clipped before the step; 0: no clipping.

    Raises:
        ValueError: The optimizer is of another class, or has amsgrad.
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
        # SGD initialises the momentum buffer with the first gradient, without dampening.
        self._first = [
            optimizer.state.get(p, {}).get("momentum_buffer") is None for p in self._parameters
        ]

    def weight_gradient(
        self, gradients: Sequence[Gradient], weights: Tensor, gram: Tensor, direction: Gradient
    ) -> tuple[Tensor, Tensor]:
        r"""Return the derivative of a function of the updated parameters by each weight.

        Args:
            gradients: :math:`g_i`, one by objective; the step was made with their weighted sum.
            weights: :math:`w_i`, ``(objectives,)``, float64, on the CPU.
            gram: Gram matrix of the gradients, as :func:`gram_matrices` returns it.
            direction: v, the gradient of the function at the updated parameters.

        Returns:
            :math:`v^\top (\partial U / \partial w_i)`, ``(objectives,)``; and the inner products of
            v with each gradient and, last, with itself, ``(objectives + 1,)``; both float64, on the
            CPU.
        """
        norm = float((weights @ gram @ weights).clamp(min=0).sqrt())
        excess = norm + 1e-6  # as torch clips
        factor = min(1.0, self._max_grad_norm / excess) if self._max_grad_norm else 1.0
        through_step = _Products(len(gradients))
        direct = _Products(len(gradients) + 1)
        last = len(gradients)
        values = [weight * factor for weight in weights.tolist()]
        for number, v in enumerate(direction):
            if v is None:
                continue
            flat_v = v.reshape(-1)
            by_objective = enumerate(gradient[number] for gradient in gradients)
            given = [(i, g.reshape(-1)) for i, g in by_objective if g is not None]
            diagonal = self._diagonal(number) if given else None
            buffer = flat_v.new_empty(2, min(len(flat_v), _chunk_size(flat_v)))
            for chunk in _chunks(flat_v):
                v_chunk = flat_v[chunk]
                direct.add(last, last, v_chunk, v_chunk)
                if diagonal is None:
                    continue
                combined, through = buffer[0, : len(v_chunk)], buffer[1, : len(v_chunk)]
                (first, source), *others = given
                torch.mul(source[chunk], values[first], out=combined)
                for index, other in others:
                    combined.add_(other[chunk], alpha=values[index])
                diagonal(combined, chunk, through)
                through.mul_(v_chunk)
                for index, source in given:
                    through_step.add(index, index, through, source[chunk])
                    direct.add(index, index, v_chunk, source[chunk])
        by_weight, products = (found.diagonal() for found in _totals([through_step, direct]))
        if factor < 1:
            # Clipping scales by M / (|g| + 1e-6), which depends on all of the gradient.
            along = (weights @ by_weight) / (norm * excess)
            by_weight = factor * (by_weight - along * (gram @ weights))
        return by_weight, products

    def _sgd(self, number: int) -> Diagonal:
        group = self._groups[number]
        slope, momentum = 1.0, group["momentum"]
        if momentum:
            slope = 1.0 if self._first[number] else 1.0 - group["dampening"]
            if group["nesterov"]:
                slope = 1.0 + momentum * slope
        slope *= float(group["lr"]) if group["maximize"] else -float(group["lr"])

        def diagonal(gradient: Tensor, chunk: slice, out: Tensor) -> None:
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
        buffer = first.new_empty(min(len(first), _chunk_size(first)))
        tiny = torch.finfo(first.dtype).tiny

        def diagonal(gradient: Tensor, chunk: slice, out: Tensor) -> None:
            # With m and s the moments after the step and D = sqrt(s) / correction + eps:
            # d(m / D)/dg = (1 - beta1) / D - m (1 - beta2) g / (sqrt(s) correction D^2)
            root = torch.sqrt(second[chunk], out=buffer[: len(out)])
            root.clamp_(min=tiny)  # where s is 0, so is g, and the second term vanishes
            torch.mul(first[chunk], gradient, out=out)
            out.div_(root).mul_(sign * (beta2 - 1) / correction)
            root.div_(correction).add_(group["eps"])
            out.div_(root).add_(1 - beta1).div_(root).mul_(rate)

        return diagonal


class _Products:
    """Sums of inner products by matrix element, gathered without synchronising with a GPU."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.found: dict[tuple[int, int], list[Tensor]] = {}

    def add(self, row: int, column: int, left: Tensor, right: Tensor) -> None:
        self.found.setdefault((row, column), []).append(torch.dot(left, right))


def _totals(products: Sequence[_Products]) -> list[Tensor]:
    """Return the matrices, float64, on the CPU, with one synchronisation with a GPU."""
    every = [torch.stack(found).double().sum() for one in products for found in one.found.values()]
    values = iter(gather_scalars(every))
    matrices = []
    for one in products:
        matrix = torch.zeros(one.size, one.size, dtype=torch.float64)
        for place in one.found:
            matrix[place] = next(values)
        matrices.append(matrix)
    return matrices


def _chunk_size(flat: Tensor) -> int:
    return CHUNK_SIZE if flat.device.type == "cpu" else max(1, len(flat))


def _chunks(flat: Tensor) -> Iterator[slice]:
    size = _chunk_size(flat)
    for start in range(0, len(flat), size):
        yield slice(start, start + size)
