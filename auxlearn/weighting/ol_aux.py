"""OL-AUX: auxiliary weights that follow inner products with the primary gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.metric_names import Quantity
from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import KeptWeights, TrainingStep
from auxlearn.weighting.gradients import dot, shared_gradient
from auxlearn.weighting.learned import LearnedOptions, LearnedWeighting


def ol_aux_slopes(products: Tensor, losses: Tensor, least: float) -> Tensor:
    r"""Return :math:`\langle \nabla \log L_0, \nabla \log L_i \rangle`, ``(objectives,)``.

    ``products`` are those of the gradients of the losses themselves.
    """
    shifted = losses + least
    return products / (shifted * shifted[0])


def ol_aux_coefficients(weights: Tensor, losses: Tensor, least: float) -> Tensor:
    """Return the factors of the losses' gradients that weights of log losses amount to."""
    shifted = losses + least
    return weights * (shifted[0] / shifted)


def ol_aux_weights(weights: Tensor, slopes: Tensor, learning_rate: float) -> Tensor:
    """Return the weights after an update by the mean slopes; 1 for the primary task."""
    updated = (weights + learning_rate * slopes).clamp(min=0)
    updated[0] = 1
    return updated


class OLAuxOptions(LearnedOptions):
    learning_rate: float = Field(0.025, gt=0)
    """Learning rate of the weights."""

    every: int = Field(5, ge=1)
    """Optimizer steps from one update of the weights to the next, over which the inner products are
    averaged: the horizon N."""

    least: float = Field(0.02, gt=0)
    """Added to a loss before its logarithm, for stability near zero."""


@register_weighting("ol_aux")
class OLAux(KeptWeights, LearnedWeighting):
    r"""Weights that grow while a task's gradient agrees with the primary's (Lin et al. 2019).

    Lin, Baweja, Kantor and Held 2019, "Adaptive Auxiliary Task Weighting for Reinforcement
    Learning", NeurIPS 32,
    https://papers.nips.cc/paper/2019/hash/0e900ad84f63618452210ab8baae0218-Abstract.html.

    The loss is :math:`\log L_0 + \sum_i w_i \log L_i`, with :math:`L_0` the primary loss and
    :math:`w_i` the weight of auxiliary loss :math:`L_i`: logarithms bring losses of different
    scales together. By an SGD step of learning rate :math:`\alpha`, auxiliary task i changes
    :math:`\log L_0` by :math:`-\alpha \, w_i \langle \nabla \log L_0, \nabla \log L_i \rangle` to
    first order. So after every N steps the weights ascend the mean of these inner products over the
    N steps, and are kept from becoming negative:

    .. math:: w_i \leftarrow \max\bigl(0, \; w_i + \eta \, \mathrm{mean}_{t}
        \langle \nabla \log L_0, \nabla \log L_i \rangle_t \bigr)

    with :math:`w_i = 1` at the start, gradients over the shared parameters, t the step within the N
    steps, and :math:`\eta` the ``learning_rate``. No validation examples: the primary task's
    training loss decides.

    Departures from the code of one of the authors (Xingyu-Lin/auxiliary-tasks-rl,
    ``olaux/ddpg.py``, by its own account not the code behind the paper's results):

    * The loss is multiplied by :math:`L_0`, held constant, so that the primary gradient stays as it
      is; under Adam the scale has no effect.
    * That code takes the gradient of the whole weighted sum for the primary gradient in the inner
      products; here it is the primary task's own, as in the paper.
    * Its learning rate of the weights is 5 times N = 5, and multiplies the mean of the inner
      products times the parameters' learning rate of 1e-3; here :math:`\eta` is the product of the
      three, 0.025. Its moving mean over four gradients is left out.
    * ``least`` is added to every loss before the logarithm, there to auxiliary losses only.
    """

    Options = OLAuxOptions
    options: OLAuxOptions
    _sums: Tensor
    _count: Tensor

    def __init__(self, options: OLAuxOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        start = self.initial_weights()
        self.current = start / start[0]
        self.register_buffer("_sums", torch.zeros_like(self.current))
        self.register_buffer("_count", torch.zeros((), dtype=torch.int64))

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step on the log losses, whether the weights are learned or fixed."""
        self.learn(step)

    def learn(self, step: TrainingStep) -> None:
        gradients = step.gradients()
        losses = torch.stack([step.losses[name].double() for name in step.names])
        shared = [shared_gradient(gradient, step.placements) for gradient in gradients]
        products = torch.stack([dot(gradient, shared[0]).to(losses) for gradient in shared])
        losses, products = torch.stack([losses, products]).cpu()  # synchronises with a GPU once
        least = self.options.least
        coefficients = ol_aux_coefficients(self.current, losses, least)
        self.mixture.step(step, coefficients, gradients)
        self._metrics = {}
        if not self.is_learning(step):
            return
        slopes = ol_aux_slopes(products, losses, least)
        named = zip(step.names[1:], slopes[1:].tolist(), strict=True)
        self._metrics = {Quantity.SLOPE.key(name): slope for name, slope in named}
        self._sums = self._sums + slopes
        self._count += 1
        if int(self._count) == self.options.every:
            mean = self._sums / self.options.every
            updated = ol_aux_weights(self.current, mean, self.options.learning_rate)
            updated = self.with_floor(updated)
            self.current = updated / updated[0]
            self._sums = torch.zeros_like(self._sums)
            self._count.zero_()
