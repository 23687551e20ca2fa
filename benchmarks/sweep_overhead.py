"""What a sweep costs beyond its trainings: start of the sweep, of a worker, and of each trial.

Usage: python benchmarks/sweep_overhead.py [--trials 6]

Trainings of the built-in encoder on a few rows, one worker. For each trial the time between the
trial before and this one is compared with what the run folder says that it took. The first trial
also pays for the worker's start and imports; the others must not.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from auxlearn.sweeps.execute import View, run_sweep
from auxlearn.sweeps.executors import LocalExecutor
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import SweepFile

WORDS = ("red", "green", "blue", "north", "south", "east", "west")


class Times(View):
    """When each trial ended."""

    def __init__(self) -> None:
        self.ended_at: list[tuple[str, float]] = []

    def ended(self, trial, outcome, progress) -> None:
        self.ended_at.append((trial.digest, time.perf_counter()))


def write_rows(folder: Path) -> None:
    """Rows whose label is their first word."""
    folder.mkdir()
    for name, count in (("train", 64), ("dev", 16), ("test", 16)):
        rows = [
            {"text": f"{WORDS[i % 2]} {WORDS[i % 7]} {WORDS[i % 5]} {i}", "label": WORDS[i % 2]}
            for i in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    """Measure, and print one line for each trial."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--encoder", default="tiny")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        write_rows(Path(place) / "data")
        sweep = SweepFile(
            name="overhead",
            base={"dataset": f"{place}/data", "encoder": options.encoder, "epochs": 3},
            seeds=tuple(range(options.trials)),
        )
        folder, times = SweepFolder(Path(place) / "sweep"), Times()
        begun = time.perf_counter()
        with LocalExecutor(jobs=1, threads=1) as executor:
            run_sweep(sweep, folder, executor, view=times)
        previous = begun
        for number, (digest, ended) in enumerate(times.ended_at):
            content = json.loads((folder.run(digest).path / "results.json").read_text())
            inside = sum(content["seconds"].values())
            print(
                f"trial {number + 1}: {ended - previous:6.2f} s, of which the run counts "
                f"{inside:6.2f} s, beyond it {ended - previous - inside:6.2f} s"
            )
            previous = ended


if __name__ == "__main__":
    main()
