"""Work grows with the number of texts, not with its square: counted at two sizes, not timed."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from auxlearn.core.cache import TensorCache
from auxlearn.data.audit import audit
from auxlearn.data.batches import BatchStream, eval_batches
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.tokens import TokenizedTexts, offsets_of
from auxlearn.objectives.masking import rescale_texts
from auxlearn.scoring import pseudo_likelihood as cached

LENGTH, FEW, TIMES = 3, 200, 4


class Elements(TorchDispatchMode):
    """Counts operations of torch and the elements that they make; a view makes none."""

    count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        found = function(*arguments, **(keywords or {}))
        given = {id(one.untyped_storage()) for one in arguments if isinstance(one, torch.Tensor)}
        for one in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(one, torch.Tensor) and id(one.untyped_storage()) not in given:
                self.count += one.numel()
        self.count += 1
        return found


def work(run: Callable[[], object]) -> int:
    """Return the calls of functions, operations of torch and elements that they make."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    with Elements() as elements:
        sys.setprofile(count)
        try:
            run()
        finally:
            sys.setprofile(before)
    return calls + elements.count


def texts(count: int, windows: int = 1) -> TokenizedTexts:
    tokens = count * windows * LENGTH
    return TokenizedTexts(
        input_ids=torch.arange(tokens, dtype=torch.int32),
        words=torch.arange(tokens, dtype=torch.int32) % LENGTH,
        maskable=torch.ones(tokens, dtype=torch.bool),
        offsets=offsets_of(torch.full((count,), windows * LENGTH)),
        pad_id=0,
        labels=torch.zeros(count, dtype=torch.long),
        windows=offsets_of(torch.full((count * windows,), LENGTH)) if windows > 1 else None,
    )


def an_epoch(count: int, windows: int = 1) -> Callable[[], object]:
    stream = BatchStream(texts(count, windows), 8, 0, "primary")
    return lambda: [stream.batch(step) for step in range(stream.steps_per_epoch)]


def an_audit(count: int) -> Callable[[], object]:
    def split(name: str) -> Split:
        lines = tuple(f"text {number} of {name}" for number in range(count))
        return Split(name, lines, tuple(number % 2 for number in range(count)), ("a", "b"))

    dataset = TextDataset("data", {name: split(name) for name in ("train", "dev", "test")})
    return lambda: audit(dataset)


def mask_probabilities(count: int) -> Callable[[], object]:
    rows = texts(count)
    scores = torch.rand(len(rows.input_ids), generator=torch.Generator().manual_seed(0))
    return lambda: rescale_texts(rows, scores.double(), 0.15)


class Encoder:
    """What the cache asks of an encoder that scores."""

    device = torch.device("cpu")
    family = type("Family", (), {"stack": None})
    tokenizer = type("Tokenizer", (), {"mask_token_id": 1})

    def language_model_fingerprint(self) -> str:
        return "model"


WORK: dict[str, Callable[[int], Callable[[], object]]] = {
    "batches by length": an_epoch,
    "batches of windows": lambda count: an_epoch(count, 2),
    "batches of an evaluation": lambda count: lambda: eval_batches(texts(count, 2), 8),
    "an audit": an_audit,
    "scores to mask probabilities": mask_probabilities,
    "shards of scores": lambda count: (
        lambda: cached.score_texts(
            Encoder(),  # type: ignore[arg-type]
            texts(count),
            TensorCache(Path(tempfile.mkdtemp(dir=os.environ["AUXLEARN_CACHE"]))),  # an empty one
        )
    ),
}


@pytest.mark.parametrize("what", WORK)
def test_work_grows_with_the_number_of_texts(what, monkeypatch):
    monkeypatch.setattr(cached, "SHARD_TEXTS", 8)
    monkeypatch.setattr(
        cached, "pseudo_log_likelihood", lambda encoder, shard, *more: shard.input_ids.float()
    )
    few, many = (WORK[what](count) for count in (FEW, TIMES * FEW))
    few()  # what is imported or made once does not count
    assert work(many) < 1.4 * TIMES * work(few)
