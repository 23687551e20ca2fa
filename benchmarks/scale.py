"""Unlabelled texts of growing number: time and memory of tokenising and of the first step.

    python -m benchmarks.scale --texts 20000 200000 2000000
    python -m benchmarks.scale --texts 10000000 --stages "first step, not cached" "first step"

Each stage runs in a process of its own, in the CPU seconds of that process, which others that
compute hardly change. What two processes save is measured by the clock, with the machine to itself.
Memory is the peak of what belongs to the process alone ("anonymous", sampled every 100 ms: more
often takes time from two processes on two cores), and of all its resident pages, those of mapped
files included, which the system takes back when memory is short.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.tables import read_lines, table, write_section

RESULTS = Path(__file__).parent / "results" / "scale.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "guides" / "performance.md"
WORDS, MAX_LENGTH = 24, 128  # of a text
WITHOUT_STATISTICS, *STATISTICS = "random_mlm", "frequency", "salient", "pmi"  # by token


def write_texts(path: Path, count: int) -> None:
    """Write texts of words of the built-in data set, drawn by their frequency."""
    from auxlearn.data.load import load_dataset

    words = " ".join(load_dataset("pydocs").splits["train"].texts).split()
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            file.write(" ".join(draw.choices(words, k=WORDS)) + "\n")


def tokenise(path: Path, bare: int = 0) -> dict[str, float]:
    """Return the seconds of tokenising texts that were read, or of the tokenizer's own call in so
    many processes, of the processor (of this process) and by the clock.
    """
    from auxlearn.core.cache import TensorCache
    from auxlearn.data.corpora import read_corpus
    from auxlearn.data.tokens import CHUNK_TEXTS, Tokenization
    from auxlearn.encoders.tokenizer import load_tokenizer

    cache, tokenizer = TensorCache(), load_tokenizer("tiny")
    split = read_corpus(path, cache, "text")  # as a task reads it
    tokenizer(split.texts[0])  # which loads what both need
    started, begun = time.process_time(), time.perf_counter()
    if bare:

        def call(first: int) -> None:
            for start in range(first * CHUNK_TEXTS, len(split), bare * CHUNK_TEXTS):
                texts = list(split.texts[start : start + CHUNK_TEXTS])
                tokenizer(texts, truncation=True, max_length=MAX_LENGTH)

        others = [
            get_context("fork").Process(target=call, args=(number,)) for number in range(1, bare)
        ]
        for process in others:
            process.start()
        call(0)
        for process in others:
            process.join()
    else:
        Tokenization(tokenizer, MAX_LENGTH).tokenize_split(split, cache)
    return {"cpu": time.process_time() - started, "clock": time.perf_counter() - begun}


def first_step(path: Path, task: str = "") -> dict[str, float]:
    """Return the CPU seconds of this process, from its start to the first step of ``pretrain``, or
    of ``train`` with a task on the texts.
    """
    import auxlearn
    from auxlearn.training import loop, pretrain

    class Stop(Exception):
        pass

    def stop(loop: object) -> None:
        raise Stop

    for owner in (pretrain._PretrainLoop, loop.TrainingLoop):
        owner.after_step = stop  # type: ignore[method-assign,assignment]
    settings: Any = {"max_length": MAX_LENGTH, "device": "cpu", "verbose": False}
    with tempfile.TemporaryDirectory() as folder, suppress(Stop):
        settings |= {"encoder": "tiny", "output": f"{folder}/out"}
        if task:
            rows = [{"text": f"text {number}", "label": number % 2} for number in range(20)]
            dataset = dict.fromkeys(("train", "dev", "test"), rows)
            auxlearn.train(dataset, aux=[{task: {"corpus": str(path)}}], **settings)
        else:
            auxlearn.pretrain(corpus=str(path), steps=10, batch_size=16, **settings)
    return {"cpu": time.process_time()}


STAGES: dict[str, Callable[[Path], dict[str, float]]] = {
    "bare": partial(tokenise, bare=1),
    "bare by two": partial(tokenise, bare=2),
    "tokens by two": tokenise,
    "tokens": tokenise,
    "first step, not cached": first_step,
    "first step": first_step,
    **{task: partial(first_step, task=task) for task in (WITHOUT_STATISTICS, *STATISTICS)},
}


def run_stage(stage: str, path: Path) -> None:
    """Print what a stage takes, in this process."""
    peak, done = 0, threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.1):
            found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))
            peak = max(peak, int(found[1]) if found else 0)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        seconds = STAGES[stage](path)
    finally:
        done.set()
        sampler.join()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**seconds, "anonymous_mb": peak / 1024, "rss_mb": resident / 1024}))


def measure(count: int, stages: Sequence[str]) -> dict[str, object]:
    """Return the measurements of stages over so many texts."""
    row: dict[str, object] = {"texts": count}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.txt"
        write_texts(path, count)
        for stage in stages:
            if stage == "tokens":
                for entry in Path(folder, "cache").glob("*.safetensors"):
                    entry.unlink()
            # A tokenizer would use all cores by threads of its own.
            processes = "2" if stage == "tokens by two" else "1"
            environment = {"OMP_NUM_THREADS": processes, "RAYON_NUM_THREADS": "1"}
            environment["AUXLEARN_CACHE"] = f"{folder}/cache"
            command = [sys.executable, "-m", "benchmarks.scale", "--stages", stage]
            done = subprocess.run(
                [*command, "--file", str(path)],
                env=os.environ | environment,
                check=True,
                stdout=subprocess.PIPE,
            )
            row[stage] = json.loads(done.stdout.splitlines()[-1])
            print(count, stage, row[stage], flush=True)
    return row


def report() -> None:
    """Write the tables of the latest results of each stage into the guide."""
    rows: dict[int, dict[str, Any]] = {}
    faster: dict[int, str] = {}
    alone: dict[int, str] = {}  # like that, a ratio of two stages of one call
    for row in read_lines(RESULTS):
        rows.setdefault(row["texts"], {}).update(row)
        if "tokens by two" in row and "clock" in row["tokens"]:
            ratio = row["tokens"]["clock"] / row["tokens by two"]["clock"]
            faster[row["texts"]] = f"{ratio:.2f} times as fast"
        if "bare" in row:
            ratio = row["tokens"]["cpu"] / row["bare"]["cpu"]
            alone[row["texts"]] = f"{ratio:.2f} of the bare call"
        if "bare by two" in row:
            ratio = row["bare"]["clock"] / row["bare by two"]["clock"]
            faster[row["texts"]] += f" ({ratio:.2f})"
    body, above = [], []
    for count, row in sorted(rows.items()):
        if not {"tokens", "first step", "first step, not cached"} <= row.keys():
            continue  # only some stages were measured
        memory = {name: stage["anonymous_mb"] for name, stage in row.items() if name != "texts"}
        tokens, step = row["tokens"], row["first step"]
        cells = [
            f"{count:,}",
            alone.get(count, ""),
            faster.get(count, ""),
            f"{memory['tokens']:,.0f}",
        ]
        cells += [
            f"{tokens['rss_mb']:,.0f}",
            f"{step['cpu']:.1f} s",
            f"{memory['first step']:,.0f}",
        ]
        body.append([*cells, f"{memory['first step, not cached']:,.0f}"])
        if WITHOUT_STATISTICS in row:
            more = [memory[task] - memory[WITHOUT_STATISTICS] for task in STATISTICS]
            above.append([f"{count:,}", *(f"{megabytes:+,.0f}" for megabytes in more)])
    head = ["texts", "one process", "two processes", "anonymous MB", "resident MB"]
    head += ["first step, cached", "anonymous MB", "not cached"]
    write_section(PAGE, "scale", [table(head, body)])
    write_section(PAGE, "statistics", [table(["texts", *map("`{}`".format, STATISTICS)], above)])


def main() -> None:
    """Measure each number of texts, or run one stage on a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=int, nargs="*", default=[20_000, 200_000, 2_000_000])
    parser.add_argument("--stages", choices=STAGES, nargs="*", default=[*STAGES])
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.file:
        run_stage(options.stages[0], options.file)
        return
    for count in options.texts:
        line = json.dumps(measure(count, options.stages)) + "\n"
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(line)
    report()


if __name__ == "__main__":
    main()
