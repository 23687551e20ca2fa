r"""Weights learned from validation data, by the exact derivative of one or several steps.

Weights are :math:`w = \mathrm{softmax}(z)`. By default each objective makes an optimizer step of
its own, :math:`u_i`, and :math:`\theta' = \theta + u_0 + \sum_i (w_i / w_0) u_i`
(:mod:`auxlearn.weighting.separate`). With the validation gradient :math:`v` at :math:`\theta'`,

.. math:: \partial L_{val} / \partial z_i = (w_i / w_0) \, v^\top u_i

is the exact meta-gradient of one step: the encoder is never differentiated twice.

With ``mix: gradients``, :math:`\theta' = U(\theta, \sum_i w_i g_i)` is one step of the optimizer
with the gradient :math:`g_i` of every objective at the current parameters, and
:math:`\partial L_{val} / \partial w_i = v^\top (\partial U / \partial g) \, g_i`, exact as well:
only the optimizer step is differentiated. Both keep to the aim of META-TARTAN (Dery et al. 2022,
"Should We Be Pre-training?"), whose own rule leaves out the optimizer and the derivative of the
softmax.

With ``unroll: K`` the validation loss is differentiated through the K steps to come, were the
weights to stay as they are (as Franceschi et al. 2018 and MAML do); the first of them is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.errors import ConfigError
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import (
    DevHead,
    Gradient,
    TrainingStep,
    ValidationOptions,
    apply,
    dot,
    mix,
    read,
)
from auxlearn.weighting.gram import shared, unshared
from auxlearn.weighting.learned import LogitOptions, LogitWeighting, alignment, scales
from auxlearn.weighting.separate import SeparateSteps
from auxlearn.weighting.step_derivative import UpdateDerivative, inner_products

#: Share of the primary task at the start, and the least that it can have.
PRIMARY, FLOOR = 0.9, 0.4

#: How far a logit can move while the weights are learned. The ratio of two weights can so change by
#: a factor of exp(2.5), about 12.
REACH = 1.25


def logit_rate(step: int, steps: float, every: int, first: float | None) -> float:
    """Return the learning rate of the logits in a step: it falls linearly to 0.

    Adam moves a logit by about its learning rate in each step, whatever the size of the gradient.
    So the number of steps decides how far the weights can get, and the default rate is in inverse
    proportion to it.

    Args:
        step: The step, from 0.
        steps: Steps in which weights are learned.
        every: Steps from one change of the logits to the next.
        first: The rate in step 0; ``None`` for one that lets a logit move by :data:`REACH`, but at
            most 1.
    """
    if first is None:
        first = min(1.0, 2 * REACH * every / steps)
    return first * max(0.0, 1 - step / steps)


class MetaOptions(LogitOptions, ValidationOptions):
    """Settings of meta-learned weights."""

    mix: Literal["steps", "gradients"] = Field(
        "steps",
        description="What is weighted: an optimizer step of each objective, made with moments of "
        "its own, or gradients that share one optimizer state.",
    )
    floor: float = Field(
        FLOOR, ge=0, lt=1, description="Least share that the primary task has of all weights."
    )
    warmup_steps: int = Field(
        5,
        ge=0,
        description="Updates before the weights move. The first steps of Adam are close to the "
        "sign of the gradient, and their derivative is lost in rounding.",
    )
    learn_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Share of the optimizer steps, from the first on, in which the weights are "
        "learned; the learning rate of the logits falls linearly to 0 over them, and afterwards "
        "the weights are held fixed.",
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="Learning rate of the logits in the first step; by default as large as lets a "
        f"logit change by {REACH:g} in all.",
    )
    scale: Literal["none", "primary"] = Field(
        "primary",
        description="Scale each gradient to the norm of the primary task's over the shared "
        "parameters before it is weighted (primary), or weight it as it is (none). Steps of "
        "separate moments have one size anyway.",
    )
    batches: int = Field(
        3, ge=1, description="Validation batches that the meta-gradient of a step is averaged over."
    )
    dev_head: Literal["own", "closed", "fitted"] = Field(
        "own",
        description="Head that the validation loss is read through: the run's own, or a fresh one "
        "for other validation rows, in closed form (differentiated as well) or fitted in a few "
        "steps (then held while differentiating).",
    )
    unroll: int = Field(
        1,
        ge=1,
        description="Updates that the validation loss is differentiated through. More than one "
        "keeps the graphs of all of them and needs several times the memory.",
    )
    unroll_over: Literal["all", "heads"] = Field(
        "all",
        description="What an unroll of several updates moves. With heads the body rests; "
        "objectives that share no head with the primary task then teach nothing.",
    )


@register_weighting("meta")
class Meta(LogitWeighting):
    """Softmax weights that follow the exact meta-gradient.

    The meta-gradient is small and of no fixed scale (it carries the learning rate), so the logits
    are moved by Adam, whose steps do not depend on the scale.
    """

    Options = MetaOptions
    options: MetaOptions

    @property
    def dev_head(self) -> DevHead:
        """The head that the option names."""
        return self.options.dev_head

    def __init__(self, options: MetaOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        if options.unroll > 1 and options.mix == "steps":
            raise ConfigError(
                f"{self.name}: unroll {options.unroll} differentiates through steps of one shared "
                "optimizer state: add mix gradients"
            )
        self._separate = SeparateSteps(len(self.objectives))

    def default_weights(self) -> Tensor:
        """0.9 for the primary task, the rest in equal parts for the others."""
        others = max(1, len(self.objectives) - 1)
        weights = torch.full((len(self.objectives),), (1 - PRIMARY) / others, dtype=torch.float64)
        weights[0] = PRIMARY
        return weights / weights.sum()

    def step(self, step: TrainingStep) -> None:
        """Make an optimizer step, and one of the logits if their schedule says so."""
        if self.options.mix == "gradients" or len(self.objectives) == 1:
            super().step(step)
            return
        gradients = step.gradients()
        weights = self.weights
        steps = self._separate.step(step, gradients, weights)
        self._record = {}
        if self.moves(step):
            self._set_rate(step)
            self._learn_from(step, gradients, weights, steps)

    def _learn_from(
        self,
        step: TrainingStep,
        gradients: Sequence[Gradient],
        weights: Tensor,
        steps: Sequence[Gradient],
    ) -> None:
        r"""Step the logits by the derivative of the validation loss after separate steps.

        With :math:`r_i = w_i / w_0 = e^{z_i - z_0}`, :math:`\theta' = \theta + u_0 + \sum r_i u_i`
        wherever the primary task has a gradient, and nowhere else has the validation loss one. So
        :math:`\partial L_{val} / \partial z_i = r_i \, v^\top u_i`, and for :math:`z_0` it is minus
        the sum of these.
        """
        validation = step.validation_gradient(batches=self.options.batches)
        found = read(
            [
                dot(validation, validation),
                *(dot(u, u) for u in steps),
                *(dot(u, validation) for u in steps),
                *(dot(gradient, gradient) for gradient in gradients),
            ]
        )
        size, sizes, pulls, norms = found.split([1, len(steps), len(steps), len(steps)])
        by_logit = weights / weights[0] * pulls
        by_logit[0] = -by_logit[1:].sum()
        self.descend_logits(by_logit)
        cosines = -pulls / (size * sizes).sqrt().clamp(min=1e-30)
        self._record = {"norm/validation": float(size.sqrt())}
        for name, norm, cosine in zip(step.names, norms.sqrt(), cosines, strict=True):
            self._record[f"norm/{name}"] = float(norm)
            self._record[f"cosine/{name}"] = float(cosine)

    @property
    def validation_batches(self) -> int:
        """As many as the option says."""
        return self.options.batches

    @property
    def differentiates_twice(self) -> bool:
        """Whether several updates are unrolled."""
        return self.options.unroll > 1

    def learn(self, step: TrainingStep) -> None:
        """Update the parameters, and the weights by what the update did."""
        self._set_rate(step)
        if self.options.unroll > 1:
            self._unrolled(step)
        else:
            self._one_step(step)

    def _set_rate(self, step: TrainingStep) -> None:
        options = self.options
        steps = options.learn_share * step.total_steps
        for group in self.optimizer.param_groups:
            group["lr"] = logit_rate(step.number, steps, options.every, options.learning_rate)

    def _one_step(self, step: TrainingStep) -> None:
        gradients = step.gradients()
        parts = step.parts
        inside, outside = inner_products(
            [shared(gradient, parts) for gradient in gradients],
            [unshared(gradient, parts) for gradient in gradients],
        )
        gram = inside + outside
        factors = self.factors(inside.diagonal().sqrt())
        weights = self.weights * factors
        derivative = UpdateDerivative(step.optimizer, step.parameters, step.max_grad_norm)
        apply(step, mix(gradients, weights))
        by_weight, aligned = derivative.by_weights(
            gradients, weights, gram, step.validation_gradient(batches=self.options.batches)
        )
        self._record = alignment(step.names, gram, aligned) | scales(step.names, factors)
        self.descend(factors * by_weight)

    def _unrolled(self, step: TrainingStep) -> None:
        from auxlearn.weighting.unrolling import unrolled_gradient

        heads_only = self.options.unroll_over == "heads"
        # An unroll gives the gradient of the weighted sum alone: norms take a pass of their own.
        # The factors of the first step hold for all of them.
        scaled = self.options.scale != "none"
        factors = self.factors_of(step.gradients() if scaled else [], step)
        weights = self.weights * factors
        by_weight, first = unrolled_gradient(
            step, weights, self.options.unroll, heads_only, self.options.batches
        )
        self._record = scales(step.names, factors)
        if heads_only:
            step.backward(weights)
            step.update()
        else:
            apply(step, first)
        self.descend(factors * by_weight.to(factors))

    def state_dict(self) -> dict[str, Tensor]:
        """Logits, the state of their optimizer, and the moments of the auxiliary objectives."""
        moments = self._separate.state_dict()
        return super().state_dict() | {f"steps/{key}": value for key, value in moments.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        moments = {k.removeprefix("steps/"): v for k, v in state.items() if k.startswith("steps/")}
        super().load_state_dict({k: v for k, v in state.items() if not k.startswith("steps/")})
        self._separate.load_state_dict(moments)
