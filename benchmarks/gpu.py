"""Run all GPU benchmarks within a time limit (``make bench-gpu``).

One GPU is measured, and on a machine with several also one training on two, four ... all of them.

    python -m benchmarks.gpu                    # at most 25 minutes
    python -m benchmarks.gpu --only scoring     # selected parts
    python -m benchmarks.gpu --overwrite        # existing results too

Every contest runs in a process of its own and writes its results atomically to
``benchmarks/results/gpu/NAME.json``. Results are therefore kept if the time runs out, and the same
command measures those that are missing. Every part has a share of the time, which its contests
divide; time that a contest does not use goes to the following ones. Nothing is downloaded: encoders
have random weights, and the texts are those of the built-in data set.
``python -m benchmarks.report`` writes the results into ``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.common import RESULTS, check_device

FOLDER = RESULTS / "gpu"

#: The GPUs that this program may use, before it chooses the first one.
VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES")

#: Time limit of the whole program in minutes.
MINUTES = 25.0
#: Seconds below which no contest is started: imports and loading the encoder take as long.
LEAST = 20.0
#: How many times its share a contest may take before it is ended.
PATIENCE = 2.0


@dataclass(frozen=True)
class Contest:
    """A benchmark with its options.

    Attributes:
        name: Name of its results file, without suffix.
        module: Module of this package.
        options: All options except the device, the results file and the time limit.
        pieces: Contests within the benchmark, each of which gets the same limit of time.
    """

    name: str
    module: str
    options: tuple[str, ...]
    pieces: int = 1

    @property
    def command(self) -> list[str]:
        """The command that the results file records."""
        return [self.module, *self.options, "--device", "cuda"]


@dataclass(frozen=True)
class Part:
    """Contests that share a part of the time.

    Attributes:
        name: What ``--only`` calls it.
        share: Of the whole time; all shares sum to 1.
        contests: The contests, the most telling ones first.
    """

    name: str
    share: float
    contests: tuple[Contest, ...]


def _scoring(size: str, length: int) -> Contest:
    options = f"--encoder {size} --length {length} --texts 2048 --fill 0.5 --rounds 3"
    return Contest(f"scoring-{size}-{length}", "scoring", tuple(options.split()), pieces=2)


def _training(name: str, options: str) -> Contest:
    return Contest(name, "training", (*options.split(), "--rounds", "3"), pieces=2)


def _weighting(size: str, precision: str) -> Contest:
    options = ("--sizes", size, "--precision", precision, "--rounds", "3")
    return Contest(f"weighting-{size}-{precision}", "weighting", options)


PARTS = (
    Part(
        "scoring",
        0.45,
        tuple(_scoring(size, length) for length in (128, 512, 256) for size in ("base", "large")),
    ),
    Part(
        "training",
        0.23,
        (
            _training("training-base", "--encoder base --steps 32 --no-compile"),
            _training("training-large", "--encoder large --steps 16 --no-compile"),
            _training("training-base-compiled", "--encoder base --steps 32"),
        ),
    ),
    Part(
        "weighting",
        0.23,
        (_weighting("base", "fp32"), _weighting("base", "bf16"), _weighting("large", "bf16")),
    ),
    Part(
        "objectives",
        0.05,
        (Contest("objectives-bf16", "objectives", ("--precision", "bf16", "--rounds", "3"), 2),),
    ),
    Part(
        "processes",
        0.04,
        (
            Contest(
                "processes-base",
                "processes",
                ("--encoder", "base", "--precision", "bf16", "--steps", "16"),
                pieces=6,
            ),
        ),
    ),
)


def shares(left: float, contests: int, pieces: int) -> tuple[float, float]:
    """Return how long a contest may take before it is ended, and when it is to end by itself.

    Args:
        left: Seconds left for it and the contests after it.
        contests: How many these are.
        pieces: Contests within the benchmark.

    Returns:
        Seconds until it is ended; seconds of counted rounds after which each piece begins no
        further round. Half of a share is for imports, the encoder and the round that warms up.
    """
    share = left / contests
    return min(left, PATIENCE * share), 0.5 * share / pieces


def is_there(path: Path, contest: Contest) -> bool:
    """Return whether a file holds the results of a contest with these very options."""
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))["command"]
        return found == contest.command
    except (OSError, ValueError, KeyError, TypeError):
        return False


#: Runs a contest: ``(contest, file, seconds until it is ended, seconds of a piece)``; returns
#: nothing, or why there are no results.
Run = Callable[[Contest, Path, float, float], str | None]


def run_process(contest: Contest, path: Path, limit: float, seconds: float) -> str | None:
    """Run a contest in a process of its own; keep what it printed if it fails."""
    name, *options = contest.command
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    command += ["--seconds", f"{seconds:.0f}", "--output", str(path)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    if contest.module == "processes":  # on all GPUs
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        environment |= {} if VISIBLE is None else {"CUDA_VISIBLE_DEVICES": VISIBLE}
    log = path.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("w", encoding="utf-8") as file:
            subprocess.run(
                command,
                check=True,
                timeout=limit,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
            )
    except subprocess.TimeoutExpired:
        return f"ended after {limit:.0f} s ({log})"
    except subprocess.CalledProcessError:
        lines = log.read_text(encoding="utf-8").strip().splitlines()
        return f"failed: {lines[-1] if lines else 'it printed nothing'} ({log})"
    log.unlink()
    return None


def run_parts(
    parts: Sequence[Part],
    folder: Path,
    seconds: float,
    overwrite: bool,
    run: Run = run_process,
    now: Callable[[], float] = time.monotonic,
) -> dict[str, str]:
    """Run what is missing, part by part, each within its share of the time.

    Args:
        parts: The parts to run.
        folder: Folder of the results.
        seconds: Time limit of all parts together.
        overwrite: Run contests that have results as well.
        run: Runs one contest.
        now: The clock.

    Returns:
        State of each contest by name: "done", "was there", "no time left", or why it failed.
    """
    end = now() + seconds
    whole = sum(part.share for part in parts)
    states: dict[str, str] = {}
    for part in parts:
        part_end = min(end, now() + seconds * part.share / whole)
        missing = [
            c for c in part.contests if overwrite or not is_there(folder / f"{c.name}.json", c)
        ]
        states |= {c.name: "was there" for c in part.contests if c not in missing}
        for number, contest in enumerate(missing):
            left = part_end - now()
            if left < LEAST:
                states[contest.name] = "no time left"
                continue
            limit, piece = shares(left, len(missing) - number, contest.pieces)
            problem = run(contest, folder / f"{contest.name}.json", limit, piece)
            states[contest.name] = problem or "done"
            print(f"{contest.name}: {states[contest.name]}", flush=True)
    return states


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts; return exit code 1 if results are missing at the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="time limit in minutes")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS])
    parser.add_argument(
        "--overwrite", action="store_true", help="measure again contests that have results"
    )
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the results")
    parser.set_defaults(device="cuda")
    options = parser.parse_args(argv)
    several = torch.cuda.device_count() > 1
    check_device(parser, options)
    parts = [part for part in PARTS if not options.only or part.name in options.only]
    if not several:
        parts = [part for part in parts if part.name != "processes"]
    states = run_parts(parts, options.output, 60 * options.minutes, options.overwrite)
    missing = {name: what for name, what in states.items() if what not in ("done", "was there")}
    for name, what in missing.items():
        print(f"missing: {name}: {what}")
    print(f"{len(states) - len(missing)} of {len(states)} contests have results: {options.output}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
