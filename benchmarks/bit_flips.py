"""Flip single bits in the files of an unfinished run, and resume it.

Usage: python -m benchmarks.bit_flips [--flips 300] [--output FILE]

Trains a tiny run once undisturbed, and interrupts it once. Each flip copies the interrupted run,
inverts one random bit of one random file, and resumes the copy. Either the damage is noticed, with
one line, or the results must be those of the undisturbed run, byte for byte. Anything else is an
error, which the exit code says.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from auxlearn import RunConfig
from auxlearn.core.errors import UserError
from auxlearn.core.files import write_json
from auxlearn.results.record import RunResults
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.run import train
from benchmarks.common import RESULTS
from benchmarks.sweep_overhead import write_rows

#: Optimizer steps before the interruption.
STEPS = 3

#: Files in which equal runs may differ: times, paths and hardware. The model card shows the time
#: that the run took, and the manifest of the model describes the card.
DIFFERING = (
    "results.json",
    "environment.json",
    "config.yaml",
    "model/README.md",
    "model/manifest.json",
)


class Interruption(Exception):
    """Stands for a kill."""


def settings_of(data: Path, encoder: str) -> dict[str, Any]:
    """Return the settings of a run that is short and writes every kind of file."""
    return {
        "dataset": str(data),
        "encoder": encoder,
        "aux": ["mask_tuning"],
        "weights": {"meta": {"horizon": "steps", "warmup_steps": 1}},
        "epochs": 1,
        "batch_size": 4,
        "eval_steps": 2,
        "patience": 0,
        "max_length": 16,
        "device": "cpu",
    }


def interrupt(config: RunConfig, steps: int) -> None:
    """Train, and stop before an optimizer step as a kill would."""
    real = TrainingLoop.run_step

    def run_step(loop: TrainingLoop) -> None:
        if loop.state.step == steps:
            raise Interruption
        real(loop)

    with mock.patch.object(TrainingLoop, "run_step", run_step):
        try:
            train(config)
        except Interruption:
            return
    raise SystemExit(f"the run has ended before step {steps}: give it more to do")


def outcome_of(folder: Path) -> dict[str, Any]:
    """Return all that equal runs share: results without times, and the bytes of other files."""
    results = RunResults.load(folder).reproducible()
    del results["config"]["output"], results["config"]["cache_dir"]
    found: dict[str, Any] = {"results": json.dumps(results)}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in DIFFERING:
            found[name] = path.read_bytes()
    return found


def flip(path: Path, draws: random.Random) -> int:
    """Invert a random bit of a file; return its number."""
    content = bytearray(path.read_bytes())
    number = draws.randrange(8 * len(content))
    content[number // 8] ^= 1 << number % 8
    path.write_bytes(bytes(content))
    return number


def try_flip(
    source: Path, copy: Path, config: RunConfig, expected: dict[str, Any], draws: random.Random
) -> dict[str, Any]:
    """Flip one bit in a copy of a run, resume it, and say what came of it."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size)
    path = draws.choice(files)
    found = {"file": path.relative_to(copy).as_posix(), "bit": flip(path, draws)}
    try:
        train(config.model_copy(update={"output": str(copy)}))
    except UserError as error:
        one = "\n" not in str(error)
        return {**found, "outcome": "noticed" if one else "SEVERAL LINES", "line": str(error)}
    except Exception as error:
        return {**found, "outcome": "TRACEBACK", "line": f"{type(error).__name__}: {error}"}
    equal = outcome_of(copy) == expected
    return {**found, "outcome": "equal" if equal else "DIFFERENT", "line": ""}


def run_flips(place: Path, data: Path, encoder: str, flips: int, seed: int) -> list[dict[str, Any]]:
    """Make the runs in a folder, then flip bits.

    Returns:
        For each flip its file, its bit, its outcome and the error line.
    """
    config = RunConfig(**settings_of(data, encoder))
    undisturbed, source = (
        config.model_copy(update={"output": str(place / name)}) for name in ("whole", "killed")
    )
    train(undisturbed)
    interrupt(source, STEPS)
    expected, draws = outcome_of(place / "whole"), random.Random(seed)
    return [
        try_flip(place / "killed", place / "copy", config, expected, draws) for _ in range(flips)
    ]


def main() -> None:
    """Flip, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS / "bit_flips.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_rows(place / "data")
        flips = run_flips(place, place / "data", options.encoder, options.flips, options.seed)
    counts = Counter((one["file"], one["outcome"]) for one in flips)
    for (file, outcome), count in sorted(counts.items()):
        print(f"{file:55} {outcome:10} {count:4}")
    bad = [one for one in flips if one["outcome"] not in ("noticed", "equal")]
    for one in bad:
        print(one)
    by_file: dict[str, Counter[str]] = {}
    for one in flips:
        by_file.setdefault(Path(one["file"]).name, Counter())[one["outcome"]] += 1
    write_json(
        options.output,
        {
            "flips": len(flips),
            "outcomes": Counter(one["outcome"] for one in flips),
            "by file": dict(sorted(by_file.items())),
            "faults": bad,
        },
    )
    print(f"{len(flips)} flips, {len(bad)} of them neither noticed nor harmless; {options.output}")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
