"""Smooth Tchebycheff scalarization (STCH): the largest relative loss counts most."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_weighting
from auxlearn.core.validation import Described
from auxlearn.weighting.base import TrainingStep, apply_gradient, losses_of
from auxlearn.weighting.gradients import weighted_sum
from auxlearn.weighting.mixing import KeptWeights

#: Added to losses before logarithms and divisions, as the authors do.
EPSILON = 1e-20


def stch_weights(losses: Tensor, nadir: Tensor, mu: float) -> Tensor:
    """Return the derivative of the smooth maximum by each loss; weighted losses sum to their
    number. The weight of a loss of zero, or whose nadir is zero, is zero.
    """
    counted = (losses > 0) & (nadir > 0)
    relative = ((losses / nadir + EPSILON).log() / mu)[counted]
    weights = torch.zeros_like(losses)
    weights[counted] = len(losses) * relative.softmax(0) / (losses[counted] + EPSILON)
    return weights


class SmoothTchebycheffOptions(Described):
    mu: float = Field(1.0, gt=0)
    """Smoothing; the smaller, the more the largest relative loss counts."""

    warmup_steps: int = Field(50, ge=0)
    """Optimizer steps at the start that minimise the sum of log losses."""

    window: int = Field(50, ge=1)
    """Further such steps, over which the losses are averaged to the nadir."""


@register_weighting("stch")
class SmoothTchebycheff(KeptWeights):
    r"""Train on the smooth maximum of the losses relative to early ones (Lin et al. 2024).

    Lin, Zhang, Yang, Liu, Wang and Zhang 2024, "Smooth Tchebycheff Scalarization for
    Multi-Objective Optimization", https://arxiv.org/abs/2402.19078.

    With n objectives, losses :math:`L_i`, and :math:`N_i` the nadir, the mean of loss i over the
    last steps of a warm-up, the smooth maximum of the n log losses relative to their nadirs is
    minimised,

    .. math:: n \, \mu \log \sum_i \exp\bigl( \log(L_i / N_i) / \mu \bigr),

    so that the weight of loss i is :math:`n \, \mathrm{softmax}_i(\log(L_i / N_i) / \mu) / L_i`.
    The smaller the smoothing :math:`\mu`, the closer to the maximum alone; with :math:`\mu = 1` the
    weights are :math:`(n / N_i) / \sum_j (L_j / N_j)`. During the warm-up :math:`\sum_i \log L_i`
    is minimised. This is the paper's scalarization with equal preferences, on the normalised log
    losses of its code for multi-task learning.

    Departure from the authors' code (Xi-L/STCH, ``LibMTL/weighting/STCH.py``): it warms up for four
    epochs and takes the mean over a fifth; here ``warmup_steps`` and ``window`` are numbers of
    steps.

    A loss of exactly zero, such as one of a batch without a masked token, has no gradient, and the
    derivative of its logarithm would be without bound: in such a step it has weight zero.
    """

    Options = SmoothTchebycheffOptions
    options: SmoothTchebycheffOptions
    buffers = ("_sums", "_weights")

    def __init__(self, options: SmoothTchebycheffOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._sums = torch.zeros_like(self._weights)

    def step(self, step: TrainingStep) -> None:
        gradients = step.gradients()
        losses = losses_of(step)
        warmup_steps, window = self.options.warmup_steps, self.options.window
        if step.number < warmup_steps + window:
            self._weights = torch.where(losses > 0, 1 / (losses + EPSILON), 0)
            if step.number >= warmup_steps:
                self._sums = self._sums + losses
        else:
            self._weights = stch_weights(losses, self._sums / window, self.options.mu)
        apply_gradient(step, weighted_sum(gradients, self._weights))
