r"""Weights from learned noise (Kendall, Gal and Cipolla 2018, "Multi-Task Learning Using
Uncertainty to Weigh Losses").

Each objective has a noise :math:`\sigma_i^2 = e^{s_i}`, and what is minimised, in the parameters
and in every ``s`` alike, is :math:`\sum_i e^{-s_i} L_i + s_i / 2` (equation 10 for cross-entropies,
with the authors' advice to learn the logarithm).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, read
from auxlearn.weighting.learned import Learned, LearnedOptions


class UncertaintyOptions(LearnedOptions):
    """Settings of uncertainty weighting."""

    learning_rate: float = Field(0.01, gt=0, description="Learning rate of Adam on log variances.")


@register_weighting("uncertainty")
class Uncertainty(Learned):
    """Weights that fall where the loss stays high.

    Weights start at the given ones times the number of objectives, so that equal ones are 1.
    """

    Options = UncertaintyOptions
    options: UncertaintyOptions

    def __init__(self, options: UncertaintyOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        start = self.initial_weights() * len(self.objectives)
        self.log_variances = -start.log()
        self.optimizer = torch.optim.Adam([self.log_variances], lr=options.learning_rate)

    @property
    def weights(self) -> Tensor:
        """The inverse variances; they do not sum to a constant."""
        return self.floored((-self.log_variances).exp())

    def learn(self, step: TrainingStep) -> None:
        """Train on the weighted losses, and move each variance towards twice its loss."""
        weights = self.weights
        step.backward(weights)
        step.update()
        losses = read([step.losses[name] for name in step.names])
        self.log_variances.grad = 0.5 - (-self.log_variances).exp() * losses
        self.optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Log variances and the state of their optimizer."""
        return {"log_variances": self.log_variances, **self.optimizer.state[self.log_variances]}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back log variances and optimizer state."""
        self.log_variances.copy_(state["log_variances"])
        moments = {key: value.clone() for key, value in state.items() if key != "log_variances"}
        if moments:
            self.optimizer.state[self.log_variances] = moments
