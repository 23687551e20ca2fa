"""Base class of everything that contributes a loss to a run; heads, targets and outputs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from auxlearn.core.errors import ConfigError
from auxlearn.core.processes import ALONE, Processes
from auxlearn.core.validation import Settings
from auxlearn.data.batches import Batch, collate, eval_batches
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import upcast, upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.base import Kind
from auxlearn.kinds.predictions import Arrays
from auxlearn.objectives.context import ObjectiveContext

if TYPE_CHECKING:
    from auxlearn.kinds.words import WordKind


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
    """Return the class indices of a labelled batch, ``(batch,)``, on the device of the logits; of
    another kind of labels, its targets.
    """
    if batch.targets is None:
        raise ValueError("a labelled batch is needed, and this one has no labels")
    return upload(batch.targets, logits.device)


def classification_head(encoder: SharedEncoder, classes: int) -> nn.Sequential:
    """Return a newly initialised head from :meth:`SharedEncoder.features` to the logits of classes:
    BERT's pooler and classifier, with weights drawn as those of the encoder's own heads.
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


def outputs_of(
    kind: Kind,
    classify: Callable[[Batch], Tensor],
    texts: TokenizedTexts,
    words: Sequence[int],
    constant: Any,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    processes: Processes = ALONE,
    batch_size: int = 0,
) -> Arrays:
    """Return the outputs of texts in their order, float64.

    A kind per token needs the number of ``words`` of each text, and predicts ``constant`` for those
    that are cut off. Several processes divide the batches among them; each gets all outputs.
    """
    batches = enumerate(eval_batches(texts, batch_size or kind.eval_batch))
    own = [rows for number, rows in batches if processes.owns(number)]

    def logits_of(batch: Batch) -> Tensor:
        with autocast():
            return classify(batch)

    with torch.inference_mode():
        if kind.per_token:
            parts = _of_words(cast("WordKind", kind), logits_of, texts, own, words, constant)
            return _of_all(parts, processes)
        chunks = [kind.of_logits(logits_of(collate(texts, rows))) for rows in own]
        width = processes.share(chunks[0].shape[1] if chunks else None)
        outputs = torch.zeros(len(texts), width, dtype=torch.float32)
        if chunks:
            outputs[torch.cat(own)] = torch.cat(chunks).cpu()  # the only synchronisation
        processes.add(outputs)
        return outputs.double().numpy()


def _of_words(
    kind: WordKind,
    logits_of: Callable[[Batch], Tensor],
    texts: TokenizedTexts,
    batches: Iterable[Tensor],
    words: Sequence[int],
    constant: Any,
) -> dict[int, np.ndarray]:
    assert texts.starts is not None
    outputs: dict[int, np.ndarray] = {}
    before = np.concatenate([[0], np.cumsum(words)]).astype(np.int64)
    for rows in batches:
        batch = collate(texts, rows)
        logits = logits_of(batch).double().cpu()
        by_text = logits[batch.attention_mask.bool()].split(texts.lengths[rows].tolist())
        for row, of_tokens in zip(rows.tolist(), by_text, strict=True):
            starts = texts.starts[int(texts.offsets[row]) :][: len(of_tokens)].numpy()
            starts = np.where(starts < 0, -1, starts - before[row])
            outputs[row] = kind.by_word(of_tokens.numpy(), starts, words[row], constant)
    return outputs


def _of_all(found: Mapping[int, np.ndarray], processes: Processes) -> list[np.ndarray]:
    """Return the outputs of all texts in order, of which each process has found some."""
    if processes.count == 1:
        return [found[row] for row in range(len(found))]
    parts = processes.gather([[row, list(one.shape)] for row, one in found.items()])
    shapes = dict(sorted((row, shape) for part in parts for row, shape in part))
    flat = torch.zeros(sum(map(math.prod, shapes.values())), dtype=torch.float64)
    outputs = flat.split([math.prod(shape) for shape in shapes.values()])
    for row, one in found.items():
        outputs[row].copy_(torch.from_numpy(one).flatten())
    processes.add(flat)
    return [one.reshape(shapes[row]).numpy() for row, one in enumerate(outputs)]


def words_of(kind: Kind, texts: Sequence[str]) -> list[int]:
    """Return the number of words of each text, for a kind per token."""
    return [text.count(" ") + 1 for text in texts] if kind.per_token else []


def head_of(encoder: SharedEncoder, kind: Kind, outputs: int) -> nn.Module:
    """Return a newly initialised head for further labels."""
    if kind.per_token and encoder.family.tag_logits is None:
        raise ConfigError(f"this encoder has no states of words to tag for {kind.name}")
    return kind.head(classification_head(encoder, outputs))


def apply_head_of(encoder: SharedEncoder, kind: Kind, key: str, batch: Batch) -> Tensor:
    return encoder.apply_head(key, features_of(encoder, kind, batch))


def features_of(encoder: SharedEncoder, kind: Kind, batch: Batch) -> Tensor:
    """Return what a head of a kind takes: a vector for each text, or for each token."""
    if kind.per_token:
        return upcast(encoder.encode(batch).last_hidden_state)
    return encoder.features(batch)
