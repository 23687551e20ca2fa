"""The classifier of a finished run in use: its predictions, and its scores on labelled texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from auxlearn.core.errors import EncoderError, RunError, describe, some_of
from auxlearn.core.settings import Windowing
from auxlearn.data.audit import seen_in_train
from auxlearn.data.dataset import Split
from auxlearn.data.ood import OODSet
from auxlearn.data.tokens import HEAD, Tokenization
from auxlearn.encoders import device as devices
from auxlearn.encoders.load import load_classifier
from auxlearn.encoders.shared import pool_windows
from auxlearn.evaluation.metrics import evaluate, predictions_of
from auxlearn.kinds.base import Arrays, Kind
from auxlearn.kinds.choose import CLASSIFICATION, kind_of
from auxlearn.objectives.base import in_order, output_blocks, words_of
from auxlearn.results.folder import RunFolder, model_of
from auxlearn.results.record import Evaluation, RunResults

if TYPE_CHECKING:
    from auxlearn.data.batches import Batch


#: Texts per forward pass, of single classes.
BATCH_SIZE = 64


@dataclass(frozen=True)
class Classifier:
    """The classifier that a run has exported."""

    model: Any  # the transformers classifier, in evaluation mode
    tokenizer: Any  # its tokenizer, whose model_max_length is the run's max_length
    device: torch.device
    windowing: Windowing = HEAD  # how longer texts are read, as in the run
    kind: Kind = CLASSIFICATION

    @classmethod
    def of_run(cls, run: Path) -> Classifier:
        """Load the model of a finished run, onto the GPU if there is one."""
        folder = model_of(run)
        device = devices.default_device()
        kind = kind_of(RunFolder(run).read_config().kind)
        model, tokenizer = load_classifier(folder, kind)
        written = model.config.to_dict()
        entries = {name: written[name] for name in Windowing.model_fields if name in written}
        try:
            windowing = Windowing.model_validate(entries)
        except ValidationError as error:
            name = str(error.errors()[0]["loc"][0])
            raise EncoderError(
                f"{folder / 'config.json'} is damaged: its {name} is {describe(entries[name])}; "
                "train again or copy the folder again"
            ) from None
        found = cls(model.to(device), tokenizer, device, windowing, kind)
        known = RunResults.load(run).dataset.label_names
        if list(found.label_names) != list(known):
            raise EncoderError(
                f"{folder} is not the model of this run: it has the labels "
                f"{some_of(found.label_names)}, the run {some_of(known)}; train again or copy the "
                "folder again"
            )
        return found

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        names = self.model.config.id2label
        return tuple(names[number] for number in range(len(names)))

    def blocks(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> Iterator[tuple[np.ndarray, Arrays]]:
        """Yield numbers of texts and their outputs, float64: of single classes, probabilities.

        Texts are cut, or read in windows, as in the run. The probabilities are those of
        ``transformers.pipeline("text-classification", ...)`` on the texts as they are cut.
        """
        if not texts:
            return
        kind, own = self.kind, self._tokenization
        starts = own.word_starts(texts) if kind.per_token else None
        tokens = own.tokenize(texts, text_pairs, starts=starts)
        constant, size = None, BATCH_SIZE
        if kind is not CLASSIFICATION:
            constant, size = self.constant, kind.eval_batch
        words = words_of(kind, texts)
        for rows, block in output_blocks(
            kind, self._logits, tokens, words, constant, batch_size=size
        ):
            if not all(np.isfinite(one).all() for one in block):
                raise RunError("the model gives NaN for some texts: it is damaged, train again")
            yield rows, block

    def probabilities(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> np.ndarray:
        """Return class probabilities, ``(texts, classes)``, float64; see :meth:`blocks`."""
        found = in_order(self.blocks(texts, text_pairs))
        return np.reshape(found, (len(texts), len(self.label_names)))

    @property
    def _tokenization(self) -> Tokenization:
        return Tokenization(self.tokenizer, self.tokenizer.model_max_length, self.windowing)

    @property
    def thresholds(self) -> np.ndarray | None:
        """Probability from which on each label is predicted; ``None`` for 0.5, or without any."""
        found = getattr(self.model.config, "thresholds", None)
        return None if found is None else np.asarray(found, dtype=float)

    @property
    def constant(self) -> Any:
        """The constant prediction of the run, for labels of any kind but single classes."""
        found = getattr(self.model.config, "constant_prediction", None)
        if found is None:
            raise RunError(
                "the config.json of the model is damaged, it has no constant_prediction: train "
                "again or copy the folder again"
            )
        return found

    def evaluate(self, ood: OODSet, train: Split | None, constant: Any) -> Evaluation:
        """Evaluate on a set whose labels are mapped to those of the model, and ``train`` beside it;
        ``constant``: the constant prediction of the run.
        """
        blocks = self.blocks(ood.split.texts, ood.split.text_pairs)
        found = predictions_of(blocks, ood, ood.split, self.thresholds)
        seen = seen_in_train(train, ood.split) if train else None
        return evaluate(ood, found, None, seen, constant)

    def _logits(self, batch: Batch) -> Tensor:
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        if batch.token_type_ids is not None:
            inputs["token_type_ids"] = batch.token_type_ids
        found = self.model(**{k: devices.upload(v, self.device) for k, v in inputs.items()}).logits
        if self.kind.per_token:
            return found
        return pool_windows(found, batch, self.windowing.window_pooling)
