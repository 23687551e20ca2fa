"""How time and peak memory grow: with length, number of texts, objectives, size of the encoder.

On the CPU every point comes from a process of its own, so that its peak memory is its own; on CUDA
the allocator counts. Its time is the median of three, or of as many as ten seconds allow. Beside it
stands the work: the operations of all matrix products, counted. ``--quick`` takes the two smallest
points of each series.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from typing import Any

import torch

from auxlearn.data.batches import collate
from auxlearn.data.tokens import TokenizedTexts, tokenize
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.scoring.cached import SHARD_TEXTS
from auxlearn.scoring.pseudo_likelihood import pseudo_log_likelihood
from benchmarks.common import Stopwatch, arguments, encoder_of_size, save
from benchmarks.work import batch_operations, scoring_operations

LENGTHS = (32, 64, 128, 256, 512)
COUNTS = (100, 1_000, 10_000, 100_000)
TASKS = (0, 1, 2, 3, 4)
SIZES = ("tiny", "minilm", "base")

#: How often a point is measured, and the seconds after which it is not measured again.
TIMES, PATIENCE = 3, 10.0


def main() -> None:
    """Measure every point, then draw."""
    if len(sys.argv) == 3 and sys.argv[1] == "--point":
        print(json.dumps(point(**json.loads(sys.argv[2]))))
        return
    options = arguments(
        __doc__ or "",
        rounds=1,
        add=lambda parser: parser.add_argument("--quick", action="store_true"),
    )
    size, shown = options.encoder, 2 if options.quick else None
    results = {
        title: [run(options, **settings) for settings in points[:shown]]
        for title, points in {
            "scoring by length": [
                {"what": "score", "size": size, "length": n, "texts": 1} for n in LENGTHS
            ],
            "a step by length": [
                {"what": "step", "size": size, "length": n, "texts": 16} for n in LENGTHS
            ],
            "a step by length, attention dropout 0": [
                {"what": "step", "size": size, "length": n, "texts": 16, "dropout": False}
                for n in LENGTHS
            ],
            "scoring by texts": [
                {"what": "score", "size": "tiny", "length": 16, "texts": n, "passes": 2}
                for n in COUNTS
            ],
            "a step by auxiliary tasks": [
                {"what": "step", "size": size, "length": 64, "texts": 32, "aux": n} for n in TASKS
            ],
            "scoring by encoder": [
                {"what": "score", "size": name, "length": 64, "texts": 2} for name in SIZES
            ],
            "a step by encoder": [
                {"what": "step", "size": name, "length": 64, "texts": 32} for name in SIZES
            ],
        }.items()
    }
    save("growth", options, {"points": results})


def run(options: Namespace, **settings: Any) -> dict[str, Any]:
    """Measure one point."""
    threads = options.threads
    if options.device == "cuda":
        measured = {**settings, **point(threads=threads, device="cuda", **settings)}
        print(measured, flush=True)
        return measured
    asked = json.dumps({"threads": threads, **settings})
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", "--point", asked],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    measured = {**settings, **json.loads(found.stdout.splitlines()[-1])}
    print(measured, flush=True)
    return measured


def point(
    what: str,
    threads: int,
    size: str,
    length: int,
    texts: int,
    passes: int | None = None,
    aux: int = 0,
    dropout: bool = True,
    device: str = "cpu",
) -> dict[str, float]:
    """Score texts, or make training steps; return seconds, operations and peak memory."""
    torch.set_num_threads(threads)
    encoder = encoder_of_size(size, classes=5, device=device)
    rows = texts_of_length(encoder, length, texts)
    watch, before = Stopwatch("wall", device), begin_memory(device)
    if what == "score":
        work = scoring_operations(encoder, rows, passes)

        def run() -> None:
            # As the l3mask task goes through a training set: shard by shard.
            for shard in torch.arange(len(rows)).split(SHARD_TEXTS):
                pseudo_log_likelihood(encoder, rows.select(shard), passes=passes)

    else:
        from benchmarks.training import Training, without_attention_dropout

        batch = collate(rows, torch.arange(texts))
        work = sum(batch_operations(encoder, batch, predicts=n > 0) for n in range(1 + aux))
        if not dropout:
            without_attention_dropout(encoder)
        run = Training(encoder, rows, aux=aux)
        run()  # the optimizer's state is made
    wall, cpu, began = [], [], time.perf_counter()
    while len(wall) < TIMES and time.perf_counter() - began < PATIENCE:
        started = watch.now(), time.process_time()
        run()
        wall.append(watch.now() - started[0])
        cpu.append(time.process_time() - started[1])
    return {
        "seconds": statistics.median(wall),
        "cpu seconds": statistics.median(cpu),
        "operations": work,
        "megabytes before": before,
        "megabytes": peak_megabytes(device),
    }


def begin_memory(device: str) -> float:
    """Return the megabytes held now, and on CUDA begin to look for the peak."""
    if device == "cuda":
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
    return peak_megabytes(device)


def peak_megabytes(device: str) -> float:
    """Return the most megabytes held: of the process, or since :func:`begin_memory` on CUDA."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def texts_of_length(encoder: SharedEncoder, length: int, count: int) -> TokenizedTexts:
    """Return random texts of one length, no two of them equal."""
    tokenizer = encoder.tokenizer
    source = TokenizedTexts(**tokenize(tokenizer, ["text"], None, length), pad_id=0)
    draws = torch.Generator().manual_seed(0)
    first_id = min(200, len(tokenizer) // 2)  # behind the special tokens and single characters
    body = torch.randint(first_id, len(tokenizer), (count, length - 2), generator=draws)
    first, last = source.input_ids[0], source.input_ids[-1]
    rows = torch.cat([first.expand(count, 1), body, last.expand(count, 1)], 1).int()
    words = torch.arange(length, dtype=torch.int32).expand(count, -1).clone() - 1
    words[:, -1] = -1
    types = None if source.token_type_ids is None else torch.zeros(rows.numel(), dtype=torch.int8)
    return TokenizedTexts(
        input_ids=rows.flatten(),
        words=words.flatten(),
        maskable=(words >= 0).flatten(),
        offsets=torch.arange(count + 1) * length,
        pad_id=tokenizer.pad_token_id,
        labels=torch.arange(count) % 5,
        token_type_ids=types,
    )


if __name__ == "__main__":
    main()
