"""Cross-entropy, with label smoothing and class weights."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.registry import register_loss
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.base import Kind
from auxlearn.losses.base import ClassWeightedLoss, ClassWeightOptions
from auxlearn.objectives.base import labels_of
from auxlearn.objectives.context import ObjectiveContext


class CrossEntropyOptions(ClassWeightOptions):
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the target probability that is spread evenly over all classes."""


@register_loss("cross_entropy")
class CrossEntropy(ClassWeightedLoss):
    """Mean cross-entropy of the class labels, in nats; the default.

    Of other kinds of labels it is the usual loss: binary cross-entropy of several labels,
    cross-entropy of the tags of words, or of their heads and relations, mean squared error of
    numbers.

    Class weights and label smoothing are offered for single classes, several labels and tags.
    Label smoothing is that of Szegedy et al. 2016, `Rethinking the Inception Architecture
    <https://arxiv.org/abs/1512.00567>`_, section 7; class weights are those of
    :class:`~auxlearn.losses.base.ClassWeightedLoss`.
    """

    Options = CrossEntropyOptions
    options: CrossEntropyOptions

    @classmethod
    def takes(cls, kind: Kind) -> bool:
        return True

    def prepare(self, context: ObjectiveContext) -> None:
        if self.options != CrossEntropyOptions():
            context.split.kind.require("class weights and label smoothing")
        super().prepare(context)

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        logits, kind = encoder.classify(batch), encoder.kind
        targets = labels_of(batch, logits)
        if self.options == CrossEntropyOptions():
            return kind.loss(logits, targets)
        chosen, truth = kind.choices(logits, targets)
        smoothing = self.options.label_smoothing
        if self.class_weights is None and len(truth):
            return nn.functional.cross_entropy(chosen, truth, label_smoothing=smoothing)
        losses = nn.functional.cross_entropy(
            chosen, truth, label_smoothing=smoothing, reduction="none"
        )
        return self.weighted_mean(losses, kind.outcomes(targets))
