"""Batches from several sets of texts, each batch from one of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auxlearn import rng
from auxlearn.data.batches import BatchStream
from auxlearn.data.tokens import TokenizedTexts, concatenate

#: Steps whose sets are drawn together.
BLOCK = 1000


def sampling_probabilities(sizes: Sequence[int], smoothing: float) -> Tensor:
    """Return the probability of each set to be sampled, proportional to size ** smoothing.

    This is the data-set smoothing of MaChAmp (van der Goot et al. 2021,
    https://arxiv.org/abs/2005.14672) and of multilingual BERT: 0 samples all sets equally often, 1
    by their size, and 1 / T with temperature T.

    Args:
        sizes: Number of examples of each set.
        smoothing: The exponent.

    Returns:
        Probabilities, ``(sets,)``, float64.

    Examples:
        >>> sampling_probabilities([900, 100], 1.0).tolist()
        [0.9, 0.1]
        >>> sampling_probabilities([900, 100], 0.5).tolist()
        [0.75, 0.25]
    """
    powers = torch.tensor(sizes, dtype=torch.float64) ** smoothing
    return powers / powers.sum()


class MixedStream(BatchStream):
    """An endless sequence of batches, each drawn from one of several sets.

    The sets are sampled systematically: within every :data:`BLOCK` batches each set has its share
    up to one batch, in random order.

    Args:
        sets: The sets, each with labels of its own.
        probabilities: Probability of each set, ``(sets,)``, float64.
        batch_size: Examples per batch.
        seed: The run's seed.
        name: Name of the stream.

    Attributes:
        texts: All sets, one after the other; ``Batch.indices`` refers to them.
        starts: Index of the first text of each set, ``(sets,)``, int64.
    """

    def __init__(
        self,
        sets: Sequence[TokenizedTexts],
        probabilities: Tensor,
        batch_size: int,
        seed: int,
        name: str,
    ) -> None:
        texts = sets[0]
        for one in sets[1:]:
            texts = concatenate(texts, one)
        super().__init__(texts, batch_size, seed, name)
        lengths = torch.tensor([len(one) for one in sets])
        self.starts = lengths.cumsum(0) - lengths
        self._probabilities = probabilities
        self._streams = [
            BatchStream(one, batch_size, seed, f"{name}/{number}")
            for number, one in enumerate(sets)
        ]
        self._choices: list[int] = []  # set of every step so far
        self._places: list[int] = []  # how many earlier steps had the same set
        self._drawn = [0] * len(sets)

    def set_of(self, step: int) -> int:
        """Return the number of the set that the batch of a step comes from."""
        while len(self._choices) <= step:
            self._draw_block()
        return self._choices[step]

    def indices(self, step: int) -> Tensor:
        """Return the indices of the texts in the batch of a step (counted from 0)."""
        number = self.set_of(step)
        return self.starts[number] + self._streams[number].indices(self._places[step])

    def _draw_block(self) -> None:
        generator = rng.generator(self.seed, self.name, "sets", len(self._choices) // BLOCK)
        offset = torch.rand(1, generator=generator, dtype=torch.float64)
        points = (offset + torch.arange(BLOCK)) / BLOCK
        ends = self._probabilities.cumsum(0)
        chosen = torch.searchsorted(ends, points, right=True).clamp(max=len(ends) - 1)
        for number in chosen[torch.randperm(BLOCK, generator=generator)].tolist():
            self._choices.append(number)
            self._places.append(self._drawn[number])
            self._drawn[number] += 1
