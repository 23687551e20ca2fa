"""Confidence regularisation: learn a teacher's probabilities, evened out where they are biased.

Utama et al. 2020, "Mind the Trade-off: Debiasing NLU Models without Degrading the In-distribution
Performance", https://arxiv.org/abs/2005.00315; code at
https://github.com/UKPLab/acl2020-confidence-regularization.
"""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import Field, field_validator
from torch import Tensor

from auxlearn.core.registry import register_loss
from auxlearn.data.batches import Batch
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.base import PrimaryLoss, gold
from auxlearn.losses.bias import BiasOptions, bias_scores, check_source, encoder_scores, file_scores
from auxlearn.losses.bias_models import FineTuning
from auxlearn.objectives.context import ObjectiveContext, SideValues


class ConfidenceOptions(BiasOptions):
    teacher: str = "cross_fit"
    """Teacher: cross_fit (the run's encoder, fine-tuned on the other folds), or a table file with a
    probability of every class for every training example."""

    teacher_epochs: int = Field(3, ge=1)
    """Number of epochs of teacher: cross_fit."""

    teacher_learning_rate: float = Field(5e-5, gt=0)
    """Peak learning rate of teacher: cross_fit."""

    @field_validator("teacher")
    @classmethod
    def _teacher(cls, value: str) -> str:
        return check_source(value, ("cross_fit",))


@register_loss("confidence")
class Confidence(PrimaryLoss):
    """Mean over the examples of ``-sum_j s_j log p_j`` with s_j proportional to ``t_j^(1 - b_y)``.

    p are the class probabilities of the classifier, t those of a teacher that was fine-tuned with
    cross-entropy, and b_y the bias model's probability of the gold class: where it is 1 the target
    is uniform, where it is 0 the teacher's. Labels enter by b_y and by the
    teacher's training only.

    The paper's teacher has seen the examples that it scores; here ``cross_fit`` fine-tunes the
    run's encoder once for each fold, at the paper's settings for MNLI (3 epochs, 5e-5, 32 examples
    per step), and scores the examples of that fold.

    Attributes:
        targets: The targets s, ``(examples, classes)``.
    """

    Options = ConfidenceOptions
    options: ConfidenceOptions
    targets: SideValues

    def prepare(self, context: ObjectiveContext) -> None:
        options = self.options
        bias = bias_scores(context, options)
        if options.teacher == "cross_fit":
            settings = FineTuning(options.teacher_epochs, options.teacher_learning_rate)
            teacher = encoder_scores(
                context, "teacher", options.bias_folds, settings, context.encoder
            )
        else:
            teacher = file_scores(context, Path(options.teacher), "teacher")
        self.facts = {"bias_accuracy": bias.accuracy, "teacher_accuracy": teacher.accuracy}
        labels = torch.tensor(context.split.labels)
        targets = smoothed_targets(teacher.probabilities, bias.probabilities, labels)
        self.targets = context.side("targets", targets)

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        logits = encoder.classify(batch)
        targets = upload(self.targets.of(batch).to(logits.dtype), logits.device)
        return -(targets * logits.log_softmax(-1)).sum(-1).mean()


def smoothed_targets(teacher: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Return the targets, ``(examples, classes)``, by what teacher and bias model predict."""
    scaled = teacher.pow(1 - gold(bias, labels)[:, None])
    return scaled / scaled.sum(-1, keepdim=True)
