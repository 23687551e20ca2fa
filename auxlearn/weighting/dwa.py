"""Dynamic weight average (DWA): weights from the rate at which each loss decreases."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, losses_of
from auxlearn.weighting.learned import LearnedOptions, LearnedWeighting
from auxlearn.weighting.mixing import KeptWeights

#: Smallest loss that another is divided by.
EPSILON = 1e-12


def dwa_weights(previous: Tensor, before: Tensor, temperature: float) -> Tensor:
    """Return weights, with sum ``objectives``, by the mean losses of the last two windows."""
    # Of a loss that was zero, nothing is known of the rate: it counts as constant.
    rates = torch.where(before > 0, previous / before.clamp(min=EPSILON), 1)
    shares = (rates / temperature).softmax(0)
    return shares * len(shares)


class DynamicWeightAverageOptions(LearnedOptions):
    temperature: float = Field(2.0, gt=0)
    """Temperature T; the higher, the more equal the weights."""

    window: int = Field(50, ge=1)
    """Optimizer steps over which losses are averaged; in the paper, an epoch."""


@register_weighting("dwa")
class DynamicWeightAverage(KeptWeights, LearnedWeighting):
    r"""Weights from the rate at which each loss decreases (Liu et al. 2019).

    Liu, Johns and Davison 2019, "End-to-End Multi-Task Learning with Attention",
    https://arxiv.org/abs/1803.10704, equation 7. With n objectives, :math:`L_i(t)` the mean of loss
    i over window t, and the temperature T,

    .. math:: w_i(t) = n \, \mathrm{softmax}_i \bigl( r_i(t-1) / T \bigr), \qquad
        r_i(t-1) = L_i(t-1) / L_i(t-2):

    an objective whose loss has decreased less than the others' gets a larger weight.

    Departure from the paper: a window is a number of optimizer steps; there it is an epoch.

    During the first two windows the weights are the initial ones.
    """

    Options = DynamicWeightAverageOptions
    options: DynamicWeightAverageOptions
    buffers = ("_weights", "_sums", "_previous", "_count")

    def __init__(self, options: DynamicWeightAverageOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = self.initial_weights() * len(self.objectives)
        self._sums = torch.zeros_like(self._weights)
        self._previous = torch.zeros_like(self._weights)
        self._count = torch.zeros((), dtype=torch.int64)

    def learn(self, step: TrainingStep) -> None:
        self.mixture.step(step, self._weights)
        self._sums += losses_of(step)
        self._count += 1
        if int(self._count) % self.options.window == 0:
            mean = self._sums / self.options.window
            if self._previous.any():
                weights = dwa_weights(mean, self._previous, self.options.temperature)
                self._weights = self.with_floor(weights)
            self._previous, self._sums = mean, torch.zeros_like(mean)
