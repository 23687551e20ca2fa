"""Debiased focal loss: less weight on examples that a bias model classifies well.

Karimi Mahabadi et al. 2020, "End-to-End Bias Mitigation by Modelling Biases in Corpora",
https://arxiv.org/abs/1909.06321; code at https://github.com/rabeehk/robust-nli.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.registry import register_loss
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.base import gold
from auxlearn.losses.bias import BiasLoss, BiasOptions
from auxlearn.objectives.base import labels_of


class DebiasedFocalOptions(BiasOptions):
    gamma: float = Field(2.0, ge=0)
    """Focusing exponent; 0 is cross-entropy, more gives examples that the bias model classifies
    well less weight."""


@register_loss("debiased_focal")
class DebiasedFocal(BiasLoss):
    """Mean over the examples of ``-(1 - b_y)^gamma log p_y``.

    p_y and b_y are the probabilities of the gold class by the classifier and by the bias model. The
    weights do not sum to one, as in the paper and its code. There the bias model is trained at the
    same time by a loss of its own; here it is fixed, and cross-fitted.
    """

    Options = DebiasedFocalOptions
    options: DebiasedFocalOptions

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        logits = encoder.classify(batch)
        labels = labels_of(batch, logits)
        bias = self.bias_of(batch, logits)
        return debiased_focal_loss(logits, bias, labels, self.options.gamma)


def debiased_focal_loss(logits: Tensor, bias: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """Return the mean loss over the examples, a scalar in nats."""
    losses = nn.functional.cross_entropy(logits, labels, reduction="none")
    return ((1 - gold(bias, labels)).pow(gamma) * losses).mean()
