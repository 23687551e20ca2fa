"""A loss between cross-entropy and mean absolute error, for noisy labels."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.plugins import Batch, PrimaryLoss, Settings, SharedEncoder, labels_of, register_loss


class GeneralizedCrossEntropyOptions(Settings):
    """Settings of the loss."""

    q: float = Field(0.7, gt=0, le=1, description="Exponent; near 0: cross-entropy, 1: error.")


@register_loss("generalized_cross_entropy")
class GeneralizedCrossEntropy(PrimaryLoss):
    """(1 - p^q) / q of the gold class's probability p, the mean over the examples.

    Zhang and Sabuncu 2018, `Generalized Cross Entropy Loss
    <https://arxiv.org/abs/1805.07836>`_, eq. 6.
    """

    Options = GeneralizedCrossEntropyOptions
    options: GeneralizedCrossEntropyOptions

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean loss over the examples."""
        logits = encoder.classify(batch)
        chosen = labels_of(batch, logits)[:, None]
        log_p = logits.log_softmax(-1).gather(1, chosen)
        return ((1 - (self.options.q * log_p).exp()) / self.options.q).mean()
