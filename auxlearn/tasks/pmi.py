"""PMI masking: collocations are masked as a whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.cache import TensorCache
from auxlearn.core.registry import register_task
from auxlearn.data.batches import Batch, pad_token_values
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import CHUNK_TEXTS, PIECE_TOKENS
from auxlearn.tasks.base import MaskingOptions
from auxlearn.tasks.random_mlm import RandomMLM

#: Words of the longest collocation.
LONGEST = 5

PLACES = 1 << 18  # places of words that are looked at at once

#: Words by the ids of their tokens, and a run of words.
Word = tuple[int, ...]
Words = tuple[Word, ...]


class PMIOptions(MaskingOptions):
    counts: str | None = None
    """File of texts to count n-grams on; by default the texts that are masked."""

    min_count: int = Field(10, ge=1)
    """Times that a collocation occurs at least."""

    collocations: int = Field(10_000, ge=0)
    """Number of collocations; those of the highest PMI are taken."""


@register_task("pmi")
class PMI(RandomMLM):
    r"""Mask collocations as a whole, and other words alone, with the same probability.

    Levine et al. 2021, `PMI-Masking <https://arxiv.org/abs/2010.01825>`_, section 3. An n-gram of 2
    to 5 words has

    .. math::
        \mathrm{PMI}(w) = \min_{\sigma} \log \frac{p(w)^2}{\prod_{s \in \sigma} p(s)}

    over all its segmentations :math:`\sigma` into two or more parts, so that no part alone makes a
    collocation; :math:`p` is the share among the n-grams of its length. In each text the longest
    collocations are marked from left to right.

    It departs from the paper in these points: counts are those of the texts of the run, or of a
    file, not of Wikipedia and BookCorpus; :math:`p(w)` is squared, which its eq. 3 does not say
    but its released lists do; an n-gram must be more frequent than its parts let expect (the
    minimum without the square is positive); the collocations of highest PMI are taken whatever
    their length, where the paper takes 50%, 25%, 12.5% and 12.5% of 2 to 5 words; of overlapping
    ones the first is marked, where the paper chooses at random; each unit is chosen independently.
    """

    Options = PMIOptions
    options: PMIOptions

    def prepare(self, context: ObjectiveContext) -> None:
        super().prepare(context)
        options = self.options
        counted = context.texts_of(options.counts) if options.counts else self.texts
        best = collocations(counted, options.min_count, options.collocations, context.cache)
        self.unit = context.cache.joined(marked(self.texts, best))

    def units(self, batch: Batch, generator: torch.Generator) -> Tensor:
        return pad_token_values(self.texts, self.unit, batch.indices, -1)


def runs(texts: TokenizedTexts) -> Iterator[tuple[Words, list[tuple[int, int]]]]:
    """Yield the words between special tokens, and where in the flat arrays their tokens are."""
    ids, numbers = texts.input_ids.tolist(), texts.words.tolist()
    for ends in pairwise(texts.offsets.tolist()):
        by_word = groupby(range(*ends), numbers.__getitem__)
        spans = [(number < 0, [*places]) for number, places in by_word]
        for special, words in groupby(spans, itemgetter(0)):
            if not special:
                tokens = [(places[0], places[-1] + 1) for _, places in words]
                yield tuple(tuple(ids[start:stop]) for start, stop in tokens), tokens


def marked(texts: TokenizedTexts, collocations: set[Words]) -> Iterator[Tensor]:
    """Yield the unit of each token, ``(tokens,)``, so many texts at a time: the number of its first
    word; -1 for special tokens.
    """
    for part in _parts(texts):
        units = torch.full((len(part.input_ids),), -1)
        for words, tokens in runs(part):
            for start, stop in cut(words, collocations):
                first, last = tokens[start], tokens[stop - 1]
                units[first[0] : last[1]] = int(part.words[first[0]])
        yield units


def _parts(texts: TokenizedTexts) -> Iterator[TokenizedTexts]:
    return map(texts.select, torch.arange(len(texts)).split(CHUNK_TEXTS))


def ngram_counts(
    texts: Iterable[Words], min_count: int, cache: TensorCache
) -> list[dict[Words, int]]:
    """Return how often n-grams of 1 to 5 words occur: all of 1, of others those of ``min_count``.

    An n-gram is a pair of n-grams of a word less that begin at neighbouring places. It cannot be
    more frequent than these, so that only pairs of frequent ones are counted. ``counts[n][()]`` is
    the number of places of n-grams of ``n`` words.
    """
    numbers: dict[Word, int] = {}
    lengths: Counter[int] = Counter()

    def numbered(words: Words) -> Tensor:
        lengths[len(words)] += 1
        return torch.tensor([*(numbers.setdefault(word, len(numbers)) for word in words), -1])

    end = torch.full((LONGEST,), -1)  # so that all have places, however short the texts
    # The number of the n-gram that begins at each place, or -1.
    at = cache.joined(chain(map(numbered, texts), [end]))
    grams: list[Words] = [(word,) for word in numbers]
    times = torch.zeros(len(grams), dtype=torch.int64)
    for piece in at.split(PLACES):
        times += piece[piece >= 0].bincount(minlength=len(grams))
    counts: list[dict[Words, int]] = [{}]
    for n in range(1, LONGEST + 1):
        if n > 1:
            pairs, times = _frequent_pairs(at, len(grams), min_count, cache)
            at = cache.joined(
                torch.where(torch.isin(here, pairs), torch.searchsorted(pairs, here), -1)
                for here in _pairs(at, len(grams))
            )
            both = [divmod(pair, len(grams)) for pair in pairs.tolist()]
            grams = [grams[first] + grams[second][-1:] for first, second in both]
        places = sum(count * max(0, length - n + 1) for length, count in lengths.items())
        counts.append({(): places, **dict(zip(grams, times.tolist(), strict=True))})
    return counts


def _pairs(at: Tensor, grams: int) -> Iterator[Tensor]:
    """Yield the numbers of the pairs of n-grams at each place and the next, or -1, so many at a
    time: that of the first times the number of n-grams, and that of the second.
    """
    for start in range(0, len(at), PLACES):
        here = at[start : start + PLACES + 1]
        first, second = here[:-1], here[1:]
        yield torch.where((first >= 0) & (second >= 0), first * grams + second, -1)


def _frequent_pairs(
    at: Tensor, grams: int, min_count: int, cache: TensorCache
) -> tuple[Tensor, Tensor]:
    """Return the pairs of n-grams that occur so often, ascending, and how often they do. They are
    divided by their remainders into shares, which are counted one after the other.
    """
    shares = -(-len(at) // PIECE_TOKENS)

    def divided(pairs: Tensor) -> dict[str, Tensor]:
        pairs = pairs[pairs >= 0]
        rests = pairs % shares
        parts = pairs[rests.argsort()].split(rests.bincount(minlength=shares).tolist())
        return {str(rest): part for rest, part in enumerate(parts)}

    frequent = []
    for pairs in cache.joined_by_name(map(divided, _pairs(at, grams))).values():
        kinds, times = pairs.unique(return_counts=True)
        frequent.append(torch.stack([kinds, times])[:, times >= min_count])
    kinds, times = torch.cat(frequent, 1)
    order = kinds.argsort()
    return kinds[order], times[order]


def pmi(counts: Sequence[Mapping[Words, int]]) -> dict[Words, float]:
    """Return the PMI, with squared probability, of the n-grams of 2 and more words that attract.

    "new york" occurs in 2 of the 3 pairs of words, "new" and "york" each 2 times of 6: the
    logarithm of (2/3)^2 / (1/3)^2.

    >>> new, york, the = (1,), (2,), (3,)
    >>> words = {(): 6, (new,): 2, (york,): 2, (the,): 2}
    >>> pairs = {(): 3, (new, york): 2}
    >>> {w: round(value, 6) for w, value in pmi([{}, words, pairs]).items()}
    {((1,), (2,)): 1.386294}
    """
    logs = [
        {gram: math.log(count / of_length[()]) for gram, count in of_length.items() if gram}
        for of_length in counts
    ]
    values = {}
    for n in range(2, len(counts)):
        for gram, log_share in logs[n].items():
            # The most probable way to put the first ``end`` words together from parts.
            best = [0.0]
            for end in range(1, n + 1):
                parts = ((start, gram[start:end]) for start in range(end == n, end))
                best.append(max(best[start] + logs[len(part)][part] for start, part in parts))
            if log_share > best[n] + 1e-12:
                values[gram] = 2 * log_share - best[n]
    return values


def collocations(
    texts: TokenizedTexts, min_count: int, most: int, cache: TensorCache
) -> set[Words]:
    """Return the n-grams of the highest PMI, so many at most."""
    found = (words for part in _parts(texts) for words, _ in runs(part))
    values = pmi(ngram_counts(found, min_count, cache))
    return set(sorted(values, key=lambda words: (-values[words], words))[:most])


def cut(words: Words, collocations: set[Words]) -> Iterator[tuple[int, int]]:
    """Yield where the units of a text begin and end: the longest collocations, or single words."""
    start = 0
    while start < len(words):
        ends = range(min(len(words), start + LONGEST), start + 1, -1)
        stop = next((end for end in ends if words[start:end] in collocations), start + 1)
        yield start, stop
        start = stop
