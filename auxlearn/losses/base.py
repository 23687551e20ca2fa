"""Base class of the losses of the primary task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.base import Objective


class PrimaryLoss(Objective):
    """The loss that the classifier is trained with.

    It may look at the texts several times, change them, or use values of each example that it has
    computed in :meth:`prepare`. Evaluation, the validation loss of learned weights and the exported
    model are those of the classifier, whatever the loss.

    A new loss defines :meth:`loss`::

        @register_loss("brier")
        class Brier(PrimaryLoss):
            def loss(self, encoder, batch, generator):
                logits = encoder.classify(batch)
                truth = one_hot(labels_of(batch, logits), logits.shape[1])
                return (logits.softmax(-1) - truth).square().sum(-1).mean()

    Attributes:
        compilable: Whether the loss can be computed with a compiled encoder.
        facts: Numbers about what the loss has prepared, by name, such as the accuracy of a bias
            model; they are recorded with the results, under ``auxiliary`` and ``primary``.
    """

    compilable: ClassVar[bool] = True
    facts: Mapping[str, float] = {}

    @abstractmethod
    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the mean loss over the examples of a labelled mini-batch, a scalar.

        With gradient accumulation the losses of micro-batches are weighted by their numbers of
        examples.

        Args:
            encoder: The shared encoder with its current parameters;
                ``encoder.classify(batch)`` returns the class logits.
            batch: The examples, on the CPU: ``batch.labels`` are their classes, ``batch.indices``
                their numbers among the training examples, whose text is ``context.split.texts``.
                A task that changes the primary batch, such as ``mask_tuning``, has changed it.
            generator: Source of all randomness of this step except dropout, on the CPU.
        """
