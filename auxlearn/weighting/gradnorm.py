"""GradNorm: weights that balance the norms of the objectives' gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.metric_names import Quantity
from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, losses_of
from auxlearn.weighting.gradients import dot, gather_scalars, shared_gradient
from auxlearn.weighting.learned import LearnedOptions, LearnedWeighting
from auxlearn.weighting.mixing import KeptWeights

#: Lower bound of a weight: from zero it could not increase again.
MIN_WEIGHT = 1e-4

#: Smallest initial loss that a loss is divided by.
EPSILON = 1e-12


def gradnorm_weight_gradient(
    weights: Tensor, norms: Tensor, losses: Tensor, initial_losses: Tensor, alpha: float
) -> Tensor:
    """Return the gradient of GradNorm's loss by the weights, from norms of unweighted gradients."""
    # Of a loss that was zero at first, the progress is unknown: it counts as none.
    ratios = losses / initial_losses.clamp(min=EPSILON)
    progress = torch.where(initial_losses > 0, ratios, 1)
    weighted = weights * norms
    target = weighted.mean() * (progress / progress.mean()) ** alpha
    return (weighted - target).sign() * norms


def renormalised(weights: Tensor) -> Tensor:
    """Return weights of at least :data:`MIN_WEIGHT`, scaled to sum to their number."""
    bounded = weights.clamp(min=MIN_WEIGHT)
    return bounded * (len(bounded) / bounded.sum())


class GradNormOptions(LearnedOptions):
    alpha: float = Field(1.5, ge=0)
    """Exponent of the relative inverse training rates: the higher, the larger the gradients of
    objectives whose loss decreases slowly; 0: equal norms."""

    learning_rate: float = Field(0.025, gt=0)
    """Learning rate of Adam on the weights."""


@register_weighting("gradnorm")
class GradNorm(KeptWeights, LearnedWeighting):
    r"""Weights that let all objectives train at similar rates (Chen et al. 2018).

    Chen, Badrinarayanan, Lee and Rabinovich 2018, "GradNorm: Gradient Normalization for Adaptive
    Loss Balancing in Deep Multitask Networks", https://arxiv.org/abs/1711.02257, Algorithm 1.

    With :math:`w_i` the weight of objective i, :math:`g_i` the gradient of its loss :math:`L_i`
    over the shared parameters, and :math:`L_i(0)` the loss in the first step,

    .. math::
        G_i = w_i \lVert g_i \rVert, \qquad \bar G = \mathrm{mean}_j \, G_j, \qquad
        r_i = \frac{L_i / L_i(0)}{\mathrm{mean}_j \, L_j / L_j(0)},

    the weights minimise :math:`\sum_i | G_i - \bar G r_i^\alpha |` by Adam, where the targets
    :math:`\bar G r_i^\alpha` are held constant, and are then scaled to sum to the number of
    objectives. :math:`r_i` is the relative inverse training rate: above 1 for an objective whose
    loss has decreased less than the others', which then gets a larger gradient norm. The exponent
    :math:`\alpha` says how much larger.

    Departure from the paper: the norms are over the whole encoder. The paper uses the last shared
    layer only, to save time; here the gradients of all layers are computed anyway.
    """

    Options = GradNormOptions
    options: GradNormOptions
    buffers = ("_weights", "_first")

    def __init__(self, options: GradNormOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = self.initial_weights() * len(self.objectives)
        self._first = torch.zeros_like(self._weights)
        self.optimizer = torch.optim.Adam([self._weights], lr=options.learning_rate)

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step; keep the losses of the first step of all, warm-up or not."""
        super().step(step)
        if not self._first.any():
            self._first.copy_(losses_of(step))

    def learn(self, step: TrainingStep) -> None:
        gradients = step.gradients()
        shared = [shared_gradient(gradient, step.placements) for gradient in gradients]
        norms = [dot(gradient, gradient).sqrt() for gradient in shared]
        self.mixture.step(step, self.weights, gradients)
        found = gather_scalars([*norms, *(step.losses[name] for name in step.names)])
        values, losses = found.split(len(norms))
        self._metrics = Quantity.NORM.row(step.names, values.tolist())
        if not self._first.any():
            self._first.copy_(losses)
        self._weights.grad = gradnorm_weight_gradient(
            self._weights, values, losses, self._first, self.options.alpha
        )
        self.optimizer.step()
        self._weights.copy_(self.with_floor(renormalised(self._weights)))
