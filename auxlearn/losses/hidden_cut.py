"""HiddenCut: a second pass in which every layer loses a span of its hidden states.

Chen et al. 2021, "HiddenCut: Simple Data Augmentation for Natural Language Understanding with
Better Generalizability", https://aclanthology.org/2021.acl-long.338; code at
https://github.com/SALT-NLP/HiddenCut.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_loss
from auxlearn.data.batches import Batch
from auxlearn.encoders.cutting import feed_forward_cut
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.cutoff import CutoffLoss, CutoffOptions, share_of_lengths, spans


class HiddenCutOptions(CutoffOptions):
    candidates: float = Field(0.4, gt=0, le=1)
    """Share of a text's tokens, those that receive most attention, at which a span may begin."""


@register_loss("hidden_cut")
class HiddenCut(CutoffLoss):
    """Cross-entropy, that of a pass with cut hidden states, and the divergence of the predictions.

    ``CE(p) + cut_weight CE(p_cut) + divergence_weight JS(p, p_cut)``. In every layer of the second
    pass the feed-forward output of a span is set to zero, before residual connection and
    normalisation; each layer draws a span of its own. It has max(1, floor(``share`` * length))
    tokens, fewer at the end of the text, and begins at one of the max(1, floor(``candidates`` *
    length)) tokens that receive most attention in that layer and pass, summed over the queries and
    averaged over the heads, each with the same probability. Special tokens count as tokens and can
    be cut, as in the released code. The defaults are the released settings for SST-2.

    The released code leaves out dropout after the feed-forward blocks of the second pass, which is
    kept here, and adds the attention from padding, which is left out here. Its divergence is
    another one, see ``divergence``. The second pass computes attention unfused, because fused
    attention returns no weights.
    """

    Options = HiddenCutOptions
    options: HiddenCutOptions

    def cut_logits(
        self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator
    ) -> Tensor:
        mask = upload(batch.attention_mask, encoder.device)

        def choose(weights: Tensor) -> Tensor:
            received = (weights.float().mean(1) * mask.unsqueeze(-1)).sum(1)
            return attended_spans(
                received, batch, self.options.share, self.options.candidates, generator
            )

        with feed_forward_cut(encoder, choose):
            return encoder.classify(batch)


def attended_spans(
    received: Tensor, batch: Batch, share: float, candidates: float, generator: torch.Generator
) -> Tensor:
    """Return a span of ``share`` of each text's tokens. It begins at one of the ``candidates``, a
    share of the tokens too, that ``received``, ``(batch, length)``, most attention.
    """
    cut = share_of_lengths(batch, share).clamp_min(1)
    count = share_of_lengths(batch, candidates).clamp_min(1)
    draws = torch.rand(len(batch), generator=generator, dtype=torch.float64)
    rank = upload((draws * count).long(), received.device)
    inside = upload(batch.attention_mask.bool(), received.device)
    order = received.float().masked_fill(~inside, -1).argsort(dim=-1, descending=True, stable=True)
    starts = order.gather(1, rank[:, None]).squeeze(1)
    width = upload(cut, received.device)
    return spans(starts, width, received.shape[1]) & inside
