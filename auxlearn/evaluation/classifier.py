"""Prediction with the classifier that a finished run has exported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor

from auxlearn import devices
from auxlearn.data.tokens import TokenizedTexts, tokenize
from auxlearn.encoders.load import load_classifier
from auxlearn.errors import EncoderError, RunError
from auxlearn.evaluation.metrics import class_probabilities
from auxlearn.results.folder import model_of
from auxlearn.settings import TextWindow
from auxlearn.wording import describe

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
        window: Which tokens of longer texts are kept, as in the run.
    """

    model: Any
    tokenizer: Any
    device: torch.device
    window: TextWindow = "head"

    @classmethod
    def of_run(cls, run: Path) -> Classifier:
        """Load the model of a finished run, onto the GPU if there is one.

        Raises:
            RunError: The path is not a run folder, the run is not finished, or it kept no model.
            EncoderError: The model is damaged.
        """
        folder = model_of(run)
        device = devices.default_device()
        model, tokenizer = load_classifier(folder)
        window: TextWindow = getattr(model.config, "text_window", "head")
        if window not in get_args(TextWindow):
            raise EncoderError(
                f"{folder / 'config.json'} is damaged: its text_window is {describe(window)}; "
                "train again or copy the folder again"
            )
        return cls(model.to(device), tokenizer, device, window)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        names = self.model.config.id2label
        return tuple(names[number] for number in range(len(names)))

    def probabilities(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> np.ndarray:
        """Return class probabilities, ``(texts, classes)``, float64.

        Texts are cut to the ``max_length`` of the run, and as in the run. The probabilities are
        those of ``transformers.pipeline("text-classification", ...)`` on the texts as they are cut.

        Args:
            texts: The texts.
            text_pairs: Second texts, for a sentence-pair task.
        """
        if not texts:
            return np.zeros((0, len(self.label_names)))
        length = self.tokenizer.model_max_length
        arrays = tokenize(self.tokenizer, texts, text_pairs, length, window=self.window)
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
