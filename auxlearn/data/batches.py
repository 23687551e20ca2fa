"""Mini-batches: padded tensors of texts, and the order in which the texts of a split are drawn.

The batch of a step is a function of the seed, the stream's name and the step alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import torch
from torch import Tensor

from auxlearn.core import rng
from auxlearn.data.tokens import TokenizedTexts, consecutive

#: Batches in a bucket that is sorted by length. Larger buckets need less padding and shuffle less.
BUCKET_BATCHES = 50


@dataclass(frozen=True)
class Batch:
    """A mini-batch of tokenised texts, padded to the longest.

    A text that is read in windows is as many rows as it has windows, one after the other; all other
    texts are one row each.

    Attributes:
        input_ids: Token ids, ``(batch, length)``, int64, with a row for each text or window.
        attention_mask: 1 for a token, 0 for padding, ``(batch, length)``, int64.
        maskable: Tokens that an objective may mask, ``(batch, length)``, bool: no special tokens,
            padding or unknown words.
        words: Index of each token's word within its text, ``(batch, length)``, int64; -1 for
            special tokens and padding.
        indices: Index of each text in its :class:`TokenizedTexts`, ``(texts,)``, int64.
        labels: Class index of each text, ``(texts,)``, int64, or the target that its kind has in
            its place; ``None`` for unlabelled texts.
        token_type_ids: Segment of each token, ``(batch, length)``, int64; ``None`` for encoders
            without segment embeddings.
        tags: Target of each token that begins a word, ``(batch, length)`` or with a further
            dimension, int64, and -100 elsewhere; ``None`` for texts whose words have none.
        windows: Number of windows of each text, ``(texts,)``, int64; ``None`` where each text is
            one row, so that ``(texts,)`` is ``(batch,)``.
    """

    input_ids: Tensor
    attention_mask: Tensor
    maskable: Tensor
    words: Tensor
    indices: Tensor
    labels: Tensor | None = None
    token_type_ids: Tensor | None = None
    tags: Tensor | None = None
    windows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.input_ids)

    def part(self, texts: slice | Tensor) -> Batch:
        """Return some texts, in a slice or where a tensor is true, padded to their longest row."""
        rows = texts
        if self.windows is not None:
            kept = torch.zeros(len(self.windows), dtype=torch.bool)
            kept[texts] = True
            rows = kept.repeat_interleave(self.windows)
        lengths = self.attention_mask[rows].sum(1)
        longest = int(lengths.max()) if len(lengths) else 0

        def chosen(name: str, value: Tensor) -> Tensor:
            of_texts = name in ("indices", "labels", "windows")
            return value[texts] if of_texts else value[rows, :longest]

        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(
            self, **{n: chosen(n, value) for n, value in values.items() if value is not None}
        )

    @property
    def targets(self) -> Tensor | None:
        """The labels of the texts, or of their words."""
        return self.labels if self.tags is None else self.tags


def pad_token_values(
    texts: TokenizedTexts, values: Tensor, indices: Tensor, fill: int | bool
) -> Tensor:
    """Gather one value, or row of values, per token ``(tokens, ...)`` of the texts with some
    indices; returns ``(batch, length, ...)``, padded by ``fill``, with a row for each text or
    window.
    """
    return _padded(*_token_positions(texts, indices), values, fill)


def unpad_token_values(
    texts: TokenizedTexts, padded: Tensor, indices: Tensor, values: Tensor
) -> None:
    """Write padded values ``(batch, length)`` back to their tokens in ``values``, ``(tokens,)``."""
    source, inside = _token_positions(texts, indices)
    values[source] = padded[inside]


def _padded(source: Tensor, inside: Tensor, values: Tensor, fill: int | bool) -> Tensor:
    padded = values.new_full((*inside.shape, *values.shape[1:]), fill)
    padded[inside] = values[source]
    return padded


def _token_positions(texts: TokenizedTexts, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens of some texts in the flat arrays, and where they are not padding."""
    rows, offsets = texts.rows_of(indices), texts.in_rows().offsets
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    positions = torch.arange(int(lengths.max()))
    inside = positions < lengths[:, None]
    return (starts[:, None] + positions)[inside], inside


