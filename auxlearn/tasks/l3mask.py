"""L3Masking: mask the tokens that the pretrained encoder finds unlikely.

Kimura, Komamizu and Hatano 2024, "L3Masking: Multi-task Fine-tuning for Language Models by
Leveraging Lessons Learned from Vanilla Models", https://aclanthology.org/2024.customnlp4u-1.6.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import PIECE_TOKENS
from auxlearn.scoring.pseudo_likelihood import score_texts
from auxlearn.tasks.base import ScoredMasking, ScoredMaskingOptions

#: Dtypes by the name of a precision.
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class ScoringOptions(ScoredMaskingOptions):
    """Settings of strategies that score the tokens by the encoder's predictions."""

    passes: int | None = Field(None, ge=2)
    """Masked copies of each text for scoring; by default one per token, which is exact. 4 to 16 are
    faster and approximate; 8 suits large corpora."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision in which the encoder computes the scores."""


class L3MaskOptions(ScoringOptions):
    score: Literal["complement", "surprisal"] = "complement"
    """How unlikely a token is: complement: 1 - P, as in the paper; surprisal: -log P, as in the
    authors' code."""


def predictions_at_tokens(task: ScoredMasking, context: ObjectiveContext, **further: Any) -> Tensor:
    """Return a statistic of the encoder's predictions at each token of a task, cached on disk."""
    options = task.options
    assert isinstance(options, ScoringOptions)
    return score_texts(
        context.encoder,
        task.texts,
        context.cache,
        passes=options.passes,
        dtype=DTYPES[options.precision],
        progress=context.progress,
        **further,
    )


@register_task("l3mask")
class L3Mask(ScoredMasking):
    """Mask a token the more often, the less likely the pretrained encoder finds it.

    Before training, each token is scored once by its pseudo-likelihood P (eq. 1 and 2). Its mask
    probability is 1 - P (eq. 3), scaled so that the mean over the text is ``probability``, 0.15 in
    the paper (eq. 4).

    The authors' released code differs in five ways. It scales the surprisal -log P, offered here as
    ``score: surprisal``. Its min-max scaling before eq. 4 has no effect, because the zeros of the
    special tokens are the minimum and a common factor cancels in eq. 4. The other three are not
    offered: it clips probabilities before it spreads the excess, so that the mean falls below 0.15
    where a probability exceeds 1; it scores every text again in every batch; and it falls back to
    random masking after any error.
    """

    Options = L3MaskOptions
    options: L3MaskOptions

    def scores(self, context: ObjectiveContext) -> Tensor:
        complement = self.options.score == "complement"
        pieces = predictions_at_tokens(self, context).split(PIECE_TOKENS)
        return context.cache.joined(
            -torch.expm1(piece.double()) if complement else -piece.double() for piece in pieces
        )
