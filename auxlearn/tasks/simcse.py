"""Contrastive learning of text representations with dropout as the only augmentation."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.registry import register_task
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import CORPUS, AuxiliaryTask


class SimCSEOptions(Described):
    temperature: float = Field(0.05, gt=0)
    """Divides the cosine similarities; 0.05 in the paper."""

    corpus: str | None = CORPUS


@register_task("simcse")
class SimCSE(AuxiliaryTask):
    """Tell a text's second dropout pass from those of the other texts in the batch.

    Gao, Yao and Chen 2021, `SimCSE <https://arxiv.org/abs/2104.08821>`_, the unsupervised form: the
    loss is the cross-entropy, in nats, of finding each text among the second passes of the batch by
    cosine similarity divided by the temperature (eq. 4). As in the paper, a dense layer with tanh
    on the classification token's state is trained with it and not exported.

    With gradient accumulation the other texts are those of the micro-batch. Equal texts in a batch
    count as different ones, as in the authors' code.
    """

    Options = SimCSEOptions
    options: SimCSEOptions

    def prepare(self, context: ObjectiveContext) -> None:
        self.texts = context.texts_of(self.options.corpus)
        size = context.encoder.hidden_size
        self.head = context.add_head(
            "projection", lambda: nn.Sequential(nn.Linear(size, size), nn.Tanh())
        )

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        first, second = (encoder.apply_head(self.head, encoder.features(batch)) for _ in range(2))
        similarities = nn.functional.cosine_similarity(first[:, None], second[None], dim=-1)
        itself = upload(torch.arange(len(first)), first.device)
        return nn.functional.cross_entropy(similarities / self.options.temperature, itself)
