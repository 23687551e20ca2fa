"""Start-up: from the command to the help text, to the first training step, to the results."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from auxlearn.data.load import load_dataset
from benchmarks.common import arguments, save

#: Runs the command line until the first optimizer step is complete, and prints the time.
FIRST_STEP = """
import os, sys, time
begun = float(os.environ["AUXLEARN_BEGUN"])
import auxlearn.training.loop as loop
step = loop.TrainingLoop.run_step
def stop(self):
    step(self)
    print("first step", time.time() - begun, time.process_time(), flush=True)
    os._exit(0)
loop.TrainingLoop.run_step = stop
from auxlearn.cli import main
sys.argv = ["auxlearn", "train", *sys.argv[1:]]
main()
"""


def main() -> None:
    """Time both several times, each in a new process."""
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as folder:
        cache = {"AUXLEARN_CACHE": str(Path(folder) / "cache"), "HF_HUB_OFFLINE": "1"}
        helps = [timed([sys.executable, "-m", "auxlearn", "--help"]) for _ in range(options.rounds)]
        first, warm = [], []
        for number in range(options.rounds + 1):
            command = ["--output", f"{folder}/run-{number}", "--device", options.device]
            (warm if number else first).append(first_step(command, cache))
        short = write_short(Path(folder) / "short")
        train = [sys.executable, "-m", "auxlearn", "train", "--dataset", str(short)]
        train += ["--epochs", "5", "--device", options.device]
        whole = [
            timed([*train, "--output", f"{folder}/whole-{number}"], cache)
            for number in range(options.rounds + 1)
        ][1:]
    save(
        "startup",
        options,
        {
            "help": middle(helps),
            "first step, nothing cached": middle(first),
            "first step": middle(warm),
            "whole run": middle(whole),
            "imports": imports("auxlearn.cli"),
            "imports of a run": imports("auxlearn.training.run"),
        },
    )


def middle(times: list[tuple[float, float]]) -> dict[str, float]:
    """Return medians of wall and processor seconds."""
    wall, cpu = zip(*times, strict=True)
    return {"wall": statistics.median(wall), "cpu": statistics.median(cpu)}


def write_short(folder: Path) -> Path:
    """Write 300 train, 100 dev and 300 test texts of the built-in data set as a folder."""
    folder.mkdir()
    dataset = load_dataset("pydocs")
    for name, count in (("train", 300), ("dev", 100), ("test", 300)):
        split = dataset.splits[name]
        assert split.labels is not None
        rows = [
            {"text": split.texts[row], "label": split.label_names[split.labels[row]]}
            for row in range(0, len(split), len(split) // count)[:count]
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder


def timed(
    command: list[str], environment: Mapping[str, str] = MappingProxyType({})
) -> tuple[float, float]:
    """Run a command; return its wall and processor seconds."""
    started, used = time.perf_counter(), os.times()
    own = {**os.environ, **environment}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=own)
    after = os.times()
    cpu = after.children_user + after.children_system - used.children_user - used.children_system
    return time.perf_counter() - started, cpu


def first_step(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return wall and CPU seconds from the start of the process to the first optimizer step."""
    found = subprocess.run(
        [sys.executable, "-c", FIRST_STEP, *arguments],
        env={**os.environ, **environment, "AUXLEARN_BEGUN": repr(time.time())},
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in found.stdout.splitlines() if line.startswith("first step"))
    wall, cpu = line.split()[2:]
    return float(wall), float(cpu)


def imports(module: str, most: int = 12) -> dict[str, float]:
    """Return the packages that take longest to import, in seconds with all they import."""
    found = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds: dict[str, float] = {}
    for line in found.stderr.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[1].strip().isdigit():
            seconds[parts[2].strip()] = int(parts[1]) / 1e6
    top = {name: s for name, s in seconds.items() if "." not in name or name == module}
    return dict(sorted(top.items(), key=lambda item: -item[1])[:most])


if __name__ == "__main__":
    main()
