"""Fixed weights: a share of the auxiliary tasks, or the same weight for every objective."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field, field_validator
from torch import Tensor

from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import register_weighting
from auxlearn.weighting.base import Mix
from auxlearn.weighting.mixing import MIX_DESCRIPTION, LossWeighting, MixOptions, equal_weights


def fixed_weights(alpha: float | Sequence[float], count: int) -> Tensor:
    """Return the weights for a share of ``count`` auxiliary tasks, or for one of each; sum 1."""
    if count == 0:
        return torch.ones(1, dtype=torch.float64)
    shares = [alpha / count] * count if isinstance(alpha, float) else list(alpha)
    if len(shares) != count:
        raise ConfigError(
            f"fixed: alpha has {len(shares)} shares for {count} auxiliary tasks: "
            "give one share, or one for each"
        )
    return torch.tensor([1 - sum(shares), *shares], dtype=torch.float64)


class FixedOptions(MixOptions):
    alpha: float | tuple[float, ...] = 0.3
    """Share of the auxiliary tasks, split equally among them; or a list with the share of each, of
    which some may be 0."""

    mix: Mix = Field("steps", description=MIX_DESCRIPTION)

    @field_validator("alpha")
    @classmethod
    def _leaves_a_share(cls, alpha: float | tuple[float, ...]) -> float | tuple[float, ...]:
        if alpha == 0:
            raise ValueError("a share of 0 trains no task; [0] measures one without training on it")
        shares = (alpha,) if isinstance(alpha, float) else alpha
        if sum(shares) >= 1 or any(share < 0 for share in shares):
            raise ValueError("it is outside (0, 1): the primary task keeps 1 - alpha")
        return alpha


@register_weighting("fixed")
class Fixed(LossWeighting):
    """The auxiliary tasks share alpha, the primary task keeps 1 - alpha (Mask-tuning, eq. 1).

    That equation weights the losses: ``mix: gradients``. By default the optimizer steps of the
    objectives have these weights, each with moments of its own (``mix: steps``), so that masked
    language modelling does not stop the primary task in short trainings.

    A list of shares may contain zeros: the loss of such a task is computed but not trained on.
    Mask-tuning then still perturbs the text: its ablation "without integrated loss" (Table III).
    """

    Options = FixedOptions
    options: FixedOptions

    @property
    def weights(self) -> Tensor:
        """The weights, by :func:`fixed_weights`.

        Raises:
            ConfigError: There are not as many shares as tasks.
        """
        return fixed_weights(self.options.alpha, len(self.objectives) - 1)


@register_weighting("equal")
class Equal(LossWeighting):
    """Weight 1/n for each of n objectives (MT-TARTAN of Dery et al. 2022).

    "Should We Be Pre-training? An Argument for End-task Aware Training as an Alternative",
    https://arxiv.org/abs/2109.07437.
    """

    @property
    def weights(self) -> Tensor:
        return equal_weights(len(self.objectives))
