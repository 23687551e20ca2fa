"""Difference masking: what sets the texts of the task apart from other texts."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import register_task
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import count_tokens, look_up
from auxlearn.tasks.base import ScoredMasking, ScoredMaskingOptions


class DifferenceOptions(ScoredMaskingOptions):
    background: str | None = None
    """File of texts of other domains, against which the anchors stand out."""

    anchors: int = Field(20, ge=1)
    """Number of anchors."""


def tf_icf(counts: Tensor, background: Tensor) -> Tensor:
    r"""Return how much each token type belongs to the texts of the task, ``(vocabulary,)``.

    :math:`\frac{n_v}{N} \log \frac{n_v / N}{(n_v + m_v) / (N + M)}` for the counts :math:`n_v` in
    the texts of the task and :math:`m_v` in the background, :math:`N` and :math:`M` in all. A type
    that is as frequent everywhere has 0.

    Examples:
        >>> counts, background = torch.tensor([2.0, 2.0, 0.0]), torch.tensor([0.0, 6.0, 6.0])
        >>> [round(value, 4) for value in tf_icf(counts, background).tolist()]
        [0.6931, 0.0, 0.0]
    """
    share = counts / counts.sum().clamp(min=1)
    everywhere = (counts + background) / (counts + background).sum().clamp(min=1)
    return share * torch.where(counts > 0, share / everywhere.clamp(min=1e-300), 1.0).log()


@register_task("difference")
class Difference(ScoredMasking):
    """Mask tokens that resemble what is frequent in the task's texts and rare in others.

    Wilf et al. 2023, `Difference-Masking <https://arxiv.org/abs/2305.14577>`_. The anchors are
    token types of the highest TF-ICF (:func:`tf_icf`) of the task's texts against a background.
    The score of a token is the highest cosine of its input embedding with that of an anchor, at
    least 0.

    It departs from the paper in these points: the inverse corpus frequency is relative to the share
    in the task's texts, because function words would be the anchors otherwise; anchors and scores
    are those of tokens, not of words; embeddings are those of the encoder's input layer, so that a
    token has one score everywhere; each token is chosen independently, in proportion to its score.
    """

    Options = DifferenceOptions
    options: DifferenceOptions

    def scores(self, context: ObjectiveContext) -> Tensor:
        if self.options.background is None:
            raise ConfigError(
                f"{context.name} compares the texts with others: name a file of texts of other "
                "domains by background"
            )
        embeddings = context.encoder.body.get_input_embeddings().weight.detach().cpu().double()
        counts = [
            count_tokens(texts, len(embeddings)).double()
            for texts in (self.texts, context.texts_of(self.options.background))
        ]
        weights = tf_icf(*counts)
        count = min(self.options.anchors, int((weights > 0).sum()))
        self.anchors = weights.argsort(descending=True, stable=True)[:count]
        directions = torch.nn.functional.normalize(embeddings, dim=1)
        nearest = torch.zeros(len(embeddings), dtype=torch.float64)
        if count:
            nearest = (directions @ directions[self.anchors].T).amax(1).clamp(min=0)
        return context.cache.joined(look_up(nearest, self.texts.input_ids))
