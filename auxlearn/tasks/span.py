"""Span masking: several neighbouring words at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.data.batches import Batch
from auxlearn.tasks.random_mlm import RandomMLM

#: Parameter of the geometric distribution of lengths, and the longest span, in words.
STOP, LONGEST = 0.2, 10


def length_distribution() -> Tensor:
    """Return the probability of each length from 1 to :data:`LONGEST`, float64.

    >>> lengths = torch.arange(1, LONGEST + 1)
    >>> round(float((length_distribution() * lengths).sum()), 1)  # as in the paper
    3.8
    """
    weights = STOP * (1 - STOP) ** torch.arange(LONGEST, dtype=torch.float64)
    return weights / weights.sum()


@register_task("span")
class Span(RandomMLM):
    r"""Mask spans of whole words whose lengths follow a geometric distribution.

    Joshi et al. 2020, `SpanBERT <https://arxiv.org/abs/1907.10529>`_, section 3.1. Each text is cut
    into spans of :math:`\ell` words, :math:`p(\ell) \propto 0.2 \cdot 0.8^{\ell - 1}` for
    :math:`1 \le \ell \le 10`, drawn for every mini-batch, and each span is masked as a whole with
    ``probability``.

    It departs from the paper in these points:

    * Every token is masked with exactly ``probability``. There, spans are placed at random until
      15% of the tokens are masked, which favours no word in the mean but the middle of a text.
    * Each token of a span is corrupted by itself; there, all of them are replaced in one way.
    * The loss has no term for the boundary of the span.
    """

    def units(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Cut each text into spans; no span goes beyond the end of the first text of a pair."""
        words = int(batch.words.max()) + 1
        draws = torch.rand(len(batch), max(1, words), generator=generator, dtype=torch.float64)
        lengths = torch.searchsorted(length_distribution().cumsum(0), draws, right=True) + 1
        ends = lengths.clamp(max=LONGEST).cumsum(1)
        spans = torch.searchsorted(ends, batch.words.clamp(min=0), right=True)
        part = (batch.words < 0).cumsum(1)  # special tokens so far
        parts = int(part[batch.maskable].max()) + 1 if batch.maskable.any() else 1
        return (spans * parts + part).masked_fill(batch.words < 0, -1)
