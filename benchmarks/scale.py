"""Unlabelled texts of growing number: time and memory of tokenising and of the first step.

    python -m benchmarks.scale --texts 20000 200000 2000000

Each stage runs in a process of its own, in the CPU seconds of that process, which others that
compute hardly change. What two processes save is measured by the clock, with the machine to itself.
Memory is the peak of what belongs to the process alone ("anonymous", sampled
every 10 ms), and of all its resident pages, those of mapped files included, which the system takes
back when memory is short.
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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.tables import read_lines, table, write_section

RESULTS = Path(__file__).parent / "results" / "scale.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "guides" / "performance.md"
WORDS, MAX_LENGTH = 24, 128  # of a text


def write_texts(path: Path, count: int) -> None:
    """Write texts of words of the built-in data set, drawn by their frequency."""
    from auxlearn.data.load import load_dataset

    words = " ".join(load_dataset("pydocs").splits["train"].texts).split()
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            file.write(" ".join(draw.choices(words, k=WORDS)) + "\n")


def tokenise(path: Path, bare: bool) -> dict[str, float]:
    """Return the seconds of tokenising texts that were read, or of the tokenizer's own call, of the
    processor (of this process) and by the clock.
    """
    from auxlearn.core.cache import TensorCache
    from auxlearn.data.corpora import read_corpus
    from auxlearn.data.tokens import CHUNK_TEXTS, Tokenization
    from auxlearn.encoders.tokenizer import load_tokenizer

    cache, tokenizer = TensorCache(), load_tokenizer("tiny")
    split = read_corpus(path, cache)
    tokenizer("one text")
    started, begun = time.process_time(), time.perf_counter()
    if bare:
        for start in range(0, len(split), CHUNK_TEXTS):
            texts = list(split.texts[start : start + CHUNK_TEXTS])
            tokenizer(texts, truncation=True, max_length=MAX_LENGTH)
    else:
        Tokenization(tokenizer, MAX_LENGTH).tokenize_split(split, cache)
    return {"cpu": time.process_time() - started, "clock": time.perf_counter() - begun}


def first_step(path: Path) -> dict[str, float]:
    """Return the CPU seconds of this process, from its start to the first step of ``pretrain``."""
    from auxlearn.training import pretrain

    class Stop(Exception):
        pass

    def stop(loop: object) -> None:
        raise Stop

    pretrain._PretrainLoop.after_step = stop  # type: ignore[method-assign,assignment]
    with tempfile.TemporaryDirectory() as folder:
        settings: Any = {"steps": 10, "batch_size": 16, "max_length": MAX_LENGTH, "device": "cpu"}
        with suppress(Stop):
            pretrain.pretrain("tiny", f"{folder}/out", corpus=str(path), verbose=False, **settings)
    return {"cpu": time.process_time()}


STAGES: dict[
    str, tuple[str, Callable[[Path], dict[str, float]]]
] = {  # with the number of processes
    "bare": ("1", lambda path: tokenise(path, bare=True)),
    "tokens by two": ("2", lambda path: tokenise(path, bare=False)),
    "tokens": ("1", lambda path: tokenise(path, bare=False)),
    "first step, not cached": ("1", first_step),
    "first step": ("1", first_step),
}


def run_stage(stage: str, path: Path) -> None:
    """Print what a stage takes, in this process."""
    peak, done = 0, threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.01):
            found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))
            peak = max(peak, int(found[1]) if found else 0)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        seconds = STAGES[stage][1](path)
    finally:
        done.set()
        sampler.join()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**seconds, "anonymous_mb": peak / 1024, "rss_mb": resident / 1024}))


def measure(count: int) -> dict[str, object]:
    """Return the measurements of each stage over so many texts."""
    row: dict[str, object] = {"texts": count}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.txt"
        write_texts(path, count)
        for stage, (processes, _) in STAGES.items():
            if stage == "tokens":
                for entry in Path(folder, "cache").glob("*.safetensors"):
                    entry.unlink()
            # A tokenizer would use all cores by threads of its own.
            environment = {"OMP_NUM_THREADS": processes, "RAYON_NUM_THREADS": "1"}
            environment["AUXLEARN_CACHE"] = f"{folder}/cache"
            command = [sys.executable, "-m", "benchmarks.scale", "--stage", stage]
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
    """Write the table of the results into the guide."""
    rows = {row["texts"]: row for row in read_lines(RESULTS)}
    head = ["texts", "one process", "two processes", "anonymous MB", "resident MB"]
    body = []
    for count, row in sorted(rows.items()):
        step, memory = row["first step"], row["tokens"]
        cells = [f"{count:,}", "not measured", "not measured"]
        if "bare" in row:
            cells[1] = f"{memory['cpu'] / row['bare']['cpu']:.2f} of the bare call"
            cells[2] = f"{memory['clock'] / row['tokens by two']['clock']:.2f} times faster"
        cells += [f"{memory[name]:,.0f}" for name in ("anonymous_mb", "rss_mb")]
        body.append([*cells, f"{step['cpu']:.1f} s", f"{step['anonymous_mb']:,.0f}"])
    write_section(PAGE, "scale", [table([*head, "first step, cached", "anonymous MB"], body)])


def main() -> None:
    """Measure each number of texts, or run one stage if it is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=int, nargs="*", default=[20_000, 200_000, 2_000_000])
    parser.add_argument("--stage", choices=STAGES)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.stage:
        run_stage(options.stage, options.file)
        return
    for count in options.texts:
        line = json.dumps(measure(count)) + "\n"
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(line)
    report()


if __name__ == "__main__":
    main()
