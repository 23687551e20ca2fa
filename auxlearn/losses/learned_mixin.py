"""Learned-Mixin: a product of experts that learns for each text how far to trust the bias model.

Clark et al. 2019, "Don't Take the Easy Way Out: Ensemble Based Methods for Avoiding Known Dataset
Biases", https://arxiv.org/abs/1909.03683; code at https://github.com/chrisc36/debias.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.registry import register_loss
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.bias import BiasLoss, BiasOptions
from auxlearn.objectives.base import labels_of
from auxlearn.objectives.context import ObjectiveContext


class LearnedMixinOptions(BiasOptions):
    entropy_penalty: float = Field(0.0, ge=0)
    """Weight of the entropy of the bias model's part: 0 is Learned-Mixin; .03, the paper's for
    MNLI, is Learned-Mixin +H."""


@register_loss("learned_mixin")
class LearnedMixin(BiasLoss):
    """Cross-entropy of ``p * b^g`` plus ``entropy_penalty * H(b^g)``.

    Both products are normalised to sum to 1. p are the class probabilities of the classifier, b
    those of the bias model, and ``g = softplus(w h + c)`` a factor for each text from its vector h,
    with w and c trained along. Without the penalty g can become 0, and the bias model is ignored.
    The classifier alone is evaluated and exported.

    h is the last hidden state that the classification head uses, at the first token (of an
    encoder-decoder, at the last); the released code takes the output of BERT's pooler.
    """

    Options = LearnedMixinOptions
    options: LearnedMixinOptions

    def prepare(self, context: ObjectiveContext) -> None:
        super().prepare(context)
        size = context.encoder.hidden_size
        self.head = context.add_head("mixin", lambda: nn.Linear(size, 1))

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        logits, features = encoder.classify_with_features(batch)
        factors = nn.functional.softplus(encoder.apply_head(self.head, features))
        bias, labels = self.bias_of(batch, logits), labels_of(batch, logits)
        return learned_mixin_loss(logits, bias, factors, labels, self.options.entropy_penalty)


def learned_mixin_loss(
    logits: Tensor, bias: Tensor, factors: Tensor, labels: Tensor, entropy_penalty: float
) -> Tensor:
    """Return the mean loss over the examples; ``factors`` are the exponents g, ``(batch, 1)``."""
    scaled = factors * bias.log()
    log_part = scaled.log_softmax(-1)
    entropy = -(log_part.exp() * log_part).sum(-1).mean()
    product = nn.functional.cross_entropy(logits.log_softmax(-1) + scaled, labels)
    return product + entropy_penalty * entropy
