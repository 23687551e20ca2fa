"""A text with the mask probabilities of its tokens, as ``masks.json`` has it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ShownText:
    """A text with the mask probabilities of its tokens."""

    example: int  # its number among the training examples, from 0
    tokens: list[str]  # its tokens, without special ones
    rates: dict[str, list[float]]  # probability of each of them to be masked, by task
    random: dict[str, float]  # the same by random masking at the same mean in the text

    def times(self, task: str) -> list[float]:
        """Return how many times as often as random masking a task masks each token."""
        random = self.random[task]
        return [rate / random if random else 1.0 for rate in self.rates[task]]
