"""Random loss weighting (RLW)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auxlearn.core import rng
from auxlearn.core.registry import register_weighting
from auxlearn.core.validation import Settings
from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.mixing import KeptWeights, LossWeighting, equal_weights


def random_weights(count: int, generator: torch.Generator) -> Tensor:
    """Return the softmax of standard normal numbers, ``(count,)``, float64."""
    return torch.randn(count, generator=generator, dtype=torch.float64).softmax(0)


@register_weighting("random")
class RandomWeights(KeptWeights, LossWeighting):
    r"""New random weights in every step, whatever the losses (Lin et al. 2022).

    Lin, Ye, Zhang and Tsang 2022, "Reasonable Effectiveness of Random Weighting: A Litmus Test for
    Multi-Task Learning", https://arxiv.org/abs/2111.10603.

    In every step the weights are :math:`w = \mathrm{softmax}(\lambda)` with :math:`\lambda_i`
    sampled from the standard normal distribution, independently of the losses. Together with
    ``equal`` it is the baseline that a learned rule has to beat.
    """

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._weights = equal_weights(len(self.objectives))

    def step(self, step: TrainingStep) -> None:
        generator = rng.generator(step.seed, self.name, step.number)
        self._weights = random_weights(len(self.objectives), generator)
        super().step(step)
