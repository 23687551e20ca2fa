"""What the tests of losses share: data, contexts, batches, an encoder in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auxlearn.core.cache import TensorCache
from auxlearn.core.validation import validate
from auxlearn.data.batches import Batch, collate
from auxlearn.data.dataset import Split
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.context import ObjectiveContext
from tests import helpers

LABELS = (0, 1, 2, 2, 0, 0, 1, 2)
LABEL_LIST = list(LABELS)


def split_of(count: int = 8, pairs: bool = False) -> Split:
    """The first lines, labelled; of pairs, each line with the one after it."""
    return Split(
        "train",
        helpers.LINES[:count],
        tuple(LABELS[number % len(LABELS)] for number in range(count)),
        helpers.LABELS,
        text_pairs=helpers.LINES[1 : count + 1] if pairs else None,
    )


def context_of(
    encoder: SharedEncoder, folder: Path, split: Split | None = None, seed: int = 0, **more: Any
) -> ObjectiveContext:
    split = split or split_of()
    labels = list(split.labels or ())
    texts = helpers.tokenized(encoder, split.texts, labels, split.text_pairs, max_length=64)
    given = {"max_length": 64, "cache": TensorCache(folder), "seed": seed} | more
    return ObjectiveContext("primary", encoder, split, texts, **given)


def prepared(cls: Any, encoder: SharedEncoder, folder: Path, **options: Any) -> tuple[Any, Any]:
    loss = cls(validate(cls.Options, options, cls.name))
    context = context_of(encoder, folder)
    loss.prepare(context)
    return loss, context


def batch_of(context: ObjectiveContext, *indices: int) -> Batch:
    return collate(context.texts, torch.tensor(indices or range(len(context.texts))))


@contextmanager
def unchanged(encoder: SharedEncoder) -> Iterator[None]:
    """Expect that an encoder is left as it was: parameters, gradients and mode."""
    before = helpers.snapshot(encoder)
    yield
    after = helpers.snapshot(encoder)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not encoder.training
    assert all(parameter.grad is None for parameter in encoder.parameters())


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normalise(values: Any) -> Any:
    return values / values.sum(-1, keepdims=True)


def softmax(logits: Any) -> np.ndarray:
    values = np.asarray(logits, dtype=np.float64)
    return normalise(np.exp(values - values.max(-1, keepdims=True)))


def random_logits(seed: int = 0, rows: int = 6, scale: float = 2.0) -> tuple[torch.Tensor, Any]:
    generator = draws(seed)
    logits = torch.randn(rows, 3, generator=generator, dtype=torch.float64) * scale
    return logits, torch.randint(3, (rows,), generator=generator)
