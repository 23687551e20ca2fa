"""A text with the mask probabilities of its tokens, as ``masks.json`` has it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ShownText:
    """A text with the mask probabilities of its tokens.

    Attributes:
        example: Its number among the training examples, from 0.
        tokens: Its tokens, without special ones.
        rates: Probability of each of them to be masked, by task.
        random: Probability under random masking at the same mean in the text, by task.
    """

    example: int
    tokens: list[str]
    rates: dict[str, list[float]]
    random: dict[str, float]

    def times(self, task: str) -> list[float]:
        """Return how many times as often as random masking a task masks each token."""
        random = self.random[task]
        return [rate / random if random else 1.0 for rate in self.rates[task]]
