"""Weights that stay as they are."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.config import Settings
from auxlearn.errors import ConfigError
from auxlearn.registry import register_weighting
from auxlearn.weighting.base import LossWeighting


class FixedOptions(Settings):
    """Settings of fixed weights."""

    alpha: float | tuple[float, ...] = Field(
        0.5,
        description="Share of the auxiliary tasks, split equally among them; or a list with the "
        "share of each, of which some may be 0.",
    )


@register_weighting("fixed")
class Fixed(LossWeighting):
    """The auxiliary tasks share alpha, the primary task keeps 1 - alpha (Mask-tuning, eq. 1).

    A list of shares may hold zeros: such a task is measured but not trained on. Mask-tuning then
    still perturbs the text: its ablation "without integrated loss" (Table III).
    """

    Options = FixedOptions
    options: FixedOptions

    @property
    def weights(self) -> Tensor:
        """The weights; a run without auxiliary task trains on the primary loss alone.

        Raises:
            ConfigError: alpha leaves (0, 1), or has another length than there are tasks.
        """
        count = len(self.objectives) - 1
        if count == 0:
            return torch.ones(1, dtype=torch.float64)
        alpha = self.options.alpha
        shares = [alpha / count] * count if isinstance(alpha, float) else list(alpha)
        if len(shares) != count:
            raise ConfigError(
                f"fixed: alpha has {len(shares)} shares for {count} auxiliary tasks: "
                "give one share, or one for each"
            )
        least = min(shares)
        if least < 0 or (least == 0 and isinstance(alpha, float)) or sum(shares) >= 1:
            raise ConfigError(
                f"fixed: alpha {alpha} is outside (0, 1): the primary task keeps 1 - alpha"
            )
        return torch.tensor([1 - sum(shares), *shares], dtype=torch.float64)


@register_weighting("equal")
class Equal(LossWeighting):
    """Every objective weighs 1/n (MT-TARTAN of Dery et al. 2022)."""

    @property
    def weights(self) -> Tensor:
        """The same weight for each objective."""
        return torch.full((len(self.objectives),), 1 / len(self.objectives), dtype=torch.float64)
