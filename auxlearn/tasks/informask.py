"""InforMask: tokens that the visible ones say the most about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from scipy.sparse import csr_array
from torch import Tensor

from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.files import expand
from auxlearn.core.registry import register_task
from auxlearn.data.batches import Batch
from auxlearn.data.tokens import TokenizedTexts, vocabulary_ids
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import CHUNK_TEXTS, PIECE_TOKENS, count_tokens, look_up
from auxlearn.tasks.base import ScoredMasking, ScoredMaskingOptions

#: Masks of each text from which its rates are counted before training.
DRAWS = 40

COUNTED_TEXTS = 1 << 12  # texts whose pairs of tokens are counted at once


class InforMaskOptions(ScoredMaskingOptions):
    by: Literal["text", "token"] = "text"
    """text: the best of several random masks of each text; token: one rate for each token of the
    vocabulary, the mean of the former over the texts."""

    candidates: int = Field(30, ge=1, le=10_000)
    """Random masks of which the best is taken."""

    rates: str | None = None
    """With by: token, a JSON file with the rate of each token id, such as id_mask_prob.json of the
    authors for bert-base-uncased."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.by == "text" and (self.unit == "word" or self.rates):
            raise ValueError("unit word and rates go with by: token")
        return self


@register_task("informask")
class InforMask(ScoredMasking):
    r"""Mask the tokens that have most to do with those that stay visible.

    Sadeq, Xu and McAuley 2022, `InforMask <https://arxiv.org/abs/2210.11771>`_. Of several random
    masks of a text, that of the highest informative relevance is taken, the sum over masked tokens
    :math:`i` and visible ones :math:`j` of
    :math:`\mathrm{pmi}(i, j) = \log \frac{p(i, j)}{p(i) p(j)}`, where :math:`p` is the share of
    texts that contain the tokens. Each mask has ``probability`` times the number of tokens, rounded
    up or down at random. ``by: token`` masks each token independently with a rate of its type, as
    the authors' released code does; ``rates`` reads their file. ``reverse: true`` takes the mask
    of the lowest relevance.

    It departs from the paper and the code in these points: PMI is that of tokens within the texts
    of the run, not of words on Wikipedia; rates by token are scaled to the mean ``probability`` of
    each text; ``auxlearn masks`` shows rates counted over 40 masks for ``by: text``.
    """

    Options = InforMaskOptions
    options: InforMaskOptions

    def scores(self, context: ObjectiveContext) -> Tensor:
        ids = self.texts.input_ids
        if self.options.rates:
            return context.cache.joined(look_up(rates_of(context, self.options.rates), ids))
        counts = context.cache.joined(self._counts(context))
        if self.options.by == "text":
            return counts
        totals = torch.zeros(int(ids.max()) + 1, dtype=torch.float64)
        columns = (column.split(PIECE_TOKENS) for column in (ids, self.texts.maskable, counts))
        for piece, maskable, count in zip(*columns, strict=True):
            totals.index_add_(0, piece[maskable], count[maskable])
        means = totals / count_tokens(self.texts, len(totals)).clamp(min=1)
        return context.cache.joined(look_up(means, ids))

    def _counts(self, context: ObjectiveContext) -> Iterator[Tensor]:
        """Yield in how many of so many masks each token is, for so many texts at a time."""
        generator = context.generator("informask")
        with context.progress("informative masks", len(self.texts)) as advance:
            for indices in torch.arange(len(self.texts)).split(CHUNK_TEXTS):
                part = self.texts.select(indices)
                counts = torch.zeros(len(part.input_ids), dtype=torch.float64)
                for start, stop in pairwise(part.offsets.tolist()):
                    inside = part.maskable[start:stop].nonzero().squeeze(1) + start
                    pmi = self._pmi(part.input_ids[inside])
                    for _ in range(DRAWS):
                        counts[inside] += self._best(pmi, self.options.probability, generator)
                    advance(1)
                yield counts

    def arranged(self, probabilities: Tensor, batch: Batch) -> Tensor:
        """Return mask probabilities by ``unit`` and ``reverse``; masks of texts are reversed."""
        return (
            probabilities if self.options.by == "text" else super().arranged(probabilities, batch)
        )

    def choose_tokens(self, batch: Batch, generator: torch.Generator) -> Tensor:
        if self.options.by == "token":
            return super().choose_tokens(batch, generator)
        chosen = torch.zeros_like(batch.maskable)
        rate = self.options.probability * self.rate_factor
        for ids, maskable, row in zip(batch.input_ids, batch.maskable, chosen, strict=True):
            row[maskable] = self._best(self._pmi(ids[maskable]), rate, generator)
        return chosen

    @cached_property
    def _pairs(self) -> Any:
        return text_pairs(self.texts)

    def _pmi(self, ids: Tensor) -> Tensor:
        kinds, place = np.unique(ids.numpy(), return_inverse=True)
        together = self._pairs[kinds][:, kinds].toarray().astype(np.float64)
        alone = together.diagonal()
        expected = np.outer(alone, alone).clip(1) / len(self.texts)
        pmi = np.log(np.where(together > 0, together, expected) / expected)
        return torch.from_numpy(pmi[np.ix_(place, place)])

    def _best(self, pmi: Tensor, rate: float, generator: torch.Generator) -> Tensor:
        return best_mask(pmi, rate, self.options.candidates, self.options.reverse, generator)


