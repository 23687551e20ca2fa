"""Kill a sweep at random points, parent and workers, and compare what it comes to.

Usage: python -m benchmarks.sweep_kills [--kills 10] [--encoder tiny] [--output FILE]

Runs `auxlearn sweep` of 12 trials once undisturbed, then again under SIGKILL. Every other kill hits
the worker alone: the sweep has to continue without it. The next hits the program: its worker has to
end by itself. A kill comes at a random moment once a trial is being trained, within the length of
two trials; a sweep that is done before all kills is an error. At the end the two result files must
be equal byte for byte, and no finished trial may have been touched again. Takes some minutes,
because every start imports torch and transformers twice; the suite does the same with processes
that are forked.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import yaml

from auxlearn.core.files import write_json
from benchmarks.common import RESULTS, add_device, check_device, machine
from benchmarks.sweep_overhead import write_rows

TRIALS = 12
#: Seconds that anything may take before the benchmark gives up.
PATIENCE = 300.0


def processes_of(parent: int) -> list[int]:
    """Return the worker processes that a process has started, helpers of the engine left out."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
            command = status.with_name("cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z" and "popen_loky" in command:
            found.append(int(status.parent.name))
    return found


def alive(process: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Sweep:
    """A sweep that is started, watched and killed.

    Args:
        place: Holds the sweep file.
        output: Folder of the sweep in it.
    """

    def __init__(self, place: Path, output: str) -> None:
        self.file = place / "sweep.yaml"
        self.folder = place / output
        self.process: subprocess.Popen[bytes] | None = None
        self.finished: dict[Path, float] = {}
        self.touched = 0

    def start(self) -> subprocess.Popen[bytes]:
        """Start the program, unless it runs."""
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-m", "auxlearn", "sweep", str(self.file)]
            command += ["--output", str(self.folder), "--jobs", "1", "--threads", "1"]
            quiet = subprocess.DEVNULL
            self.process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        return self.process

    def run(self) -> None:
        """Run the program to its end; it must succeed."""
        code = self.start().wait()
        if code:
            raise SystemExit(f"the sweep ended with exit code {code}")

    def wait_for_training(self, since: float) -> None:
        """Wait until a trial has written something after that time."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.start().poll() is not None:
                raise SystemExit("the sweep was done before all kills: give it more to do")
            files = self.folder.glob("trials/*/metrics.jsonl")
            if any(_changed(file) > since for file in files):
                return
            time.sleep(0.05)
        raise SystemExit("no trial was begun")

    def look(self) -> int:
        """Return how many trials have finished; count those that have changed since."""
        self.touched += sum(_changed(file) != when for file, when in self.finished.items())
        for file in self.folder.glob("trials/*/results.json"):
            self.finished[file] = _changed(file)
        return len(self.finished)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def kill(sweep: Sweep, worker: bool) -> dict[str, Any]:
    """Kill the worker or the program, and say what came of it."""
    process = sweep.start()
    workers = processes_of(process.pid)
    if process.poll() is not None or not workers:
        raise SystemExit("there was nothing to kill")
    for victim in workers if worker else [process.pid]:
        os.kill(victim, signal.SIGKILL)
    begun = time.monotonic()
    if not worker:
        process.wait()
    while any(alive(number) for number in workers) and time.monotonic() < begun + PATIENCE:
        time.sleep(0.02)
    seconds = time.monotonic() - begun
    content = {"whom": "worker" if worker else "program", "finished": sweep.look()}
    return content if worker else {**content, "worker ended after": round(seconds, 2)}


def main() -> None:
    """Kill, start again, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS / "sweep_kills.json")
    add_device(parser)
    options = parser.parse_args(namespace=argparse.Namespace(clock="wall"))
    check_device(parser, options)
    torch.set_num_threads(1)
    draws = random.Random(options.seed)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_rows(place / "data")
        content = {
            "name": "kills",
            "base": {
                "dataset": str(place / "data"),
                "encoder": options.encoder,
                "epochs": 3,
                "device": options.device,
                "eval_steps": 1,
                "patience": 0,
            },
            "grid": {"aux": [[], "random_mlm", "l3mask"]},
            "seeds": TRIALS // 3,
        }
        (place / "sweep.yaml").write_text(yaml.safe_dump(content))
        undisturbed, killed = Sweep(place, "undisturbed"), Sweep(place, "killed")
        undisturbed.run()
        ends = sorted(_changed(f) for f in undisturbed.folder.glob("trials/*/results.json"))
        trial = (ends[-1] - ends[0]) / (len(ends) - 1)
        print(f"undisturbed: {time.monotonic() - begun:.0f} s, {trial:.1f} s a trial", flush=True)
        kills: list[dict[str, Any]] = []
        process = killed.process
        for number in range(options.kills):
            since = time.time()
            after_worker = kills and kills[-1]["whom"] == "worker"
            if after_worker and killed.start() is not process:
                raise SystemExit("the sweep did not continue without its worker")
            process = killed.start()
            killed.wait_for_training(since)
            time.sleep(draws.uniform(0.0, 2 * trial))
            kills.append(kill(killed, worker=number % 2 == 0))
            print(f"kill {number + 1}: {kills[-1]}", flush=True)
        process = killed.start()
        if process.wait() == 1:  # the last kill was of a worker: its trial counts as killed
            killed.run()
        killed.look()
        files = [sweep.folder / "results.json" for sweep in (undisturbed, killed)]
        sums = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    equal = sums[0] == sums[1]
    results = {
        "settings": {key: str(v) for key, v in vars(options).items() if key != "output"},
        "machine": machine(options),
        "trials": TRIALS,
        "seconds of a trial": round(trial, 2),
        "seconds": round(time.monotonic() - begun),
        "kills": kills,
        "sha256 of results.json": {"undisturbed": sums[0], "killed": sums[1]},
        "finished trials touched again": killed.touched,
        "equal": equal,
    }
    write_json(options.output, results)
    programs = [found for found in kills if found["whom"] == "program"]
    slowest = max((found["worker ended after"] for found in programs), default=0.0)
    verdict = "equal" if equal else "DIFFERENT"
    print(
        f"{len(kills)} kills ({len(kills) - len(programs)} of the worker, {len(programs)} of the "
        f"program, whose worker ended within {slowest} s); {killed.touched} finished trials "
        f"touched again; results of {TRIALS} trials: {verdict}; {options.output}"
    )
    sys.exit(not equal or killed.touched > 0)


if __name__ == "__main__":
    main()
