"""What each choice costs: operations and memory of an optimizer step, counted without computing.

The encoder is on torch's meta device, whose tensors have shapes and no values. The step is the
program's own, so that nothing of it can be forgotten, and it needs neither time nor memory, however
large the encoder is. Operations are those of matrix products, counted by torch's flop counter: a
multiply-add is two. Bytes are those of the tensors of the encoder, its gradients, the optimizer and
the step; those of the batch's token ids are not among them. Attention weights are laid out, as they
are on a CPU with dropout; fused attention on a GPU needs less memory.

    python -m benchmarks.costs            # four sizes of encoder, some minutes
    python -m benchmarks.costs --sizes base
"""

from __future__ import annotations

import argparse
import gc
import weakref
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from auxlearn.core import rng
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.trainable import LowRankAdapters
from auxlearn.scoring import pseudo_likelihood
from benchmarks import weighting
from benchmarks.common import encoder_of_size, save

SIZES = ("tiny", "minilm", "base", "large")
BATCH, RANK = 16, 8
#: Texts that are scored, of 128 tokens each, and their masked copies; ``None``: one for each token.
SCORED, PASSES = 4, (None, 8)


@dataclass(frozen=True)
class Choice:
    """A way to train.

    Attributes:
        rule: Title of a contestant of :mod:`benchmarks.weighting`, with its one auxiliary task.
        length: Tokens of a row.
        windows: Rows of a text.
        accumulation: Micro-batches of a step.
        rank: Of low-rank adapters; 0: the encoder itself is trained.
    """

    rule: str = weighting.SINGLE
    length: int = weighting.LENGTH
    windows: int = 1
    accumulation: int = 1
    rank: int = 0


FIXED = "fixed share of one task"
CHOICES = {
    "single task": Choice(),
    FIXED: Choice("fixed, separate steps"),
    "`pcgrad`": Choice("pcgrad"),
    "`meta`, `horizon: steps`": Choice("meta"),
    "`meta`, `horizon: steps`, `unroll: 2`": Choice("meta, unroll 2"),
    f"single task, `lora_rank: {RANK}`": Choice(rank=RANK),
    "single task, `gradient_accumulation_steps: 4`": Choice(accumulation=4),
    "single task, 512 tokens of each text": Choice(length=512),
    "single task, 1,500 tokens in windows of 512": Choice(length=512, windows=4),
}
#: The first two choices, one after the other.
WHOLE_RUNS = "`meta` (default: two runs)"


class Meter(TorchDispatchMode):
    """Counts the bytes of tensors on the meta device within the block.

    What is read from such a tensor is one: a rule that reads its weights or norms does not stop.

    Attributes:
        held: Bytes of the tensors that there are.
        peak: The most that there were at once, since it was last set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords = keywords or {}
        if arguments and isinstance(arguments[0], torch.Tensor) and arguments[0].is_meta:
            if function is torch.ops.aten._local_scalar_dense.default:
                return 1.0
            to_cpu = torch.device(keywords.get("device") or "meta").type == "cpu"
            if function is torch.ops.aten._to_copy.default and to_cpu:
                dtype = keywords.get("dtype") or arguments[0].dtype
                return torch.ones(arguments[0].shape, dtype=dtype)
        found = function(*arguments, **keywords)
        for tensor in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                self._see(tensor.untyped_storage())
        return found

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.held += size
            self.peak = max(self.peak, self.held)
            weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.held -= size


def texts(length: int, windows: int = 1) -> TokenizedTexts:
    """Return random texts of so many rows of ``length`` tokens each."""
    rows = weighting.texts()
    ends = torch.arange(0, len(rows.input_ids) + 1, length)
    offsets, labels = ends[::windows].contiguous(), rows.labels
    assert labels is not None
    return replace(
        rows,
        offsets=offsets,
        labels=labels[: len(offsets) - 1],
        windows=ends if windows > 1 else None,
    )


def step(size: str, choice: Choice) -> dict[str, Any]:
    """Return operations and bytes of an optimizer step.

    Bytes "kept" are there between two steps: parameters and moments of the optimizer.
    """
    rows = texts(choice.length, choice.windows)
    # No tensor has a value that a seed could change.
    with Meter() as meter, patch.object(rng, "seeded", lambda *purpose, device=None: nullcontext()):
        encoder = encoder_of_size(size, weighting.CLASSES, device="meta").train()
        if choice.rank:
            LowRankAdapters(encoder, choice.rank, 2.0 * choice.rank, 0.0, seed=0)
        chosen = weighting.contestants()[choice.rule]
        contestant = weighting.Contestant(
            encoder, rows, choice.rule, chosen, BATCH, accumulation=choice.accumulation
        )
        contestant.step(0)  # makes the moments
        gc.collect()
        meter.peak = kept = meter.held
        with FlopCounterMode(display=False) as counter:
            contestant.step(1)
        return {
            "operations": counter.get_total_flops(),
            "bytes kept": kept,
            "bytes at the peak": meter.peak,
        }


def scores(size: str, passes: int | None) -> dict[str, Any]:
    """Return the operations of scoring a million tokens, and the bytes at the peak."""
    rows = weighting.texts().select(torch.arange(SCORED))
    budgets = pseudo_likelihood.TOKEN_BUDGET
    # The meta device counts as a GPU.
    with Meter() as meter, patch.dict(budgets, gpu=budgets["cpu"]):
        encoder = encoder_of_size(size, weighting.CLASSES, device="meta")
        with FlopCounterMode(display=False) as counter:
            pseudo_likelihood.pseudo_log_likelihood(encoder, rows, passes=passes)
        return {
            "operations": counter.get_total_flops() / len(rows.input_ids) * 1e6,
            "bytes at the peak": meter.peak,
        }


def main() -> None:
    """Count and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="encoders, by shape or name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="by default benchmarks/results/costs.json")
    parser.set_defaults(clock="wall", device="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sizes = {}
    for size in options.sizes:
        encoder = encoder_of_size(size, weighting.CLASSES, device="meta")
        longest = encoder.config.max_position_embeddings
        steps = {
            name: step(size, choice) for name, choice in CHOICES.items() if choice.length <= longest
        }
        single, fixed = steps["single task"], steps[FIXED]
        runs = {**fixed, "operations": single["operations"] + fixed["operations"]}
        sizes[size] = {
            "parameters": sum(parameter.numel() for parameter in encoder.parameters()),
            "steps": steps | {WHOLE_RUNS: runs},
            "scores": {str(passes): scores(size, passes) for passes in PASSES},
        }
        print(f"{size}: done", flush=True)
    save("costs", options, {"batch": BATCH, "length": weighting.LENGTH, "sizes": sizes})


if __name__ == "__main__":
    main()
