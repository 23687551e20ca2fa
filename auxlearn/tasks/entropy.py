"""Entropy masking: tokens whose place the encoder is uncertain about."""

from __future__ import annotations

from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import PIECE_TOKENS
from auxlearn.scoring.pseudo_likelihood import log_probability_and_entropy
from auxlearn.tasks.base import ScoredMasking
from auxlearn.tasks.l3mask import ScoringOptions, predictions_at_tokens


@register_task("entropy")
class Entropy(ScoredMasking):
    r"""Mask a token the more often, the less the pretrained encoder can say what stands there.

    Srinivasagan, Hartung and Georges 2026, `Entropy-aware Masking
    <https://arxiv.org/abs/2605.28526>`_. The score of a token is the entropy of the encoder's
    prediction where it and the later tokens of its word are masked,
    :math:`-\sum_v p_v \log p_v`, in nats. ``l3mask`` asks how unlikely the token is that stands
    there; entropy does not look at it. Both need the same pass over the texts.

    It departs from the paper in these points: there, for pretraining, the entropies are those of
    the model as it is trained, or of a teacher, and tokens are selected by their entropy; here,
    those of the pretrained encoder, once, and tokens are drawn in proportion to them.
    """

    Options = ScoringOptions
    options: ScoringOptions

    def scores(self, context: ObjectiveContext) -> Tensor:
        columns = predictions_at_tokens(self, context, statistic=log_probability_and_entropy)
        pieces = columns.split(PIECE_TOKENS)
        return context.cache.joined(piece[:, 1].clamp(min=0) for piece in pieces)
