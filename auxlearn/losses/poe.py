"""Product of experts: the classifier is trained together with a bias model.

Karimi Mahabadi et al. 2020, "End-to-End Bias Mitigation by Modelling Biases in Corpora",
https://arxiv.org/abs/1909.06321; code at https://github.com/rabeehk/robust-nli. Clark et al. 2019,
https://arxiv.org/abs/1909.03683, call it Bias Product.
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


class PoEOptions(BiasOptions):
    strength: float = Field(1.0, ge=0)
    """Exponent of the bias model's probabilities; 0 is cross-entropy."""


@register_loss("poe")
class PoE(BiasLoss):
    """Cross-entropy of the normalised product ``p * b^strength``.

    p are the class probabilities of the classifier, b those of the bias model. Where the bias model
    is right and certain there is little left to learn. The classifier alone is evaluated and
    exported. In the paper the bias model is trained at the same time by a loss of its own and
    receives no gradient of this one; here it is fixed, and cross-fitted.
    """

    Options = PoEOptions
    options: PoEOptions

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        logits = encoder.classify(batch)
        bias = self.bias_of(batch, logits)
        return poe_loss(logits, bias, labels_of(batch, logits), self.options.strength)


def poe_loss(logits: Tensor, bias: Tensor, labels: Tensor, strength: float) -> Tensor:
    """Return the mean loss over the examples, a scalar in nats."""
    return nn.functional.cross_entropy(logits.log_softmax(-1) + strength * bias.log(), labels)
