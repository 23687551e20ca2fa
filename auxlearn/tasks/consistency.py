"""Consistency of two dropout passes, the regulariser of R-Drop as an auxiliary task."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.registry import register_task
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.choose import require
from auxlearn.objectives.base import labels_of
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import AuxiliaryTask


class ConsistencyOptions(Described):
    temperature: float = Field(1.0, gt=0)
    """Softmax temperature of the compared distributions; of numbers, what they are divided by."""


@register_task("consistency")
class Consistency(AuxiliaryTask):
    """Bring the class probabilities of two passes with different dropout together.

    The loss is (KL(p || q) + KL(q || p)) / 2 in nats, the mean over the examples of the primary
    batch: L_KL of Wu et al. 2021, `R-Drop <https://arxiv.org/abs/2106.14448>`_, eq. 2. In the paper
    its weight is fixed and both passes have a cross-entropy; here the weighting decides, and the
    primary task has a pass of its own. The whole of R-Drop is the primary loss ``r_drop``.

    Of tags the mean is over the words; of several labels, over the labels of all texts, each of
    which is there or not (Bernoulli distributions). Of numbers it is the mean squared difference.
    """

    Options = ConsistencyOptions
    options: ConsistencyOptions
    batches = "primary"
    compares_dropout = True

    def prepare(self, context: ObjectiveContext) -> None:
        super().prepare(context)
        self.kind = context.encoder.kind
        require(self.kind, "consistency")

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        assert batch.targets is not None
        return self.kind.items(batch.targets)

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        first, second = (encoder.classify(batch) / self.options.temperature for _ in range(2))
        if self.kind.name == "regression":
            return nn.functional.mse_loss(first, second)
        targets = labels_of(batch, first)
        log_p, log_q = (
            self.kind.choices(logits, targets)[0].log_softmax(-1) for logits in (first, second)
        )
        forward = nn.functional.kl_div(log_p, log_q, reduction="sum", log_target=True)
        backward = nn.functional.kl_div(log_q, log_p, reduction="sum", log_target=True)
        count = max(1, len(log_p))  # a part of a batch may have no word
        return (forward / count + backward / count) / 2
