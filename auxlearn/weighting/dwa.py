r"""Dynamic weight average (Liu, Johns and Davison 2019, "End-to-End Multi-Task Learning with
Attention").

:math:`w_i(t) = n \, \mathrm{softmax}_i (r_i(t-1) / T)` with :math:`r_i(t-1) = L_i(t-1) / L_i(t-2)`
(equation 7): an objective whose loss has fallen less than the others' gets more weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, read
from auxlearn.weighting.learned import Learned, LearnedOptions


class DynamicWeightAverageOptions(LearnedOptions):
    """Settings of dynamic weight average."""

    temperature: float = Field(2.0, gt=0, description="T; the higher, the more equal the weights.")
    window: int = Field(
        50, ge=1, description="Updates over which losses are averaged; the paper takes an epoch."
    )


@register_weighting("dwa")
class DynamicWeightAverage(Learned):
    """Weights from how fast each loss falls; the initial ones stand for the first two windows."""

    Options = DynamicWeightAverageOptions
    options: DynamicWeightAverageOptions

    def __init__(self, options: DynamicWeightAverageOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = self.initial_weights() * len(self.objectives)
        self._sums = torch.zeros_like(self._weights)
        self._previous = torch.zeros_like(self._weights)
        self._count = torch.zeros((), dtype=torch.int64)

    @property
    def weights(self) -> Tensor:
        """The weights, which sum to the number of objectives."""
        return self._weights.clone()

    def learn(self, step: TrainingStep) -> None:
        """Train on the weighted losses; at the end of a window set the weights anew."""
        step.backward(self._weights)
        step.update()
        self._sums += read([step.losses[name] for name in step.names])
        self._count += 1
        if int(self._count) % self.options.window == 0:
            mean = self._sums / self.options.window
            if self._previous.any():
                rates = mean / self._previous.clamp(min=1e-12)
                shares = (rates / self.options.temperature).softmax(0)
                self._weights = self.floored(shares * len(shares))
            self._previous, self._sums = mean, torch.zeros_like(mean)

    def state_dict(self) -> dict[str, Tensor]:
        """Weights, and the losses of this window and the one before."""
        return {
            "weights": self._weights,
            "sums": self._sums,
            "previous": self._previous,
            "count": self._count,
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self._weights = state["weights"].clone()
        self._sums = state["sums"].clone()
        self._previous = state["previous"].clone()
        self._count = state["count"].clone()
