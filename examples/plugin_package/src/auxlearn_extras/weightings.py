"""Auxiliary tasks that fade out."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.plugins import Settings, TrainingStep, Weighting, register_weighting


class LinearDecayOptions(Settings):
    """Settings of the weighting."""

    start: float = Field(
        0.5, ge=0, lt=1, description="Share of all auxiliary tasks together in the first step."
    )


@register_weighting("linear_decay")
class LinearDecay(Weighting):
    """The share of the auxiliary tasks falls linearly to zero over the run."""

    Options = LinearDecayOptions
    options: LinearDecayOptions
    _left = 1.0

    @property
    def weights(self) -> Tensor:
        """The primary task's weight, then equal ones of the auxiliary tasks, ``(objectives,)``."""
        others = len(self.objectives) - 1
        share = self.options.start * self._left if others else 0.0
        shares = [1 - share, *[share / max(1, others)] * others]
        return torch.tensor(shares, dtype=torch.float64)

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step; the weights follow from its number alone."""
        self._left = max(0.0, 1 - step.number / step.total_steps)
        step.backward(self.weights)
        step.optimizer_step()
