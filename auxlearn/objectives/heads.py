"""Heads, targets and outputs of labels of any kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from auxlearn.core.errors import ConfigError
from auxlearn.core.processes import ALONE, Processes
from auxlearn.data.batches import Batch, collate, eval_batches, unpad_token_values
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import upcast, upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.base import Kind
from auxlearn.objectives.base import classification_head

#: Texts per forward pass without gradients.
EVAL_BATCH = 128


def outputs_of(
    kind: Kind,
    classify: Callable[[Batch], Tensor],
    texts: TokenizedTexts,
    words: Sequence[int],
    constant: Any,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    processes: Processes = ALONE,
) -> list[np.ndarray]:
    """Return the logits of each text, float64; of a kind per token, ``(words, tags)``.

    A kind per token needs the number of ``words`` of each text, and gives those that are cut off or
    have no token the tag ``constant``.
    Several processes divide the batches among them, and each returns all outputs.
    """
    count = len(texts.input_ids) if kind.per_token else len(texts)
    flat = torch.zeros(count, 0, dtype=torch.float64)
    with torch.inference_mode():
        for number, rows in enumerate(eval_batches(texts, EVAL_BATCH)):
            logits = None
            if processes.owns(number):
                with autocast():
                    logits = classify(collate(texts, rows)).double().cpu()
            if not number:
                outputs = processes.share(None if logits is None else logits.shape[-1])
                flat = flat.new_zeros(count, outputs)
            if logits is not None and kind.per_token:
                unpad_token_values(texts, logits, rows, flat)
            elif logits is not None:
                flat[rows] = logits
        processes.add(flat)
    if not kind.per_token:
        return list(flat.numpy())
    assert texts.starts is not None
    here = texts.starts >= 0
    by_word = np.zeros((sum(words), flat.shape[1]))
    by_word[:, constant] = 30.0  # certain, and finite
    by_word[texts.starts[here].numpy()] = flat[here].numpy()
    return np.split(by_word, np.cumsum(words)[:-1])


def words_of(kind: Kind, texts: Sequence[str]) -> list[int]:
    """Return the number of words of each text, for a kind per token."""
    return [text.count(" ") + 1 for text in texts] if kind.per_token else []


def targets_of(batch: Batch, logits: Tensor) -> Tensor:
    """Return the targets of a labelled batch of any kind, on the device of the logits."""
    if batch.targets is None:
        raise ValueError("a labelled batch is needed, and this one has no labels")
    return upload(batch.targets, logits.device)


def head_of(encoder: SharedEncoder, kind: Kind, outputs: int) -> nn.Module:
    """Return a newly initialised head for further labels, of each text or of each token.

    That of each token is the head of transformers' models of token classification: dropout and an
    output layer.
    """
    if not kind.per_token:
        return classification_head(encoder, outputs)
    if encoder.family.tag_logits is None:
        raise ConfigError(f"this encoder has no states of words to tag for {kind.name}")
    *_, dropout, output = classification_head(encoder, outputs).children()
    return nn.Sequential(dropout, output)


def apply_head_of(encoder: SharedEncoder, kind: Kind, key: str, batch: Batch) -> Tensor:
    """Return the logits of a head that :func:`head_of` has made."""
    return encoder.apply_head(key, features_of(encoder, kind, batch))


def features_of(encoder: SharedEncoder, kind: Kind, batch: Batch) -> Tensor:
    """Return what a head of a kind takes: a vector for each text, or for each token."""
    if kind.per_token:
        return upcast(encoder.encode(batch).last_hidden_state)
    return encoder.features(batch)
