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


class MetaOptions(LogitOptions, ValidationOptions):
    """Settings of meta-learned weights."""

    warmup: int = Field(
        5,
        ge=0,
        description="Updates before the weights move. The first steps of Adam are close to the "
        "sign of the gradient, and their derivative is lost in rounding.",
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
    def differentiates_twice(self) -> bool:
        """Whether several updates are unrolled."""
        return self.options.unroll > 1

    def learn(self, problem: Problem) -> None:
        """Update the parameters, and the weights by what the update did."""
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
            gradients, weights, gram, problem.validation_gradient()
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
        by_weight, first = unrolled_gradient(problem, weights, self.options.unroll, heads_only)
        self._record = scales(problem.names, factors)
        if heads_only:
            problem.backward(weights)
            problem.update()
        else:
            apply(problem, first)
        self.descend(factors * by_weight.to(factors))