def text_pairs(texts: TokenizedTexts) -> Any:
    """Return in how many texts every two tokens of the vocabulary stand, a sparse matrix."""
    size = int(texts.input_ids.max()) + 1
    together = csr_array((size, size), dtype=np.int32)
    for indices in torch.arange(len(texts)).split(COUNTED_TEXTS):
        part = texts.select(indices)
        ids, maskable = part.input_ids.numpy(), part.maskable.numpy()
        rows = np.repeat(np.arange(len(part)), part.lengths.numpy())[maskable]
        places = rows, ids[maskable]
        present = csr_array((np.ones(len(rows), np.int32), places), shape=(len(part), size))
        present.data[:] = 1
        together += present.T @ present
    return together


def best_mask(
    pmi: Tensor, rate: float, candidates: int, lowest: bool, generator: torch.Generator
) -> Tensor:
    """Return the random mask, ``(n,)``, with the highest PMI of masked with visible tokens."""
    share = rate * len(pmi) + float(torch.rand(1, generator=generator, dtype=torch.float64))
    order = torch.rand(candidates, len(pmi), generator=generator, dtype=torch.float64).argsort(1)
    masks = order.argsort(1) < int(share)
    relevance = ((masks.double() @ pmi) * ~masks).sum(1)
    return masks[int(relevance.argmin() if lowest else relevance.argmax())]


def rates_of(context: ObjectiveContext, path: str) -> Tensor:
    """Read a file of rates by token id; tokens that it lacks have rate 0."""
    place = expand(path, ConfigError)
    try:
        content = json.loads(context.track_file(place).read_text(encoding="utf-8"))
        rates = {int(token): float(rate) for token, rate in content.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{place} is no JSON object of token id to rate: {error}") from None
    known = vocabulary_ids(context.encoder.tokenizer)
    table = torch.zeros(known[-1] + 1, dtype=torch.float64)
    if wrong := sorted(rates.keys() - known):
        what = f"a rate of token {wrong[0]}, which is none of the encoder's {len(known)} tokens"
        raise DataError(f"{place} has {what}: give the rates of its own vocabulary")
    table[torch.tensor([*rates]).long()] = torch.tensor([*rates.values()], dtype=torch.float64)
    if not bool(((table >= 0) & (table <= 1)).all()):
        raise DataError(f"{place} has rates outside 0 to 1: give probabilities")
    return table
