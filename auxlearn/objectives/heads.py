"""Heads, targets and outputs of labels of any kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from auxlearn.core.errors import ConfigError
from auxlearn.core.processes import ALONE, Processes
from auxlearn.data.batches import Batch, collate, eval_batches
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import upcast, upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.base import Kind
from auxlearn.kinds.words import WordKind
from auxlearn.objectives.base import classification_head


def outputs_of(
    kind: Kind,
    classify: Callable[[Batch], Tensor],
    texts: TokenizedTexts,
    words: Sequence[int],
    constant: Any,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    processes: Processes = ALONE,
) -> list[np.ndarray]:
    """Return the logits of each text, float64; of a kind per token, those of its words.

    A kind per token needs the number of ``words`` of each text, and predicts ``constant`` for those
    that are cut off or have no token.
    Several processes divide the batches among them, and each returns all outputs.
    """
    found: dict[int, np.ndarray] = {}
    before = np.concatenate([[0], np.cumsum(words)]).astype(np.int64)
    with torch.inference_mode():
        for number, rows in enumerate(eval_batches(texts, kind.eval_batch)):
            if not processes.owns(number):
                continue
            batch = collate(texts, rows)
            with autocast():
                logits = classify(batch).double().cpu()
            if not isinstance(kind, WordKind) or texts.starts is None:
                found |= dict(zip(rows.tolist(), logits.numpy(), strict=True))
                continue
            by_text = logits[batch.attention_mask.bool()].split(texts.lengths[rows].tolist())
            for row, one in zip(rows.tolist(), by_text, strict=True):
                starts = texts.starts[int(texts.offsets[row]) :][: len(one)].numpy()
                starts = np.where(starts < 0, -1, starts - before[row])
                found[row] = kind.by_word(one.numpy(), starts, words[row], constant)
    return _of_all(found, processes)


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


def targets_of(batch: Batch, logits: Tensor) -> Tensor:
    """Return the targets of a labelled batch of any kind, on the device of the logits."""
    if batch.targets is None:
        raise ValueError("a labelled batch is needed, and this one has no labels")
    return upload(batch.targets, logits.device)


def head_of(encoder: SharedEncoder, kind: Kind, outputs: int) -> nn.Module:
    """Return a newly initialised head for further labels."""
    if kind.per_token and encoder.family.tag_logits is None:
        raise ConfigError(f"this encoder has no states of words to tag for {kind.name}")
    return kind.head(classification_head(encoder, outputs))


def apply_head_of(encoder: SharedEncoder, kind: Kind, key: str, batch: Batch) -> Tensor:
    """Return the logits of a head that :func:`head_of` has made."""
    return encoder.apply_head(key, features_of(encoder, kind, batch))


def features_of(encoder: SharedEncoder, kind: Kind, batch: Batch) -> Tensor:
    """Return what a head of a kind takes: a vector for each text, or for each token."""
    if kind.per_token:
        return upcast(encoder.encode(batch).last_hidden_state)
    return encoder.features(batch)
