"""Mask-tuning: classify the text that the encoder itself has rewritten.

Ghanbarzadeh et al. 2023, "Improving the Reusability of Pre-trained Language Models in Real-world
Applications"; first as "Mask-tuning: Towards Improving Pre-trained Language Models'
Generalization" (2022).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.config import Settings
from auxlearn.data.batches import Batch
from auxlearn.devices import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.masking.perturbation import choose_share, choose_some, perturb, writable_ids
from auxlearn.registry import register_task
from auxlearn.tasks.base import AuxiliaryTask, TaskContext, TaskResult


class MaskTuningOptions(Settings):
    """Settings of Mask-tuning."""

    probability: float = Field(
        0.05,
        gt=0,
        le=1,
        description="Share of the tokens that are masked; at least one of a text is.",
    )
    selection: Literal["each", "share"] = Field(
        "each",
        description="each: every token is masked with this probability; share: exactly this share "
        "of every text, rounded to whole tokens.",
    )
    predictions: Literal["argmax", "sample"] = Field(
        "argmax", description="What is put in: the likeliest token, or one drawn by probability."
    )
    temperature: float = Field(
        1.0, gt=0, description="Softmax temperature of sampled predictions; higher: more diverse."
    )


@register_task("mask_tuning")
class MaskTuning(AuxiliaryTask):
    """Mask tokens of the primary batch, predict them, and train the classifier on the result.

    The loss is the mean cross-entropy of the masked tokens, in nats. The primary task sees the
    perturbed text only, under the label of the original. With the weighting ``fixed`` the whole is
    eq. 1 of the paper, alpha * L_MLM + (1 - alpha) * L_classification. One pass of the language
    model serves both its loss and the predictions, so dropout takes part in what is predicted.

    No gradient flows from the classification through the tokens that were put in: a token id has
    none, and nothing is put in its place. The two losses meet in the shared encoder alone.

    "5% of the tokens" can be meant of each token or of each text: ``selection`` offers both.

    The paper leaves open: how a token is picked (the likeliest one here, or drawn), whether a
    special token may be (no; the unknown token may), and what becomes of a text too short for its
    share (one token, drawn, is masked) or with nothing to mask (it stays as it is).
    """

    Options = MaskTuningOptions
    options: MaskTuningOptions
    batches = "primary"

    def prepare(self, context: TaskContext) -> None:
        """List the tokens that may be put in."""
        super().prepare(context)
        self.allowed = upload(writable_ids(context.encoder.tokenizer), context.encoder.device)

    def items(self, batch: Batch, generator: torch.Generator) -> int:
        """Return how many tokens are masked."""
        return int(self._choose(batch.maskable, self.options.probability, generator).sum())

    @property
    def _choose(self) -> Callable[[Tensor, float, torch.Generator], Tensor]:
        return choose_share if self.options.selection == "share" else choose_some

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> TaskResult:
        """Return the cross-entropy of the masked tokens, and the perturbed batch."""
        options = self.options
        temperature = options.temperature if options.predictions == "sample" else None
        made = perturb(
            encoder,
            batch,
            options.probability,
            self.allowed,
            temperature,
            generator,
            self._choose,
        )
        targets = upload(batch.input_ids[made.chosen], made.logits.device)
        # The sum over no tokens is a zero that still has a graph; the mean would be NaN.
        total = nn.functional.cross_entropy(made.logits, targets, reduction="sum")
        return TaskResult(total / max(1, len(targets)), made.batch, made.chosen)
