"""A mixture of masking strategies."""

from __future__ import annotations

from typing import Annotated, Self

import torch
from pydantic import model_validator
from torch import Tensor

from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import TASKS, register_task
from auxlearn.core.settings import PluginChoice
from auxlearn.core.validation import OneOrMany, validate
from auxlearn.data.batches import Batch
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import MaskedLanguageModelling, MaskingOptions

#: Options that all strategies of a mixture have in common.
SHARED = ("probability", "corpus", "schedule")


class MixtureOptions(MaskingOptions):
    strategies: Annotated[tuple[PluginChoice, ...], OneOrMany] = ()
    """Names of masking strategies, or mappings of a name to its options."""

    weights: tuple[float, ...] = ()
    """Share of the texts that each strategy masks; by default all the same."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.weights and len(self.weights) != len(self.strategies):
            raise ValueError(
                f"{len(self.weights)} weights for {len(self.strategies)} strategies: give one each"
            )
        if self.weights and (min(self.weights) < 0 or not sum(self.weights)):
            raise ValueError("weights are 0 or more, and one is more than 0")
        return self


@register_task("mixture")
class Mixture(MaskedLanguageModelling):
    r"""Mask each text by one of several strategies, drawn for every mini-batch.

    The probability of a token to be masked is :math:`\sum_k w_k q_k`, where :math:`q_k` is its
    probability under strategy :math:`k` and :math:`w_k` the share of the strategy; what a strategy
    masks together stays together. ``probability``, ``corpus`` and ``schedule`` are those of all
    strategies.
    """

    Options = MixtureOptions
    options: MixtureOptions

    def __init__(self, options: MixtureOptions) -> None:
        super().__init__(options)
        self.parts: list[MaskedLanguageModelling] = []
        for choice in options.strategies:
            cls = TASKS.get(choice.name)
            if not issubclass(cls, MaskedLanguageModelling):
                raise ConfigError(f"{self.name}: '{choice.name}' is no masking strategy")
            if misplaced := sorted(set(choice.options) & {*SHARED, "corruption"}):
                raise ConfigError(
                    f"{self.name}: {choice.name} has {misplaced[0]} of its own: give it to the "
                    "mixture"
                )
            shared = {name: getattr(options, name) for name in SHARED}
            self.parts.append(cls(validate(cls.Options, {**shared, **choice.options}, choice.name)))
        if not self.parts:
            raise ConfigError(f"{self.name} has no strategies to mix: name some by strategies")

    def prepare(self, context: ObjectiveContext) -> None:
        super().prepare(context)
        for part in self.parts:
            part.prepare(context)
        self.watches_primary = any(part.watches_primary for part in self.parts)
        weights = self.options.weights or (1.0,) * len(self.parts)
        self.shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)

    def mask_probabilities(self, batch: Batch) -> Tensor:
        by_part = torch.stack([part.checked_probabilities(batch).double() for part in self.parts])
        return torch.einsum("k,kbt->bt", self.shares, by_part).clamp(max=1)

    def choose_tokens(self, batch: Batch, generator: torch.Generator) -> Tensor:
        draws = torch.rand(len(batch), generator=generator, dtype=torch.float64)
        drawn = torch.searchsorted(self.shares.cumsum(0), draws, right=True)
        by_part = torch.stack([part.choose_tokens(batch, generator) for part in self.parts])
        return by_part[drawn.clamp(max=len(self.parts) - 1), torch.arange(len(batch))]

    def begin_step(self, step: int, total: int) -> None:
        for part in self.parts:
            part.begin_step(step, total)

    def observe_primary(self, token_ids: Tensor, gradients: Tensor) -> None:
        for part in self.parts:
            if part.watches_primary:
                part.observe_primary(token_ids, gradients)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            f"{number}/{key}": value
            for number, part in enumerate(self.parts)
            for key, value in part.state_dict().items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for number, part in enumerate(self.parts):
            keys = [key for key in state if key.startswith(f"{number}/")]
            part.load_state_dict({key.removeprefix(f"{number}/"): state[key] for key in keys})
