"""R-Drop: two passes with different dropout masks are to agree.

Wu et al. 2021, "R-Drop: Regularized Dropout for Neural Networks",
https://arxiv.org/abs/2106.14448; code at https://github.com/dropreg/R-Drop.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.registry import register_loss
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.base import PrimaryLoss, symmetric_kl
from auxlearn.objectives.base import labels_of


class RDropOptions(Described):
    weight: float = Field(1.0, ge=0)
    """Weight of the symmetric KL divergence; the paper takes .1, .5 or 1 by data set."""


@register_loss("r_drop")
class RDrop(PrimaryLoss):
    """Cross-entropy of two dropout passes plus their symmetric KL divergence (eqs. 1 to 4).

    Mean over the examples of ``-log p1_y - log p2_y + weight / 2 (KL(p1 || p2) + KL(p2 || p1))``.
    The cross-entropies are added, not averaged, and the divergences are averaged, both as in the
    paper; averaging both, as other implementations do, asks for half the ``weight``. Gradients go
    through both distributions of each divergence.

    The released pseudo-code adds the divergence up over the batch while its cross-entropy is a
    mean; here and in the paper both are means over the examples. The two passes are made one after
    the other, where the paper repeats each example within the batch.
    """

    Options = RDropOptions
    options: RDropOptions
    compares_dropout = True

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        first, second = encoder.classify(batch), encoder.classify(batch)
        return r_drop_loss(first, second, labels_of(batch, first), self.options.weight)


def r_drop_loss(first: Tensor, second: Tensor, labels: Tensor, weight: float) -> Tensor:
    """Return the mean loss over the examples from the logits of both passes, a scalar in nats."""
    log_p, log_q = first.log_softmax(-1), second.log_softmax(-1)
    agreement = symmetric_kl(log_p, log_q).mean()
    entropies = nn.functional.nll_loss(log_p, labels) + nn.functional.nll_loss(log_q, labels)
    return entropies + weight * agreement
