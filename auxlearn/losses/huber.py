"""Huber loss: squared error of small errors, absolute error of large ones.

Huber 1964, "Robust Estimation of a Location Parameter", https://doi.org/10.1214/aoms/1177703732.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.registry import register_loss
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.base import PrimaryLoss
from auxlearn.objectives.base import labels_of


class HuberOptions(Described):
    delta: float = Field(1.0, gt=0)
    """Error, in the unit of the labels, from which on its absolute value counts; far below all
    errors the loss is delta times the absolute error."""


@register_loss("huber")
class Huber(PrimaryLoss):
    r"""Mean Huber loss of the errors e of numbers, in the squared unit of the labels.

    It is :math:`e^2 / 2` where :math:`|e| \le \delta`, and
    :math:`\delta (|e| - \delta / 2)` beyond, as in torch (``HuberLoss``): large errors, such as
    those of wrong labels, pull less than by the squared error. With a small delta it is the
    absolute error times a constant, which changes no step of AdamW, so that there is no loss of its
    own for it.
    """

    Options = HuberOptions
    options: HuberOptions
    kinds = ("regression",)

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        logits = encoder.classify(batch)
        targets = labels_of(batch, logits)
        return nn.functional.huber_loss(logits.squeeze(-1), targets, delta=self.options.delta)
