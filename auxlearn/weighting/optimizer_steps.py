r"""Weighted sums of separate optimizer steps: one step per objective, with moments of its own.

Adam divides each element of a gradient by a running average of its size. If several objectives
share one Adam, a weight has no effect where only one objective has a gradient: however small the
weighted gradient, the quotient is the same. In this way masked language modelling updates every row
of the tied output layer at the full learning rate, whatever its weight. With moments of its own for
each objective,

.. math:: \theta' = \theta + u_0 + \sum_{i>0} r_i u_i, \qquad u_i = U_i(g_i),

where :math:`\theta` are the parameters, :math:`g_i` the gradient of objective i (0: the primary
task), :math:`U_i` the optimizer with the state of objective i, :math:`u_i` its step and
:math:`r_i = w_i / w_0` the ratio of an auxiliary weight to the primary's. At :math:`r_i = 0` the
step is that of training the primary task alone, and an auxiliary task never makes :math:`u_0`
smaller. Objectives of different gradient norms become comparable as well, since the elements of
each :math:`u_i` are of the size of the learning rate.

Where the primary task has no gradient, in the language-model head for instance, the steps of the
objectives that have one are averaged with their weights. Weight decay is part of :math:`u_0`;
auxiliary steps have none.

Cost compared with one shared optimizer: for each auxiliary task the memory of its moments, two
copies of the parameters that it depends on, and one pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor

from auxlearn.weighting.base import TrainingStep, apply_gradient
from auxlearn.weighting.gradients import Gradient, gather_scalars
from auxlearn.weighting.state import State


def step_coefficients(
    weights: Sequence[float], has_step: Sequence[bool], applied: Sequence[bool]
) -> list[float]:
    """Return the factors of the objectives' steps for one parameter.

    The weight over the primary task's, or over the sum of those with a step if that has none; 0
    for objectives without a step, and for those not ``applied`` where the primary task has one.
    """
    used = [has and (on or not has_step[0]) for has, on in zip(has_step, applied, strict=True)]
    if has_step[0]:
        total = weights[0]
    else:
        total = sum(weight for weight, on in zip(weights, used, strict=True) if on)
    return [weight / total if on else 0.0 for weight, on in zip(weights, used, strict=True)]


class SeparateSteps(State):
    """Steps of a run's optimizer for ``count`` objectives, each with a state of its own.

    The optimizer itself holds the primary task's state, as in single-task training.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._states: list[dict[int, dict[str, Tensor]]] = [{} for _ in range(count - 1)]

    def step(
        self,
        step: TrainingStep,
        gradients: Sequence[Gradient],
        weights: Tensor,
        applied: Sequence[bool],
    ) -> list[Gradient]:
        """Add the weighted sum of the objectives' optimizer steps to the parameters; return them.

        Only ratios of weights count, and only objectives that are ``applied`` change the parameters
        that the primary task reaches: with none, bit by bit as in single-task training.
        """
        with torch.no_grad():
            before = torch._foreach_mul([*step.parameters], 1.0)
        steps: list[Gradient] = [[None] * len(before) for _ in gradients]
        # The primary task's own step comes last and is left as the optimizer makes it, not undone
        # and added again: before + (after - before) differs from after by rounding.
        for index in (*range(1, len(gradients)), 0):
            reached = [n for n, grad in enumerate(gradients[index]) if grad is not None]
            self._step_of(index, step, gradients[index])
            if not reached:
                continue
            after: list[Tensor] = [step.parameters[number] for number in reached]
            start = [before[number] for number in reached]
            with torch.no_grad():
                for number, change in zip(reached, torch._foreach_sub(after, start), strict=True):
                    steps[index][number] = change
                if index:
                    torch._foreach_copy_(after, start)
        values = weights.tolist()
        with torch.no_grad():
            # One operation for all parameters that add the step of an objective at one factor.
            added: dict[tuple[int, float], list[tuple[Tensor, Tensor]]] = {}
            for parameter, *by_objective in zip(step.parameters, *steps, strict=True):
                factors = step_coefficients(values, [u is not None for u in by_objective], applied)
                for index, (factor, change) in enumerate(zip(factors, by_objective, strict=True)):
                    if index and change is not None and factor:
                        added.setdefault((index, factor), []).append((parameter, change))
            for (_, factor), pairs in added.items():
                torch._foreach_add_([p for p, _ in pairs], [u for _, u in pairs], alpha=factor)
        return steps

    def _step_of(self, index: int, step: TrainingStep, gradient: Gradient) -> None:
        """Step the optimizer with one objective's gradient and state; changes the parameters."""
        if index == 0:
            apply_gradient(step, gradient)
            return
        optimizer = step.optimizer
        states = self._states[index - 1]
        reached = [number for number, grad in enumerate(gradient) if grad is not None]
        primary: dict[int, dict[str, Any]] = {}
        for number in reached:
            parameter = step.parameters[number]
            primary[number] = optimizer.state.pop(parameter, {})
            if number in states:  # a resumed run has moments on the CPU; steps are counted there
                optimizer.state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device)
                    for key, value in states[number].items()
                }
        decays = [group["weight_decay"] for group in optimizer.param_groups]
        try:
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.0
            apply_gradient(step, gradient)
        finally:
            for group, decay in zip(optimizer.param_groups, decays, strict=True):
                group["weight_decay"] = decay
            for number in reached:
                parameter = step.parameters[number]
                states[number] = optimizer.state.pop(parameter, {})
                if primary[number]:
                    optimizer.state[parameter] = primary[number]

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimizer states of the auxiliary objectives: ``OBJECTIVE/PARAMETER/KEY``."""
        return {
            f"{index}/{number}/{key}": torch.as_tensor(value)
            for index, states in enumerate(self._states)
            for number, state in states.items()
            for key, value in state.items()
            if value is not None
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.clear()
        for name, value in tensors.items():
            index, number, key = name.split("/")
            self._states[int(index)].setdefault(int(number), {})[key] = value

    def clear(self) -> None:
        """Forget the states of the auxiliary objectives."""
        for states in self._states:
            states.clear()


#: Elements of a chunk on a CPU; some ten chunks fit the cache of a core.
CHUNK_SIZE = 1 << 15

#: Writes the derivative of a chunk of the step with respect to its gradient into ``out``:
#: ``(gradient, chunk, out)``.
Diagonal = Callable[[Tensor, slice, Tensor], None]


def gram_matrices(*groups: Sequence[Gradient]) -> list[Tensor]:
    """Return the Gram matrix of each group of gradients, with one synchronisation with a GPU:
    ``(objectives, objectives)``, float64, on the CPU.
    """
    matrices = []
    for gradients in groups:
        products = _Products(len(gradients))
        for by_objective in zip(*gradients, strict=True):
            flattened = {
                i: grad.reshape(-1) for i, grad in enumerate(by_objective) if grad is not None
            }
            chunks = (flat.split(_chunk_size(flat)) for flat in flattened.values())
            for parts in zip(*chunks, strict=True):  # a chunk stays in the cache for all pairs
                pairs = combinations_with_replacement(zip(flattened, parts, strict=True), 2)
                for (i, left), (j, right) in pairs:
                    products.add(i, j, left, right)
        matrices.append(products)
    return [gram + gram.triu(1).T for gram in _totals(matrices)]


def weight_gradient(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[Tensor],
    max_grad_norm: float,
    gradients: Sequence[Gradient],
    weights: Tensor,
    gram: Tensor,
    direction: Gradient,
) -> tuple[Tensor, Tensor]:
    r"""Return the derivative by each weight of a function of the parameters after a step of AdamW.

    The step was made with the weighted sum of the gradients, whose Gram matrix is ``gram``, clipped
    to ``max_grad_norm``, 0 for not at all; ``direction`` is v, the gradient of the function.
    Returns :math:`v^\top (\partial U / \partial w_i)`, ``(objectives,)``, and the products of v
    with each gradient and itself.
    """
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    norm = float((weights @ gram @ weights).clamp(min=0).sqrt())
    excess = norm + 1e-6  # as torch clips
    factor = min(1.0, max_grad_norm / excess) if max_grad_norm else 1.0
    through_step = _Products(len(gradients))
    direct = _Products(len(gradients) + 1)
    last = len(gradients)
    values = [weight * factor for weight in weights.tolist()]
    for parameter, v, *by_objective in zip(parameters, direction, *gradients, strict=True):
        if v is None:
            continue
        flat_v = v.reshape(-1)
        present = [(i, g.reshape(-1)) for i, g in enumerate(by_objective) if g is not None]
        state = optimizer.state[parameter] if present else None
        diagonal = None if state is None else _adamw_diagonal(groups[id(parameter)], state)
        size = _chunk_size(flat_v)
        buffer = flat_v.new_empty(2, min(len(flat_v), size))
        for start in range(0, len(flat_v), size):
            chunk = slice(start, start + size)
            v_chunk = flat_v[chunk]
            direct.add(last, last, v_chunk, v_chunk)
            if diagonal is None:
                continue
            combined, through = buffer[0, : len(v_chunk)], buffer[1, : len(v_chunk)]
            (first, source), *others = present
            torch.mul(source[chunk], values[first], out=combined)
            for index, other in others:
                combined.add_(other[chunk], alpha=values[index])
            diagonal(combined, chunk, through)
            through.mul_(v_chunk)
            for index, source in present:
                through_step.add(index, index, through, source[chunk])
                direct.add(index, index, v_chunk, source[chunk])
    by_weight, products = (totals.diagonal() for totals in _totals([through_step, direct]))
    if factor < 1:
        # Clipping scales by M / (|g| + 1e-6), which depends on all of the gradient.
        along = (weights @ by_weight) / (norm * excess)
        by_weight = factor * (by_weight - along * (gram @ weights))
    return by_weight, products


def _adamw_diagonal(group: Mapping[str, Any], state: Mapping[str, Tensor]) -> Diagonal:
    """Return the derivative of the step of one parameter, by its state after the step."""
    beta1, beta2 = group["betas"]
    step = float(state["step"])
    rate = -float(group["lr"]) / (1 - beta1**step)
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
        out.div_(root).mul_((beta2 - 1) / correction)
        root.div_(correction).add_(group["eps"])
        out.div_(root).add_(1 - beta1).div_(root).mul_(rate)

    return diagonal


class _Products:
    """Sums of inner products by matrix element, gathered without synchronising with a GPU."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.terms: dict[tuple[int, int], list[Tensor]] = {}

    def add(self, row: int, column: int, left: Tensor, right: Tensor) -> None:
        self.terms.setdefault((row, column), []).append(torch.dot(left, right))


def _totals(products: Sequence[_Products]) -> list[Tensor]:
    """Return the matrices, float64, on the CPU, with one synchronisation with a GPU."""
    every = [
        torch.stack(terms).double().sum() for sums in products for terms in sums.terms.values()
    ]
    values = iter(gather_scalars(every))
    matrices = []
    for sums in products:
        matrix = torch.zeros(sums.size, sums.size, dtype=torch.float64)
        for place in sums.terms:
            matrix[place] = next(values)
        matrices.append(matrix)
    return matrices


def _chunk_size(flat: Tensor) -> int:
    return CHUNK_SIZE if flat.device.type == "cpu" else max(1, len(flat))
