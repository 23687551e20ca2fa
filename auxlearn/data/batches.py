"""Mini-batches: what they hold, and in which order the rows of a split come.

The batch of a step is a function of the seed, the stream's name and the step alone. A resumed run
therefore continues with the very batches it would have had, and one objective's stream is not
shifted by another's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from auxlearn import rng
from auxlearn.data.tokens import TokenizedTexts

#: Batches that are sorted by length together. More of them waste less on padding and mix less.
BUCKET_BATCHES = 50


@dataclass(frozen=True)
class Batch:
    """Texts side by side, padded to the longest.

    Attributes:
        input_ids: Token ids, ``(batch, length)``, int64.
        attention_mask: 1 for a token, 0 for padding, ``(batch, length)``, int64.
        maskable: Where an objective may mask, ``(batch, length)``, bool: no special tokens, no
            padding, no unknown words.
        words: Number of the word a token belongs to within its text, ``(batch, length)``, int64;
            -1 for special tokens and padding.
        rows: Row of each text in its :class:`TokenizedTexts`, ``(batch,)``, int64.
        labels: Class of each text, ``(batch,)``, int64; ``None`` for unlabelled text.
        token_type_ids: Segment of each token, for encoders that tell segments apart.
    """

    input_ids: Tensor
    attention_mask: Tensor
    maskable: Tensor
    words: Tensor
    rows: Tensor
    labels: Tensor | None = None
    token_type_ids: Tensor | None = None

    def __len__(self) -> int:
        return len(self.input_ids)


def pad_rows(texts: TokenizedTexts, flat: Tensor, rows: Tensor, fill: int | bool) -> Tensor:
    """Lay per-token values of some rows side by side, padded to the longest row.

    Args:
        texts: Where the rows are.
        flat: One value per token of ``texts``, ``(tokens,)``.
        rows: Row numbers, ``(batch,)``.
        fill: The value of padding.

    Returns:
        ``(batch, length)`` in the dtype of ``flat``.
    """
    source, inside = _places(texts, rows)
    padded = flat.new_full(inside.shape, fill)
    padded[inside] = flat[source]
    return padded


def flatten_rows(texts: TokenizedTexts, padded: Tensor, rows: Tensor, flat: Tensor) -> None:
    """Undo :func:`pad_rows`: write values ``(batch, length)`` to their tokens in ``flat``."""
    source, inside = _places(texts, rows)
    flat[source] = padded[inside]


def _places(texts: TokenizedTexts, rows: Tensor) -> tuple[Tensor, Tensor]:
    starts = texts.offsets[rows]
    lengths = texts.offsets[rows + 1] - starts
    positions = torch.arange(int(lengths.max()))
    inside = positions < lengths[:, None]
    return (starts[:, None] + positions)[inside], inside


def collate(texts: TokenizedTexts, rows: Tensor) -> Batch:
    """Pad the given rows to the longest of them.

    Args:
        texts: Where the rows are.
        rows: Row numbers, ``(batch,)``.
    """
    types = texts.token_type_ids
    return Batch(
        input_ids=pad_rows(texts, texts.input_ids, rows, texts.pad_id).long(),
        attention_mask=pad_rows(texts, torch.ones_like(texts.maskable), rows, False).long(),
        maskable=pad_rows(texts, texts.maskable, rows, False),
        words=pad_rows(texts, texts.words, rows, -1).long(),
        rows=rows,
        labels=None if texts.labels is None else texts.labels[rows],
        token_type_ids=None if types is None else pad_rows(texts, types, rows, 0).long(),
    )


class BatchStream:
    """An endless sequence of shuffled batches in which texts of like length stand together.

    Each epoch shuffles the rows, sorts them by length within buckets of
    :data:`BUCKET_BATCHES` batches and shuffles the batches. The last batch of an epoch may be
    smaller.

    Args:
        texts: What to draw from.
        batch_size: Rows of a batch.
        seed: The run's seed.
        name: Whose stream it is; streams of different names are independent.

    Attributes:
        steps_per_epoch: Batches until every row has been seen.
    """

    def __init__(self, texts: TokenizedTexts, batch_size: int, seed: int, name: str) -> None:
        self.texts = texts
        self.batch_size = batch_size
        self.seed = seed
        self.name = name
        self.steps_per_epoch = -(-len(texts) // batch_size)
        self._epoch = -1
        self._order: list[Tensor] = []

    def rows(self, step: int) -> Tensor:
        """Return the row numbers of the batch of a step (counted from 0)."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order = self._shuffle(epoch)
            self._epoch = epoch
        return self._order[position]

    def batch(self, step: int) -> Batch:
        """Return the batch of a step (counted from 0)."""
        return collate(self.texts, self.rows(step))

    def _shuffle(self, epoch: int) -> list[Tensor]:
        generator = rng.generator(self.seed, self.name, "batches", epoch)
        order = torch.randperm(len(self.texts), generator=generator)
        batches = []
        for bucket in order.split(self.batch_size * BUCKET_BATCHES):
            by_length = self.texts.lengths[bucket].argsort(descending=True, stable=True)
            batches += bucket[by_length].split(self.batch_size)
        return [batches[i] for i in torch.randperm(len(batches), generator=generator)]


class UniformStream(BatchStream):
    """An endless sequence of full batches that are uniform draws from the texts.

    Each epoch shuffles the rows and takes them as they come. A batch of like lengths would not
    stand for the set: length and class often go together. What does not fill a batch at the end of
    an epoch is left out of it, so that no batch is a noisy one of a few rows.

    Args:
        texts: What to draw from.
        batch_size: Rows of a batch; all rows if there are fewer.
        seed: The run's seed.
        name: Whose stream it is; streams of different names are independent.
    """

    def __init__(self, texts: TokenizedTexts, batch_size: int, seed: int, name: str) -> None:
        super().__init__(texts, min(batch_size, len(texts)), seed, name)
        self.steps_per_epoch = len(texts) // self.batch_size

    def _shuffle(self, epoch: int) -> list[Tensor]:
        generator = rng.generator(self.seed, self.name, "batches", epoch)
        order = torch.randperm(len(self.texts), generator=generator)
        return list(order.split(self.batch_size)[: self.steps_per_epoch])


def eval_batches(texts: TokenizedTexts, batch_size: int) -> list[Tensor]:
    """Return row numbers of batches of like length that cover every row once."""
    order = texts.lengths.argsort(descending=True, stable=True)
    return list(order.split(batch_size))
