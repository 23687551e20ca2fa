r"""Weights learned from validation data, by the exact derivative of one or several updates.

Weights are :math:`w = \mathrm{softmax}(z)`. A step computes the gradient :math:`g_i` of every
objective at the current parameters, updates :math:`\theta' = U(\theta, \sum_i w_i g_i)` with the
real optimizer, and takes the validation gradient :math:`v` at :math:`\theta'`. Then

.. math:: \partial L_{val} / \partial w_i = v^\top (\partial U / \partial g) \, g_i

is the exact meta-gradient of one step: only the optimizer update is differentiated, never the
encoder twice. It keeps to the aim of META-TARTAN (Dery et al. 2022, "Should We Be Pre-training?"),
whose own rule leaves out the optimizer and the derivative of the softmax.

With ``unroll: K`` the validation loss is differentiated through the K updates to come, were the
weights to stay as they are (as Franceschi et al. 2018 and MAML do); the first of them is made.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from auxlearn.registry import register_weighting
from auxlearn.weighting.base import DevHead, Problem, ValidationOptions, apply, mix
from auxlearn.weighting.gram import shared, unshared
from auxlearn.weighting.learned import LogitOptions, LogitWeighting, alignment, scales
from auxlearn.weighting.update import UpdateDerivative, inner_products

#: How far a logit can move while the weights are learned. Of two objectives both logits move, so
#: that the primary's share can rise from 0.5 to 0.99 or fall to 0.01.
REACH = 2.5


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

    warmup: int = Field(
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
        "parameters before it is weighted (primary), or weight it as it is (none).",
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

    @property
    def validation_batches(self) -> int:
        """As many as the option says."""
        return self.options.batches

    @property
    def differentiates_twice(self) -> bool:
        """Whether several updates are unrolled."""
        return self.options.unroll > 1

    def learn(self, problem: Problem) -> None:
        """Update the parameters, and the weights by what the update did."""
        options = self.options
        steps = options.learn_share * problem.total_steps
        for group in self.optimizer.param_groups:
            group["lr"] = logit_rate(problem.step, steps, options.every, options.learning_rate)
        if self.options.unroll > 1:
            self._unrolled(problem)
        else:
            self._one_step(problem)

    def _one_step(self, problem: Problem) -> None:
        gradients = problem.gradients()
        parts = problem.parts
        inside, outside = inner_products(
            [shared(gradient, parts) for gradient in gradients],
            [unshared(gradient, parts) for gradient in gradients],
        )
        gram = inside + outside
        factors = self.factors(inside.diagonal().sqrt())
        weights = self.weights * factors
        derivative = UpdateDerivative(problem.optimizer, problem.parameters, problem.clip_norm)
        apply(problem, mix(gradients, weights))
        by_weight, aligned = derivative.by_weights(
            gradients, weights, gram, problem.validation_gradient(batches=self.options.batches)
        )
        self._record = alignment(problem.names, gram, aligned) | scales(problem.names, factors)
        self.descend(factors * by_weight)

    def _unrolled(self, problem: Problem) -> None:
        from auxlearn.weighting.differentiable import unrolled_gradient

        heads_only = self.options.unroll_over == "heads"
        # An unroll gives the gradient of the weighted sum alone: norms take a pass of their own.
        # The factors of the first step hold for all of them.
        scaled = self.options.scale != "none"
        factors = self.factors_of(problem.gradients() if scaled else [], problem)
        weights = self.weights * factors
        by_weight, first = unrolled_gradient(
            problem, weights, self.options.unroll, heads_only, self.options.batches
        )
        self._record = scales(problem.names, factors)
        if heads_only:
            problem.backward(weights)
            problem.update()
        else:
            apply(problem, first)
        self.descend(factors * by_weight.to(factors))
