"""One training on several processes: how many times faster they make the same steps.

The first process makes a step alone, while the others wait, and then all make one together, in
turn, so that other load of the machine affects both alike. Alone it computes as many micro-batches
as there are processes, so that both compute the same numbers. On a CPU the processes divide the
threads, and one process with all of the threads takes part as well.

    python -m benchmarks.processes                    # two processes of this machine's CPU
    python -m benchmarks.processes --device cuda      # two, four ... and all of its GPUs
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from auxlearn.core.files import write_json
from auxlearn.core.processes import ALONE, Processes, joined, process_count
from benchmarks.common import (
    Steps,
    Stopwatch,
    add_precision,
    arguments,
    attending,
    classes_of,
    encoder_of_size,
    ratio,
    save,
    texts_of,
)
from benchmarks.training import BATCH

STEPS = 2
#: Rules: one that adds gradients in place, one that needs those of each objective.
RULES = ("fixed", "gcs")


def main() -> None:
    """Start the processes, or be one of them."""
    if "cuda" in sys.argv and torch.cuda.is_available():
        everyone = ",".join(map(str, range(torch.cuda.device_count())))
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", everyone)
    options = arguments(__doc__ or "", texts=STEPS * BATCH, rounds=2, add=add_options)
    if process_count() > 1:
        with joined() as together:
            found = measure(options, together)
        if together.leads:
            write_json(options.output, found)
        return
    on_gpu = options.device == "cuda"
    available = torch.cuda.device_count() if on_gpu else 2
    if available < 2:
        raise SystemExit("error: one training is divided among GPUs: this machine shows one")
    counts = options.processes or sorted({2, 4, 8, available} & set(range(2, available + 1)))
    contests = {str(count): in_processes(count) for count in counts}
    save("processes", options, {"steps": options.steps, "batch size": BATCH, "contests": contests})


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps of a round")
    parser.add_argument("--processes", type=int, nargs="+", help="how many, by default all GPUs")
    add_precision(parser)


def in_processes(count: int) -> Any:
    """Return what so many processes with the options of this one measure."""
    with TemporaryDirectory(prefix="auxlearn-benchmark-") as folder:
        path = Path(folder, "found.json")
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        start += [f"--nproc-per-node={count}", "-m", "benchmarks.processes"]
        environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        subprocess.run([*start, *sys.argv[1:], "--output", str(path)], check=True, env=environment)
        return json.loads(path.read_text(encoding="utf-8"))


def measure(options: Namespace, together: Processes) -> dict[str, Any]:
    """Return the seconds of each contestant by rule, and the ratios."""
    device = options.device
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    threads = max(1, options.threads // together.count)
    torch.set_num_threads(threads)
    encoder = encoder_of_size(options.encoder, classes_of(options.dataset), device=device)
    attending(encoder, options.precision)
    texts, _ = texts_of(encoder, options.dataset, options.texts)
    rules = {}
    for rule in RULES:

        def training(
            accumulation: int = 1, processes: Processes = ALONE, rule: str = rule
        ) -> Steps:
            return Steps(
                encoder,
                texts,
                BATCH,
                tasks=1,
                rule=(rule, {}),
                precision=options.precision,
                steps=options.steps,
                accumulation=accumulation,
                processes=processes,
            )

        alone, whole = training(together.count), training()
        contestants: dict[str, Callable[[], object]] = {"one process": alone}
        if options.device == "cpu":
            contestants["one process, all threads"] = lambda whole=whole: with_threads(
                whole, threads * together.count
            )
        if not together.leads:
            contestants = dict.fromkeys(contestants, lambda: None)
        contestants["all processes"] = training(together.count, together)
        rules[rule] = in_turn(contestants, options, together)
    return {"threads of each": threads, "rules": rules}


def with_threads(run: Callable[[], object], threads: int) -> None:
    """Run with another number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    run()
    torch.set_num_threads(before)


def in_turn(
    contestants: dict[str, Callable[[], object]], options: Namespace, together: Processes
) -> dict[str, Any]:
    """Time contestants in turn; every process calls them in the same order, and begins together."""
    watch = Stopwatch.of(options)
    found: dict[str, dict[str, Any]] = {name: {"seconds": []} for name in contestants}
    for number in range(options.rounds + 1):  # the first warms up
        spent = dict.fromkeys(contestants, 0.0)
        for _ in range(options.steps):
            for name, run in contestants.items():
                together.any(False)
                spent[name] += watch.seconds(run)
        if number:
            for name, seconds in spent.items():
                found[name]["seconds"].append(seconds)
    for one in found.values():
        one["median"] = statistics.median(one["seconds"])
    if not together.leads:
        return {}
    others = [name for name in found if name != "all processes"]
    ratios = {f"over {name}": ratio(found, name, "all processes") for name in others}
    return {"contestants": found, "times faster": ratios}


if __name__ == "__main__":
    main()