def collate(texts: TokenizedTexts, indices: Tensor) -> Batch:
    """Make a batch of the texts with some indices, ``(texts,)``, padded to the longest of them."""
    source, inside = _token_positions(texts, indices)
    pad = partial(_padded, source, inside)
    types, tags = texts.token_type_ids, texts.tags
    return Batch(
        input_ids=pad(texts.input_ids, texts.pad_id).long(),
        attention_mask=inside.long(),
        maskable=pad(texts.maskable, False),
        words=pad(texts.words, -1).long(),
        indices=indices,
        labels=None if texts.labels is None else texts.labels[indices],
        token_type_ids=None if types is None else pad(types, 0).long(),
        tags=None if tags is None else pad(tags, -100),
        windows=texts.window_counts(indices),
    )


class BatchStream:
    """An endless sequence of shuffled batches of texts of similar length: each epoch shuffles the
    texts, sorts them by length within buckets, and shuffles the batches; one may be smaller.
    """

    def __init__(self, texts: TokenizedTexts, batch_size: int, seed: int, name: str) -> None:
        self.texts = texts
        self.batch_size = batch_size
        self.seed = seed
        self.name = name
        self.steps_per_epoch = -(-len(texts) // batch_size)
        self._epoch = -1
        self._order = torch.zeros(0, dtype=torch.int64)

    def indices(self, step: int) -> Tensor:
        """Return the indices of the texts in the batch of a step (counted from 0)."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order, self._batches = self._shuffle(epoch)
            self._epoch = epoch
        start = int(self._batches[position]) * self.batch_size
        return self._order[start : start + self.batch_size].long()

    def batch(self, step: int) -> Batch:
        return collate(self.texts, self.indices(step))

    def _shuffle(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Return the texts of an epoch, batch by batch, and the order of the batches."""
        generator = rng.generator(self.seed, self.name, "batches", epoch)
        order = torch.randperm(len(self.texts), generator=generator, dtype=torch.int32)
        for bucket in order.split(self.batch_size * BUCKET_BATCHES):
            lengths = self.texts.offsets[bucket + 1] - self.texts.offsets[bucket]
            bucket.copy_(bucket[lengths.argsort(descending=True, stable=True)])
        return order, torch.randperm(self.steps_per_epoch, generator=generator)


class UniformStream(BatchStream):
    """An endless sequence of full batches drawn uniformly from the texts, whatever their lengths,
    which are often correlated with classes; an incomplete last batch is dropped.
    """

    def __init__(self, texts: TokenizedTexts, batch_size: int, seed: int, name: str) -> None:
        super().__init__(texts, min(batch_size, len(texts)), seed, name)
        self.steps_per_epoch = len(texts) // self.batch_size

    def _shuffle(self, epoch: int) -> tuple[Tensor, Tensor]:
        generator = rng.generator(self.seed, self.name, "batches", epoch)
        order = torch.randperm(len(self.texts), generator=generator)
        return order, torch.arange(self.steps_per_epoch)


def eval_batches(texts: TokenizedTexts, batch_size: int) -> list[Tensor]:
    """Return the indices of batches of at most so many rows that cover every text once."""
    order = texts.lengths.argsort(descending=True, stable=True)
    counts = texts.window_counts(order)
    if counts is None:
        return list(order.split(batch_size))
    sizes, room = [0], batch_size
    for count in counts.tolist():
        if count > room and sizes[-1]:
            sizes.append(0)
            room = batch_size
        sizes[-1] += 1
        room -= count
    return list(order.split(sizes))


BLOCK = 1000  # steps whose sets are drawn together


def sampling_probabilities(sizes: Sequence[int], smoothing: float) -> Tensor:
    """Return the probability of each set to be sampled, proportional to size ** smoothing, as in
    MaChAmp (van der Goot et al. 2021, https://arxiv.org/abs/2005.14672).
    """
    powers = torch.tensor(sizes, dtype=torch.float64) ** smoothing
    return powers / powers.sum()


class MixedStream(BatchStream):
    """An endless sequence of batches, each drawn from one of several sets, systematically: within
    every :data:`BLOCK` batches each set has its share up to one batch, in random order.
    """

    def __init__(
        self,
        texts: TokenizedTexts,
        sizes: Sequence[int],
        probabilities: Tensor,
        batch_size: int,
        seed: int,
        name: str,
    ) -> None:
        super().__init__(texts, batch_size, seed, name)
        counts = torch.tensor(sizes)
        self.starts = counts.cumsum(0) - counts
        self._probabilities = probabilities
        self._streams = [
            BatchStream(one, batch_size, seed, f"{name}/{number}")
            for number, one in enumerate(consecutive(texts, sizes))
        ]
        self._choices: list[int] = []  # set of every step so far
        self._places: list[int] = []  # how many earlier steps had the same set
        self._drawn = [0] * len(sizes)

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
