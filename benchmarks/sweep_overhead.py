"""What a sweep costs beyond its trainings: start of the sweep, of a worker, and of each trial.

Usage: python -m benchmarks.sweep_overhead [--trials 6] [--encoder tiny] [--output FILE]

Trainings of the built-in encoder on a few rows, one worker. For each trial the time between the
trial before and this one is compared with what the run folder says that it took. The first trial
also pays for the worker's start and imports; the others must not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from auxlearn.core.files import write_json
from auxlearn.sweeps.execute import SweepProgress, View, run_sweep
from auxlearn.sweeps.executors import LocalExecutor
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.jobs import Outcome
from auxlearn.sweeps.plan import Trial
from auxlearn.sweeps.sweep_file import SweepFile
from benchmarks.common import RESULTS, add_device, check_device, machine

WORDS = ("red", "green", "blue", "north", "south", "east", "west")


class Times(View):
    """When each trial ended."""

    def __init__(self) -> None:
        self.ended_at: list[tuple[str, float]] = []

    def trial_ended(self, trial: Trial, outcome: Outcome, progress: SweepProgress) -> None:
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
    parser.add_argument("--trials", type=int, default=6, help="at least 2")
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--output", type=Path, default=RESULTS / "sweep_overhead.json")
    add_device(parser)
    options = parser.parse_args(namespace=argparse.Namespace(clock="wall"))
    check_device(parser, options)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        write_rows(Path(place) / "data")
        sweep = SweepFile(
            name="overhead",
            base={
                "dataset": f"{place}/data",
                "encoder": options.encoder,
                "epochs": 3,
                "device": options.device,
            },
            seeds=tuple(range(options.trials)),
        )
        folder, times = SweepFolder(Path(place) / "sweep"), Times()
        previous = time.perf_counter()
        with LocalExecutor(jobs=1, threads=1) as executor:
            records = run_sweep(sweep, folder, executor, view=times)
        failed = [record.error for record in records if not record.finished]
        if failed:
            raise SystemExit(f"{len(failed)} trials failed: {failed[0]}")
        trials = []
        for digest, ended in times.ended_at:
            content = json.loads((folder.run(digest).path / "results.json").read_text())
            inside = sum(content["seconds"].values())
            beyond = ended - previous - inside
            trials.append({"seconds": ended - previous, "inside": inside, "beyond": beyond})
            previous = ended
    for number, trial in enumerate(trials):
        print(
            f"trial {number + 1}: {trial['seconds']:6.2f} s, of which the run counts "
            f"{trial['inside']:6.2f} s, beyond it {trial['beyond']:6.2f} s"
        )
    later = statistics.median(trial["beyond"] for trial in trials[1:])
    print(f"first trial: {trials[0]['beyond']:.2f} s beyond its run; later ones {later:.2f} s")
    results = {
        "settings": {key: str(v) for key, v in vars(options).items() if key != "output"},
        "machine": machine(options),
        "trials": trials,
        "first beyond": trials[0]["beyond"],
        "median beyond of later": later,
    }
    write_json(options.output, results)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
