"""Uncertainty weighting: weights from the learned noise of each objective."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, losses_of
from auxlearn.weighting.learned import LearnedOptions, LearnedWeighting


def uncertainty_weights(log_variances: Tensor) -> Tensor:
    """Return the inverse variances ``exp(-log_variances)``, ``(objectives,)``."""
    return (-log_variances).exp()


def uncertainty_gradient(log_variances: Tensor, losses: Tensor) -> Tensor:
    """Return the gradient of the minimised sum by the log variances, ``(objectives,)``."""
    return 0.5 - (-log_variances).exp() * losses


class UncertaintyOptions(LearnedOptions):
    learning_rate: float = Field(0.01, gt=0)
    """Learning rate of Adam on log variances."""


@register_weighting("uncertainty")
class Uncertainty(LearnedWeighting):
    r"""Smaller weights for objectives whose loss stays high (Kendall et al. 2018).

    Kendall, Gal and Cipolla 2018, "Multi-Task Learning Using Uncertainty to Weigh Losses for Scene
    Geometry and Semantics", https://arxiv.org/abs/1705.07115.

    Each objective i has a learned log variance :math:`s_i = \log \sigma_i^2`. The model's
    parameters and the log variances together minimise

    .. math:: \sum_i e^{-s_i} L_i + s_i / 2

    (equation 10 for cross-entropies, with the logarithm learned as the authors advise). So the
    weight of loss :math:`L_i` is :math:`e^{-s_i}`; at a constant loss it converges to :math:`1 / (2
    L_i)`.

    Initial weights are multiplied by the number of objectives, so that equal ones are 1.
    """

    Options = UncertaintyOptions
    options: UncertaintyOptions
    buffers = ("log_variances",)

    def __init__(self, options: UncertaintyOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        start = self.initial_weights() * len(self.objectives)
        self.log_variances = -start.log()
        self.optimizer = torch.optim.Adam([self.log_variances], lr=options.learning_rate)

    @property
    def weights(self) -> Tensor:
        """Inverse variances; they do not sum to a constant."""
        return self.with_floor(uncertainty_weights(self.log_variances))

    def learn(self, step: TrainingStep) -> None:
        weights = self.weights
        self.mixture.step(step, weights)
        losses = losses_of(step)
        self.log_variances.grad = uncertainty_gradient(self.log_variances, losses)
        self.optimizer.step()
