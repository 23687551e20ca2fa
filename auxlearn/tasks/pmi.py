"""PMI masking: collocations are masked as a whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.data.batches import Batch, pad_token_values
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import MaskingOptions
from auxlearn.tasks.random_mlm import RandomMLM

#: Words of the longest collocation.
LONGEST = 5

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
        best = collocations(counted, options.min_count, options.collocations)
        self.unit = torch.full((len(self.texts.input_ids),), -1)
        for words, tokens in runs(self.texts):
            for start, stop in cut(words, best):
                first, last = tokens[start], tokens[stop - 1]
                self.unit[first[0] : last[1]] = int(self.texts.words[first[0]])

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


def ngram_counts(texts: Sequence[Words], min_count: int) -> list[Counter[Words]]:
    """Return how often n-grams of 1 to 5 words occur: all of 1, of others those of ``min_count``.

    An n-gram cannot be more frequent than its parts, so that only n-grams of frequent parts are
    counted. ``counts[n][()]`` is the number of places of n-grams of ``n`` words.
    """
    counts: list[Counter[Words]] = [Counter()]
    for n in range(1, LONGEST + 1):
        occurring: Counter[Words] = Counter()
        for words in texts:
            occurring[()] += max(0, len(words) - n + 1)
            for start in range(len(words) - n + 1):
                gram = words[start : start + n]
                if n < 3 or (gram[1:] in counts[-1] and gram[:-1] in counts[-1]):
                    occurring[gram] += 1
        counts.append(
            Counter({g: c for g, c in occurring.items() if n == 1 or not g or c >= min_count})
        )
    return counts


def pmi(counts: Sequence[Counter[Words]]) -> dict[Words, float]:
    """Return the PMI, with squared probability, of the n-grams of 2 and more words that attract.

    "new york" occurs in 2 of the 3 pairs of words, "new" and "york" each 2 times of 6: the
    logarithm of (2/3)^2 / (1/3)^2.

    >>> new, york, the = (1,), (2,), (3,)
    >>> counts = ngram_counts([(new, york), (new, york), (the, the)], min_count=2)
    >>> {w: round(value, 6) for w, value in pmi(counts).items()}
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


def collocations(texts: TokenizedTexts, min_count: int, most: int) -> set[Words]:
    """Return the n-grams of the highest PMI, so many at most."""
    values = pmi(ngram_counts([words for words, _ in runs(texts)], min_count))
    return set(sorted(values, key=lambda words: (-values[words], words))[:most])


def cut(words: Words, collocations: set[Words]) -> Iterator[tuple[int, int]]:
    """Yield where the units of a text begin and end: the longest collocations, or single words."""
    start = 0
    while start < len(words):
        ends = range(min(len(words), start + LONGEST), start + 1, -1)
        stop = next((end for end in ends if words[start:end] in collocations), start + 1)
        yield start, stop
        start = stop
