"""Base class of everything that contributes a loss to a run, and its heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from auxlearn.core.validation import Settings
from auxlearn.data.batches import Batch
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.context import ObjectiveContext


class Objective(ABC):
    """A loss that the shared encoder is trained with.

    An objective is constructed with its options, prepared once with the pretrained encoder, and
    then asked for a loss in every optimizer step (with gradient accumulation, for every
    micro-batch). Only :meth:`loss` is abstract.

    Args:
        options: The objective's settings, an instance of :attr:`Options`.

    Attributes:
        name: The registered name, set by the decorator that registers the class.
        Options: Class of the settings, a subclass of :class:`~auxlearn.core.settings.Settings`. Its
            fields become command-line options and YAML keys; their descriptions become help texts.
        compares_dropout: Whether the loss compares passes that differ in dropout only, and means
            nothing on an encoder without any. A run on such an encoder is refused then.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Settings]] = Settings
    compares_dropout: ClassVar[bool] = False

    def __init__(self, options: Settings) -> None:
        self.options = options

    def prepare(self, context: ObjectiveContext) -> None:
        """Prepare the objective, once before training; by default do nothing.

        Args:
            context: The pretrained encoder, the training examples and helpers.

        Raises:
            UserError: An objective should raise a subclass of it for anything that the user can
                fix.
        """

    @abstractmethod
    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Any:
        """Return the mean loss of one mini-batch, a scalar with a graph to trained parameters.

        Args:
            encoder: The shared encoder with its current parameters. Use this one, not that of
                ``prepare``: an unrolled step passes a copy.
            batch: A batch on the CPU, so that reading it does not synchronise with a GPU. The
                methods of the encoder move their inputs to its device and return outputs there;
                move targets to them with ``upload(batch.labels, logits.device)``.
            generator: Source of all randomness of this step except dropout, on the CPU. The same
                step of a resumed run gets a generator in the same state.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """Return the objective's state for checkpoints; by default there is none."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the state that :meth:`state_dict` returned."""


def labels_of(batch: Batch, logits: Tensor) -> Tensor:
    """Return the class indices of a labelled batch, ``(batch,)``, on the device of the logits.

    Raises:
        ValueError: The batch has no labels.
    """
    if batch.labels is None:
        raise ValueError("a labelled batch is needed, and this one has no labels")
    return upload(batch.labels, logits.device)


def classification_head(encoder: SharedEncoder, classes: int) -> nn.Sequential:
    """Return a newly initialised head from :meth:`SharedEncoder.features` to class logits.

    It is BERT's pooler and classifier: a dense layer, tanh, dropout and an output layer, with
    weights drawn as those of the encoder's own heads.

    Args:
        encoder: The encoder whose features it takes; gives sizes, dropout and initialisation.
        classes: Number of classes.
    """
    config, size = encoder.config, encoder.hidden_size
    dropout = getattr(config, "classifier_dropout", None)
    for name in ("hidden_dropout_prob", "dropout", "hidden_dropout"):
        dropout = getattr(config, name, None) if dropout is None else dropout
    dense, output = nn.Linear(size, size), nn.Linear(size, classes)
    deviation = float(getattr(config, "initializer_range", getattr(config, "init_std", 0.02)))
    for layer in (dense, output):
        nn.init.normal_(layer.weight, std=deviation)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(dense, nn.Tanh(), nn.Dropout(dropout or 0.0), output)
