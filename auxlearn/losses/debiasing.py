"""Common part of the losses that train against a bias model."""

from __future__ import annotations

from torch import Tensor

from auxlearn.bias.model import BiasOptions, bias_scores
from auxlearn.data.batches import Batch
from auxlearn.devices import upload
from auxlearn.losses.base import PrimaryLoss
from auxlearn.objectives.context import ObjectiveContext, SideValues


class BiasLoss(PrimaryLoss):
    """A loss that uses what a bias model predicts of each training example.

    The bias model is fixed before training and used in training only. Its probabilities are at
    least :data:`~auxlearn.bias.model.FLOOR`.

    Attributes:
        bias: Class probabilities by the bias model, ``(examples, classes)``.
    """

    Options = BiasOptions
    options: BiasOptions
    bias: SideValues

    def prepare(self, context: ObjectiveContext) -> None:
        """Compute the probabilities of the bias model, or read them."""
        scores = bias_scores(context, self.options)
        self.bias = context.side("bias", scores.probabilities)
        self.facts = {"bias_accuracy": scores.accuracy}

    def bias_of(self, batch: Batch, logits: Tensor) -> Tensor:
        """Return the bias probabilities of a batch like its logits, ``(batch, classes)``."""
        return upload(self.bias.of(batch).to(logits.dtype), logits.device)


def gold(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the probability of the gold class of each example, ``(batch,)``."""
    return probabilities.gather(-1, labels[:, None]).squeeze(-1)
