"""Mask-tuning: train the classifier on texts perturbed by the encoder's own predictions.

Ghanbarzadeh et al. 2023, "Improving the Reusability of Pre-trained Language Models in Real-world
Applications", https://arxiv.org/abs/2307.10457; first as "Mask-tuning: Towards Improving
Pre-trained Language Models' Generalization" (2022).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.core.validation import Described
from auxlearn.data.batches import Batch
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import mean_cross_entropy, ordinary_ids
from auxlearn.objectives.perturbation import choose_fixed_share, choose_independently, perturb
from auxlearn.tasks.base import AuxiliaryTask, TaskResult


class MaskTuningOptions(Described):
    probability: float = Field(0.05, gt=0, le=1)
    """Share of the tokens to mask; at least one token of each text is masked."""

    selection: Literal["each", "share"] = "each"
    """each: mask every token with this probability; share: mask exactly this share of every text,
    rounded to whole tokens."""

    predictions: Literal["argmax", "sample"] = "argmax"
    """Replacement token: the most likely one, or one sampled by probability."""

    temperature: float = Field(1.0, gt=0)
    """Softmax temperature of sampled replacements; higher is more diverse."""


@register_task("mask_tuning")
class MaskTuning(AuxiliaryTask):
    """Mask tokens of the primary batch, predict them, and train the classifier on the result.

    The loss is the mean cross-entropy of the masked tokens, in nats. The primary task is trained on
    the perturbed text only, with the label of the original. With the weighting ``fixed`` the total
    loss is eq. 1 of the paper, alpha * L_MLM + (1 - alpha) * L_classification. One forward pass of
    the language model gives both its loss and the predictions, so the predictions are made with
    dropout.

    No gradient flows from the classification loss through the replacement tokens: a token id is not
    differentiable, and no surrogate gradient is used. The two losses are coupled only through the
    shared encoder.

    "5% of the tokens" can refer to each token or to each text; ``selection`` offers both.

    The paper does not specify how a replacement is chosen (here the most likely token, or a sampled
    one), whether it may be a special token (here no, except the unknown token), and how short texts
    are treated (here at least one random token is masked; a text without maskable tokens is left
    unchanged).
    """

    Options = MaskTuningOptions
    options: MaskTuningOptions
    batches = "primary"

    def prepare(self, context: ObjectiveContext) -> None:
        context.encoder.require_language_model(self.name)
        super().prepare(context)
        self.allowed = upload(
            ordinary_ids(context.encoder.tokenizer, unknown=True), context.encoder.device
        )

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        return int(self._choose(batch.maskable, self.options.probability, generator).sum())

    @property
    def _choose(self) -> Callable[[Tensor, float, torch.Generator], Tensor]:
        return choose_fixed_share if self.options.selection == "share" else choose_independently

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> TaskResult:
        options = self.options
        temperature = options.temperature if options.predictions == "sample" else None
        perturbation = perturb(
            encoder, batch, options.probability, self.allowed, temperature, generator, self._choose
        )
        loss = mean_cross_entropy(perturbation.logits, batch.input_ids[perturbation.chosen])
        return TaskResult(loss, perturbation.batch, perturbation.chosen)
