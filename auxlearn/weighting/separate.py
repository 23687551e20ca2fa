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

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from auxlearn.weighting.base import Gradient, TrainingStep, apply_gradient


def step_coefficients(
    weights: Sequence[float], has_step: Sequence[bool], applied: Sequence[bool]
) -> list[float]:
    """Return the factors of the objectives' steps for one parameter.

    Args:
        weights: One by objective, above zero, the primary task first.
        has_step: Whether each objective has a gradient, and so a step, for the parameter.
        applied: Whether the steps of each objective change the parameters that the primary task
            has a step for; all others they change in any case.

    Returns:
        One by objective: its weight over the primary task's, or over the sum of the weights of the
        objectives that have a step if the primary task has none; 0 for objectives without a step.
    """
    used = [has and (on or not has_step[0]) for has, on in zip(has_step, applied, strict=True)]
    if has_step[0]:
        total = weights[0]
    else:
        total = sum(weight for weight, on in zip(weights, used, strict=True) if on)
    return [weight / total if on else 0.0 for weight, on in zip(weights, used, strict=True)]


class SeparateSteps:
    """Steps of a run's optimizer for several objectives, each with a state of its own.

    The optimizer itself holds the primary task's state, as in single-task training. The states of
    the auxiliary objectives are kept here.

    Args:
        count: Number of objectives, the primary task first.
    """

    def __init__(self, count: int) -> None:
        self._states: list[dict[int, dict[str, Tensor]]] = [{} for _ in range(count - 1)]

    def step(
        self,
        step: TrainingStep,
        gradients: Sequence[Gradient],
        weights: Tensor,
        applied: Sequence[bool],
    ) -> list[Gradient]:
        """Compute the step of every objective, and add their weighted sum to the parameters.

        Args:
            step: The training step; its optimizer is stepped once by objective.
            gradients: One by objective.
            weights: One by objective, above zero; only their ratios count.
            applied: Which objectives change the parameters that the primary task reaches. With the
                primary task alone these become, bit by bit, what single-task training makes of
                them.

        Returns:
            :math:`u_i` of each objective; ``None`` for a parameter without gradient.
        """
        before = [p.detach().clone() for p in step.parameters]
        steps = []
        for index in range(1, len(gradients)):
            self._step_of(index, step, gradients[index])
            steps.append(_undo(step.parameters, before, gradients[index]))
        # The primary task's own step is left as the optimizer makes it, not undone and added again:
        # before + (after - before) differs from after by rounding.
        self._step_of(0, step, gradients[0])
        steps.insert(0, _difference(step.parameters, before, gradients[0]))
        values = weights.tolist()
        with torch.no_grad():
            for parameter, *by_objective in zip(step.parameters, *steps, strict=True):
                factors = step_coefficients(values, [u is not None for u in by_objective], applied)
                for factor, own in zip(factors[1:], by_objective[1:], strict=True):
                    if own is not None and factor:
                        parameter.add_(own, alpha=factor)
        return steps

    def _step_of(self, index: int, step: TrainingStep, gradient: Gradient) -> None:
        """Step the optimizer with one objective's gradient and state; changes the parameters."""
        if index == 0:
            apply_gradient(step, gradient)
            return
        optimizer = step.optimizer
        own = self._states[index - 1]
        reached = [number for number, grad in enumerate(gradient) if grad is not None]
        primary: dict[int, dict[str, Any]] = {}
        for number in reached:
            parameter = step.parameters[number]
            primary[number] = optimizer.state.pop(parameter, {})
            if (
                number in own
            ):  # in a resumed run the moments are on the CPU; steps are counted there
                optimizer.state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device)
                    for key, value in own[number].items()
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
                own[number] = optimizer.state.pop(parameter, {})
                if primary[number]:
                    optimizer.state[parameter] = primary[number]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the optimizer states of the auxiliary objectives: ``OBJECTIVE/PARAMETER/KEY``."""
        return {
            f"{index}/{number}/{key}": torch.as_tensor(value)
            for index, states in enumerate(self._states)
            for number, state in states.items()
            for key, value in state.items()
            if value is not None
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for states in self._states:
            states.clear()
        for name, value in state.items():
            index, number, key = name.split("/", 2)
            self._states[int(index)].setdefault(int(number), {})[key] = value.clone()


def _difference(
    parameters: Sequence[Tensor], before: Sequence[Tensor], gradient: Gradient
) -> Gradient:
    """Return what a step with a gradient has changed; ``None`` where it changed nothing."""
    return [
        None if grad is None else parameter.detach() - old
        for parameter, old, grad in zip(parameters, before, gradient, strict=True)
    ]


def _undo(parameters: Sequence[Tensor], before: Sequence[Tensor], gradient: Gradient) -> Gradient:
    """Undo the step that was made with a gradient, and return it.

    Args:
        parameters: The parameters after the step; set back to ``before``.
        before: The parameters before the step.
        gradient: ``None`` where the step changed nothing.
    """
    found = _difference(parameters, before, gradient)
    with torch.no_grad():
        for parameter, old, grad in zip(parameters, before, gradient, strict=True):
            if grad is not None:
                parameter.copy_(old)
    return found
