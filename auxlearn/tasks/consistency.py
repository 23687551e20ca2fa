"""Consistency of two dropout passes, the regulariser of R-Drop as an auxiliary task."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.registry import register_task
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.tasks.base import AuxiliaryTask


class ConsistencyOptions(Described):
    temperature: float = Field(1.0, gt=0)
    """Softmax temperature of the compared distributions."""


@register_task("consistency")
class Consistency(AuxiliaryTask):
    """Bring the class probabilities of two passes with different dropout together.

    The loss is (KL(p || q) + KL(q || p)) / 2 in nats, the mean over the examples of the primary
    batch: L_KL of Wu et al. 2021, `R-Drop <https://arxiv.org/abs/2106.14448>`_, eq. 2. In the paper
    its weight is fixed and both passes have a cross-entropy; here the weighting decides, and the
    primary task has a pass of its own. The whole of R-Drop is the primary loss ``r_drop``.
    """

    Options = ConsistencyOptions
    options: ConsistencyOptions
    batches = "primary"
    compares_dropout = True

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        first, second = (
            (encoder.classify(batch) / self.options.temperature).log_softmax(-1) for _ in range(2)
        )
        forward = nn.functional.kl_div(first, second, reduction="batchmean", log_target=True)
        backward = nn.functional.kl_div(second, first, reduction="batchmean", log_target=True)
        return (forward + backward) / 2
