r"""Smooth Tchebycheff weights: the worst loss counts most (Lin, Zhang, Yang, Liu, Wang and Zhang
2024, "Smooth Tchebycheff Scalarization for Multi-Objective Optimization",
https://arxiv.org/abs/2402.19078).

With :math:`N_i` the mean of loss i over the last steps of a warm-up, what is minimised is the
smooth maximum of n log losses relative to their size then,

.. math:: n \, \mu \log \sum_i \exp\bigl( \log(L_i / N_i) / \mu \bigr),

so that the weight of loss i is :math:`n \, \mathrm{softmax}_i(\log(L_i / N_i) / \mu) / L_i`. The
smaller :math:`\mu`, the closer to the maximum alone; with :math:`\mu = 1` the weights are
:math:`n / N_i` over :math:`\sum_j L_j / N_j`. During the warm-up :math:`\sum_i \log L_i` is
minimised. This is the paper's scalarization with equal preferences, on the normalised log losses
of its code for multi-task learning.

Cost: the gradient of each objective is kept, because the weights depend on all losses of the step.

Departure from the authors' code (Xi-L/STCH, ``LibMTL/weighting/STCH.py``): it warms up for four
epochs and takes the mean over a fifth; here ``warmup_steps`` and ``window`` are numbers of steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.config import Settings
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import TrainingStep, Weighting, apply, mix

#: Added to losses before logarithms and divisions, as the authors do.
EPSILON = 1e-20


def stch_weights(losses: Tensor, nadir: Tensor, mu: float) -> Tensor:
    """Return the derivative of the smooth maximum by each loss.

    Args:
        losses: ``(objectives,)``, none negative.
        nadir: The losses that they are relative to, ``(objectives,)``, above zero.
        mu: The smoothing, above zero.

    Returns:
        ``(objectives,)``. Weighted with it, the losses sum to their number.
    """
    heights = (losses / nadir + EPSILON).log() / mu
    return len(losses) * heights.softmax(0) / (losses + EPSILON)


class SmoothTchebycheffOptions(Settings):
    """Settings of smooth Tchebycheff weights."""

    mu: float = Field(1.0, gt=0, description="Smoothing; the smaller, the more the worst counts.")
    warmup_steps: int = Field(50, ge=0, description="Steps on the sum of log losses at the start.")
    window: int = Field(
        50, ge=1, description="Further such steps, over which losses are averaged: the nadir."
    )


@register_weighting("stch")
class SmoothTchebycheff(Weighting):
    """Train on a smooth maximum of the losses relative to their size early on (Lin et al. 2024)."""

    Options = SmoothTchebycheffOptions
    options: SmoothTchebycheffOptions

    def __init__(self, options: SmoothTchebycheffOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = torch.ones(len(self.objectives), dtype=torch.float64)
        self._sums = torch.zeros_like(self._weights)

    @property
    def weights(self) -> Tensor:
        """The weights of the last step; 1 each before the first."""
        return self._weights.clone()

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step on the smooth maximum, or on the log losses at first."""
        gradients = step.gradients()
        losses = torch.stack([step.losses[name] for name in step.names]).cpu().double()
        warmup_steps, window = self.options.warmup_steps, self.options.window
        if step.number < warmup_steps + window:
            self._weights = 1 / (losses + EPSILON)
            if step.number >= warmup_steps:
                self._sums = self._sums + losses
        else:
            self._weights = stch_weights(losses, self._sums / window, self.options.mu)
        apply(step, mix(gradients, self._weights))

    def state_dict(self) -> dict[str, Tensor]:
        """The sums of the losses that they are compared with, and the weights of the last step."""
        return {"sums": self._sums, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self._sums = state["sums"].clone()
        self._weights = state["weights"].clone()
