"""Span Cutoff: a second pass in which a random span of each text is missing.

Shen et al. 2020, "A Simple but Tough-to-Beat Data Augmentation Approach for Natural Language
Understanding and Generation", https://arxiv.org/abs/2009.13818; code at
https://github.com/dinghanshen/Cutoff.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from auxlearn.core.registry import register_loss
from auxlearn.data.batches import Batch
from auxlearn.encoders.cutting import embeddings_cut
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.cutoff import CutoffLoss, share_of_lengths, spans


@register_loss("span_cutoff")
class SpanCutoff(CutoffLoss):
    """Cross-entropy, that of the text without a span, and the divergence of the two predictions.

    ``CE(p) + cut_weight CE(p_cut) + divergence_weight JS(p, p_cut)``. A span of
    floor(``share`` * length) tokens, at a place drawn uniformly in each step, has its input
    embeddings (with positions, after normalisation) and its attention mask set to zero. Special
    tokens count as tokens and can be cut, as in the released code; from a text with fewer than
    1 / ``share`` tokens nothing is cut. The defaults are the released settings for SST-2.

    The released code draws the start below length - span, so that the last token is never cut; here
    every place has the same probability. Its divergence is another one, see ``divergence``.
    """

    def cut_logits(
        self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator
    ) -> Tensor:
        span = random_spans(batch, self.options.share, generator)
        rest = replace(batch, attention_mask=batch.attention_mask.masked_fill(span, 0))
        with embeddings_cut(encoder, upload(span, encoder.device)):
            return encoder.classify(rest)


def random_spans(batch: Batch, share: float, generator: torch.Generator) -> Tensor:
    """Return a span of each text at a place drawn uniformly, ``(batch, length)``, bool."""
    lengths, cut = batch.attention_mask.sum(1), share_of_lengths(batch, share)
    draws = torch.rand(len(batch), generator=generator, dtype=torch.float64)
    starts = (draws * (lengths - cut + 1)).long()
    return spans(starts, cut, batch.input_ids.shape[1])
