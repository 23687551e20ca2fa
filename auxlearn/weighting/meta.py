r"""Weights learned from validation data, by the exact derivative of one update.

Weights are :math:`w = \mathrm{softmax}(z)`. A step computes the gradient :math:`g_i` of every
objective at the current parameters, updates :math:`\theta' = U(\theta, \sum_i w_i g_i)` with the
real optimizer, and takes the validation gradient :math:`v` at :math:`\theta'`. Then

.. math:: \partial L_{val} / \partial w_i = v^\top (\partial U / \partial g) \, g_i

is the exact meta-gradient of one step: only the optimizer update is differentiated, never the
encoder twice. It keeps to the aim of META-TARTAN (Dery et al. 2022, "Should We Be Pre-training?"),
whose own rule leaves out the optimizer and the derivative of the softmax.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.config import Settings
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import Gradient, Problem, Weighting, dot, mix
from auxlearn.weighting.differentiable import UpdateDerivative


class MetaOptions(Settings):
    """Settings of meta-learned weights."""

    split: str = Field(
        "dev",
        pattern=r"^(dev|train:0?\.\d*[1-9]\d*)$",
        description="Rows that steer the weights: dev, or train:SHARE to hold out some of train.",
    )
    every: int = Field(1, ge=1, description="Updates from one change of the weights to the next.")
    warmup: int = Field(
        5,
        ge=0,
        description="Updates before the weights move. The first steps of Adam are close to the "
        "sign of the gradient, and their derivative is lost in rounding.",
    )
    learning_rate: float = Field(0.02, gt=0, description="Learning rate of Adam on the logits.")
    batch_size: int | None = Field(
        None, ge=1, description="Validation rows of a step; by default the training batch size."
    )


@register_weighting("meta")
class Meta(Weighting):
    """Softmax weights that follow the exact one-step meta-gradient.

    The meta-gradient is small and of no fixed scale (it carries the learning rate), so the logits
    are moved by Adam, whose steps do not depend on the scale.
    """

    Options = MetaOptions
    options: MetaOptions

    def __init__(self, options: MetaOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self.logits = torch.zeros(len(objectives), dtype=torch.float64, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.logits], lr=options.learning_rate)
        self._record: dict[str, float] = {}

    @property
    def validation_split(self) -> str:
        """The rows that steer the weights."""
        return self.options.split

    @property
    def weights(self) -> Tensor:
        """Softmax of the logits."""
        return self.logits.detach().softmax(0)

    def step(self, problem: Problem) -> None:
        """Update the encoder, and on a meta-step the weights by what the update did."""
        options = self.options
        if (
            len(self.objectives) == 1
            or problem.step < options.warmup
            or (problem.step % options.every)
        ):
            problem.backward(self.weights)
            problem.update()
            self._record = {}
            return
        gradients = problem.gradients()
        mixed = mix(gradients, self.weights)
        derivative = UpdateDerivative(problem.optimizer, problem.parameters, problem.clip_norm)
        for parameter, grad in zip(problem.parameters, mixed, strict=True):
            # The update clips in place; the derivative needs the gradient before clipping.
            parameter.grad = None if grad is None else grad.clone()
        problem.update()
        validation = problem.validation_gradient()
        pulled = derivative.pull_back(mixed, validation, problem.parameters)
        by_weight = torch.stack([dot(pulled, gradient) for gradient in gradients])
        self._move(by_weight.cpu())
        self._record = _alignment(problem.names, gradients, validation)

    def record(self) -> dict[str, float]:
        """Cosine of each objective's gradient with the validation gradient, and its norm."""
        return self._record

    def state_dict(self) -> dict[str, Tensor]:
        """Logits and the state of their optimizer."""
        state = self.optimizer.state[self.logits]
        return {"logits": self.logits.detach(), **state}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back logits and optimizer state."""
        with torch.no_grad():
            self.logits.copy_(state["logits"])
        moments = {key: value for key, value in state.items() if key != "logits"}
        if moments:
            self.optimizer.state[self.logits] = {k: v.clone() for k, v in moments.items()}

    def _move(self, by_weight: Tensor) -> None:
        """Pass the derivative by the weights on to the logits, and step them."""
        (self.logits.grad,) = torch.autograd.grad(
            self.logits.softmax(0), self.logits, by_weight.double()
        )
        self.optimizer.step()


def _alignment(
    names: Sequence[str], gradients: Sequence[Gradient], validation: Gradient
) -> dict[str, float]:
    size = dot(validation, validation).sqrt()
    figures = {"norm/validation": float(size)}
    for name, gradient in zip(names, gradients, strict=True):
        norm = dot(gradient, gradient).sqrt()
        figures[f"norm/{name}"] = float(norm)
        figures[f"cosine/{name}"] = float(
            dot(gradient, validation) / (norm * size).clamp(min=1e-30)
        )
    return figures
