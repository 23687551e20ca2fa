r"""One optimizer step per objective, each with moments of its own, added up with weights.

Adam divides each number of a gradient by its own running size. If several objectives share one
Adam, a weight has no effect where only one objective has a gradient: however small it is, the
quotient is the same. Masked language modelling moves every row of the tied output layer in this
way, at the full learning rate. With moments of its own for each objective,

.. math:: \theta' = \theta + u_0 + \sum_i r_i u_i, \qquad u_i = U_i(g_i)

the ratios :math:`r_i = w_i / w_0` of the auxiliary weights to the primary's mean what they say: at
:math:`r = 0` the step is that of training the primary task alone, and the primary task's own part
of the step, :math:`u_0`, is never made smaller by an auxiliary task. Objectives of different
gradient norms become comparable as well, since each :math:`u_i` has the size of the learning rate.

Where the primary task has no gradient, in the language-model head for instance, the steps of the
objectives that have one are averaged by their weights. Weight decay is part of :math:`u_0`;
auxiliary steps have none.

Cost over one shared optimizer: per auxiliary task the memory of its moments, two copies of the
parameters that it reaches, and one pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from auxlearn.weighting.base import Gradient, TrainingStep, apply


class SeparateSteps:
    """Makes the steps of a run's optimizer for several objectives, with states kept apart.

    The optimizer itself holds the primary task's state, as in single-task training. What the
    auxiliary objectives have is kept here.

    Args:
        count: Number of objectives, the primary task first.
    """

    def __init__(self, count: int) -> None:
        self._states: list[dict[int, dict[str, Tensor]]] = [{} for _ in range(count - 1)]

    def step(
        self, step: TrainingStep, gradients: Sequence[Gradient], weights: Tensor
    ) -> list[Gradient]:
        """Make the step of every objective and put their weighted sum into the parameters.

        Args:
            step: The step; its optimizer is stepped once per objective.
            gradients: One per objective.
            weights: One per objective, above zero; only their ratios count.

        Returns:
            :math:`u_i` of each objective.
        """
        before = [p.detach().clone() for p in step.parameters]
        steps = []
        for index, gradient in enumerate(gradients):
            self._step_of(index, step, gradient)
            steps.append(_take_back(step.parameters, before, gradient))
        values = weights.tolist()
        with torch.no_grad():
            for parameter, *parts in zip(step.parameters, *steps, strict=True):
                given = [(w, u) for w, u in zip(values, parts, strict=True) if u is not None]
                whole = values[0] if parts[0] is not None else sum(w for w, _ in given)
                for weight, part in given:
                    parameter.add_(part, alpha=weight / whole)
        return steps

    def _step_of(self, index: int, step: TrainingStep, gradient: Gradient) -> None:
        """Step the optimizer with one objective's gradient and state; the parameters move."""
        if index == 0:
            apply(step, gradient)
            return
        optimizer = step.optimizer
        own = self._states[index - 1]
        reached = [number for number, part in enumerate(gradient) if part is not None]
        primary: dict[int, dict[str, Any]] = {}
        for number in reached:
            parameter = step.parameters[number]
            primary[number] = optimizer.state.pop(parameter, {})
            if number in own:  # after a resume its moments are on the CPU, where steps are counted
                optimizer.state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device)
                    for key, value in own[number].items()
                }
        decays = [group["weight_decay"] for group in optimizer.param_groups]
        try:
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.0
            apply(step, gradient)
        finally:
            for group, decay in zip(optimizer.param_groups, decays, strict=True):
                group["weight_decay"] = decay
            for number in reached:
                parameter = step.parameters[number]
                own[number] = optimizer.state.pop(parameter, {})
                if primary[number]:
                    optimizer.state[parameter] = primary[number]

    def state_dict(self) -> dict[str, Tensor]:
        """The optimizer states of the auxiliary objectives, by objective, parameter and key."""
        return {
            f"{index}/{number}/{key}": torch.as_tensor(value)
            for index, states in enumerate(self._states)
            for number, state in states.items()
            for key, value in state.items()
            if value is not None
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        for states in self._states:
            states.clear()
        for name, value in state.items():
            index, number, key = name.split("/", 2)
            self._states[int(index)].setdefault(int(number), {})[key] = value.clone()


def _take_back(
    parameters: Sequence[Tensor], before: Sequence[Tensor], gradient: Gradient
) -> Gradient:
    """Return a step that was made with a gradient, and undo it."""
    found: Gradient = []
    with torch.no_grad():
        for parameter, old, part in zip(parameters, before, gradient, strict=True):
            if part is None:
                found.append(None)
                continue
            found.append(parameter.detach() - old)
            parameter.copy_(old)
    return found
