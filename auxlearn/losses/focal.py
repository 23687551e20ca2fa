"""Focal loss: cross-entropy with less weight on examples that are already classified well.

Lin et al. 2017, "Focal Loss for Dense Object Detection", https://arxiv.org/abs/1708.02002.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_loss
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.base import Kind
from auxlearn.losses.base import ClassWeightedLoss, ClassWeightOptions, gold
from auxlearn.objectives.base import labels_of


class FocalOptions(ClassWeightOptions):
    gamma: float = Field(2.0, ge=0)
    """Focusing exponent; 0 is cross-entropy, more gives well-classified examples less weight."""


@register_loss("focal")
class Focal(ClassWeightedLoss):
    """Mean over the examples of ``-a_y (1 - p_y)^gamma log p_y`` (eq. 5 of the paper).

    p_y is the probability of the gold class, by a softmax over all classes. Of several labels it is
    that of each label to be there, or not to be, by a sigmoid as in the paper, and the mean is over
    all labels of the examples; of tags, that of the tag of each word. a_y is the class weight, 1 by
    default; the paper's alpha, .25 for its foreground class, is chosen together with gamma and
    belongs to its data. The derivative goes through the factor too, as in the paper. The loss is
    the mean over all examples, where the paper divides by the number of boxes that are matched with
    an object.
    """

    Options = FocalOptions
    options: FocalOptions

    @classmethod
    def takes(cls, kind: Kind) -> bool:
        return kind.offers("class weights and label smoothing")

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        logits, kind = encoder.classify(batch), encoder.kind
        targets = labels_of(batch, logits)
        losses = focal_losses(*kind.choices(logits, targets), self.options.gamma)
        return self.weighted_mean(losses, kind.outcomes(targets))


def focal_losses(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """Return the focal loss of each example, ``(batch,)``, in nats."""
    log_p = gold(logits.log_softmax(-1), labels)
    # 1 - p is exactly 0 for a certain classifier, where an exponent below 1 has no finite
    # derivative.
    others = (-log_p.expm1()).clamp_min(torch.finfo(log_p.dtype).tiny)
    return -others.pow(gamma) * log_p
