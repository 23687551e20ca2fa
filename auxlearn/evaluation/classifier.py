"""Prediction with the classifier that a finished run has exported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from auxlearn import devices
from auxlearn.data.tokens import TokenizedTexts, tokenize
from auxlearn.encoders.load import load_classifier
from auxlearn.errors import RunError
from auxlearn.evaluation.metrics import class_probabilities
from auxlearn.results.folder import RunFolder, check_finished as check_finished

if TYPE_CHECKING:
    from auxlearn.data.batches import Batch

#: Texts per forward pass.
BATCH_SIZE = 64


@dataclass(frozen=True)
class Classifier:
    """The classifier that a run has exported.

    Attributes:
        model: The transformers classifier, in evaluation mode.
        tokenizer: Its tokenizer, whose ``model_max_length`` is the run's ``max_length``.
        device: Device of the model.
    """

    model: Any
    tokenizer: Any
    device: torch.device

    @classmethod
    def of_run(cls, run: Path) -> Classifier:
        """Load the model of a finished run, onto the GPU if there is one.

        Raises:
            RunError: The path is not a run folder, or the run is not finished.
            EncoderError: The model is damaged.
        """
        check_finished(run)
        device = devices.default_device()
        model, tokenizer = load_classifier(RunFolder(run).model_path)
        return cls(model.to(device), tokenizer, device)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        names = self.model.config.id2label
        return tuple(names[number] for number in range(len(names)))

    def probabilities(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> np.ndarray:
        """Return class probabilities, ``(texts, classes)``, float64.

        Texts are truncated to the ``max_length`` of the run. The probabilities are those of
        ``transformers.pipeline("text-classification", ...)`` on the truncated texts.

        Args:
            texts: The texts.
            text_pairs: Second texts, for a sentence-pair task.
        """
        if not texts:
            return np.zeros((0, len(self.label_names)))
        arrays = tokenize(self.tokenizer, texts, text_pairs, self.tokenizer.model_max_length)
        tokens = TokenizedTexts(**arrays, pad_id=self.tokenizer.pad_token_id)
        found = class_probabilities(self._logits, tokens, BATCH_SIZE)
        if not np.isfinite(found).all():
            raise RunError("the model gives NaN for some texts: it is damaged, train again")
        return found

    def _logits(self, batch: Batch) -> Tensor:
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        if batch.token_type_ids is not None:
            inputs["token_type_ids"] = batch.token_type_ids
        return self.model(**{k: devices.upload(v, self.device) for k, v in inputs.items()}).logits
