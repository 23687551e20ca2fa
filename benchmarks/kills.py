"""Kill training, pretraining and sweeps at many moments, start them again, and compare every byte.

Usage: python -m benchmarks.kills [--kills 20] [--only NAME] [--report]

Each scenario is a command. It is run once undisturbed; then again and again it is started in an
empty folder, killed by SIGKILL once or several times, and started until it ends. Half of the kills
come at a random moment of its run, half at a random file operation, so that writes are hit as well.
Of a sweep the program, its worker, or both at once are killed. Afterwards results, records, weights
and exports must be those of the undisturbed run, byte for byte; times, hardware and paths are left
out. Nothing else may be left behind: no temporary file, no lock, no checkpoint, no process.

Kills are appended to ``benchmarks/results/kills.jsonl`` as they are made, and a later call makes
the next ones: every call with the same ``--kills`` total takes up where the last one was stopped.
``--report`` writes ``benchmarks/results/kills.json`` and ``docs/results/kills.md`` from them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from auxlearn.core.files import read_json, write_json, write_text
from benchmarks.common import RESULTS
from benchmarks.sweep_kills import alive, processes_of
from benchmarks.sweep_overhead import write_rows

KILLS = RESULTS / "kills.jsonl"
TABLE = Path(__file__).parents[1] / "docs" / "results" / "kills.md"
#: Seconds that a command may take.
PATIENCE = 600.0
#: Kills of one run at most, before it is left to end.
ROUNDS = 3


@dataclass(frozen=True)
class Scenario:
    """A command that is killed.

    Attributes:
        name: Its name in the table.
        kind: "train", "pretrain" or "sweep".
        settings: Settings of the run beyond the common ones, or arguments of the pretraining.
        whom: Who is killed: "program", "worker" or "both".
    """

    name: str
    kind: str
    settings: dict[str, Any]
    whom: str = "program"


def _train(name: str, **settings: Any) -> Scenario:
    return Scenario(f"train: {name}", "train", settings)


SCENARIOS = (
    _train("primary task alone"),
    _train("random_mlm", aux=["random_mlm"]),
    _train("l3mask", aux=["l3mask"]),
    _train("mask_tuning", aux=["mask_tuning"]),
    _train("meta", aux=["l3mask"], weights={"meta": {"horizon": "steps", "warmup_steps": 2}}),
    _train("tartan", aux=["random_mlm"], weights="tartan"),
    _train("gradnorm", aux=["random_mlm"], weights="gradnorm"),
    _train("primary-only phase", aux=["random_mlm"], final_epochs=1),
    _train("accumulation", aux=["random_mlm"], gradient_accumulation_steps=2),
    _train("TensorBoard", aux=["random_mlm"], report_to=["tensorboard"]),
    Scenario("pretrain: all", "pretrain", {"trainable": "all"}),
    Scenario("pretrain: head", "pretrain", {"trainable": "head"}),
    Scenario("sweep: program", "sweep", {}, "program"),
    Scenario("sweep: worker", "sweep", {}, "worker"),
    Scenario("sweep: both", "sweep", {}, "both"),
)
COMMON: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 8,
    "eval_steps": 2,
    "patience": 0,
    "max_length": 32,
    "device": "cpu",
}

#: What the command is started as: the n-th file operation below a folder kills it, if n is given.
DRIVER = """
import sys
from auxlearn.training import pretrain
pretrain.CHECKPOINT_SECONDS = 0.0
from benchmarks.file_operations import file_operations, kill
from auxlearn.cli import cli
at, below, log = int(sys.argv[1]) or None, sys.argv[2], sys.argv[3]
with file_operations(at, kill, below) as operations:
    try:
        cli(sys.argv[4:], standalone_mode=True)
    finally:
        with open(log, "w") as file:
            file.write(str(operations.count))
"""


class Place:
    """A folder with data and everything that the scenarios need.

    Args:
        path: The folder.
        encoder: Encoder of all runs.
    """

    def __init__(self, path: Path, encoder: str) -> None:
        self.path = path
        self.encoder = encoder
        write_rows(path / "data")
        (path / "texts.txt").write_text(_texts(path / "data"))
        self.undisturbed: dict[str, tuple[dict[str, str], float, int]] = {}

    def command(self, scenario: Scenario, output: Path) -> list[str]:
        """Return the arguments of ``auxlearn`` for a scenario."""
        file = self.path / f"{re.sub(r'[^a-z]+', '-', scenario.name.lower())}.yaml"
        base = {"dataset": str(self.path / "data"), "encoder": self.encoder, **COMMON}
        if scenario.kind == "train":
            file.write_text(yaml.safe_dump({**base, **scenario.settings}))
            return ["train", "--config", str(file), "--output", str(output)]
        if scenario.kind == "sweep":
            sweep = {"name": "kills", "base": base, "grid": {"aux": [[], "l3mask"]}, "seeds": 2}
            file.write_text(yaml.safe_dump(sweep))
            return f"sweep {file} --output {output} --jobs 1 --threads 1".split()
        texts = self.path / "texts.txt"
        arguments = f"pretrain --encoder {self.encoder} --corpus {texts} --output {output}".split()
        arguments += ["--steps", "8", "--batch-size", "8", "--max-length", "32", "--device", "cpu"]
        return [*arguments, "--trainable", scenario.settings["trainable"]]

    def start(
        self, scenario: Scenario, output: Path, at: int = 0
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a scenario; return its process and the file with its number of operations."""
        log = self.path / "operations"
        log.unlink(missing_ok=True)
        command = [sys.executable, "-c", DRIVER, str(at), str(output), str(log)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment["AUXLEARN_CACHE"] = str(self.path / "cache")
        with (self.path / "output.txt").open("wb") as file:
            process = subprocess.Popen(
                [*command, *self.command(scenario, output)],
                stdout=file,
                stderr=file,
                env=environment,
                cwd=Path(__file__).parents[1],
            )
        return process, log

    def reference(self, scenario: Scenario) -> tuple[dict[str, str], float, int]:
        """Return what the undisturbed run comes to, its seconds and its file operations."""
        if scenario.name not in self.undisturbed:
            output = self.path / "undisturbed"
            shutil.rmtree(output, ignore_errors=True)
            begun = time.monotonic()
            process, log = self.start(scenario, output)
            if process.wait(PATIENCE):
                raise SystemExit(f"{scenario.name} failed: {self._output()}")
            seconds = time.monotonic() - begun
            count = int(log.read_text())
            self.undisturbed[scenario.name] = digests(output), seconds, count
        return self.undisturbed[scenario.name]

    def _output(self) -> str:
        return (self.path / "output.txt").read_text(errors="replace")[-2000:]

    def kill(self, scenario: Scenario, draws: random.Random) -> dict[str, Any]:
        """Kill a scenario until it has had its kills, let it end, and compare.

        Returns:
            One entry of the table.
        """
        expected, seconds, count = self.reference(scenario)
        output = self.path / "killed"
        shutil.rmtree(output, ignore_errors=True)
        kills: list[str] = []
        orphans = 0
        for _ in range(draws.randint(1, ROUNDS)):
            by_operation = scenario.whom == "program" and draws.random() < 0.5
            at = draws.randint(1, count) if by_operation else 0
            process, _ = self.start(scenario, output, at)
            workers: list[int] = []
            if by_operation:
                process.wait(PATIENCE)
            else:
                workers = self._kill_in_time(process, scenario, draws.uniform(0.3, 1.0) * seconds)
            if process.returncode == -signal.SIGKILL or workers:
                kills.append(f"operation {at}" if by_operation else "moment")
            if scenario.whom == "worker":
                process.wait(PATIENCE)
            until = time.monotonic() + 10
            while any(alive(one) for one in workers) and time.monotonic() < until:
                time.sleep(0.05)
            orphans += sum(alive(one) for one in workers)
        for _ in range(2):  # a sweep whose worker was killed last counts the trial as killed
            process, _ = self.start(scenario, output)
            if process.wait(PATIENCE) == 0:
                break
        return {
            "scenario": scenario.name,
            "kills": kills,
            "ended": process.returncode == 0,
            "said": "" if process.returncode == 0 else self._output(),
            "different": _differing(expected, digests(output)),
            "left behind": left_behind(output),
            "orphans": orphans,
        }

    def _kill_in_time(
        self, process: subprocess.Popen[bytes], scenario: Scenario, seconds: float
    ) -> list[int]:
        """Kill whom the scenario names after some seconds; return the worker processes."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.01)
        workers = processes_of(process.pid) if process.poll() is None else []
        victims = {"program": [process.pid], "worker": workers, "both": [process.pid, *workers]}
        if process.poll() is None:
            for victim in victims[scenario.whom]:
                os.kill(victim, signal.SIGKILL)
            if scenario.whom != "worker":
                process.wait()
        return workers


def _texts(data: Path) -> str:
    rows = [line for path in sorted(data.glob("train.*")) for line in path.read_text().splitlines()]
    return "\n".join(re.sub(r'[{}"\t]', " ", row) for row in rows[:80]) + "\n"


#: Keys of JSON files in which equal runs differ: times, paths, hardware, and checksums of these.
_DIFFERING = ("seconds", "environment", "sha256", "output", "cache_dir")


def digests(folder: Path) -> dict[str, str]:
    """Return a digest of every file that equal runs share, by relative path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        parts = name.split("/")
        if not path.is_file() or "logs" in parts or "tensorboard" in parts:
            continue
        if parts[-1] in ("environment.json", "README.md"):
            continue
        content = path.read_bytes()
        if parts[-1] == "results.json" and (path.parent / "config.yaml").exists():
            content = json.dumps(_without_times(read_json(path)), sort_keys=True).encode()
        elif parts[-1] == "manifest.json":
            files = read_json(path)["files"]
            files.pop("README.md", None)  # it shows the time that the run took
            content = json.dumps(files, sort_keys=True).encode()
        elif parts[-1] == "config.yaml":
            values = yaml.safe_load(content)
            content = json.dumps({k: v for k, v in values.items() if k not in _DIFFERING}).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in _DIFFERING}
    return value


def _differing(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    return sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))


def left_behind(folder: Path) -> list[str]:
    """Return hidden files, checkpoints and logs of errors that a finished folder still holds."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    kept = re.compile(r"(^|/)(\.|checkpoint($|/)|error\.log$)")
    return sorted(name for name in names if kept.search(name))


def good(entry: dict[str, Any]) -> bool:
    """Return whether the kills of an entry have changed nothing."""
    faults = entry["different"], entry["left behind"], entry["orphans"]
    return bool(entry["ended"]) and not any(faults)


def read_entries() -> list[dict[str, Any]]:
    """Return the entries of earlier calls."""
    if not KILLS.exists():
        return []
    return [json.loads(line) for line in KILLS.read_text(encoding="utf-8").splitlines()]


def report(entries: list[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    lines = [
        "# Kills at random moments",
        "",
        "`python -m benchmarks.kills` starts a command, ends it by SIGKILL one to "
        f"{ROUNDS} times, at random moments and at random file operations, lets it finish, and "
        "compares the folder with that of an undisturbed run: results, records, weights and "
        "exports byte for byte (times, paths and hardware left out), temporary files, locks, "
        "checkpoints and processes that are left behind.",
        "",
        "| command | runs | kills | at a moment | at a file operation | different | left behind |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for scenario in SCENARIOS:
        own = [entry for entry in entries if entry["scenario"] == scenario.name]
        if own:
            lines.append(_row(scenario.name, own))
    lines.append(_row("all", entries))
    return "\n".join(lines) + "\n"


def _row(name: str, entries: list[dict[str, Any]]) -> str:
    kills = [kill for entry in entries for kill in entry["kills"]]
    moments = sum(kill == "moment" for kill in kills)
    different = sum(bool(entry["different"]) or not entry["ended"] for entry in entries)
    left = sum(bool(entry["left behind"] or entry["orphans"]) for entry in entries)
    numbers = len(entries), len(kills), moments, len(kills) - moments, different, left
    return f"| {name} | " + " | ".join(map(str, numbers)) + " |"


@contextmanager
def workplace() -> Iterator[Path]:
    """Yield a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="auxlearn-kills-") as folder:
        yield Path(folder)


def main() -> None:
    """Kill, start again, compare; continue earlier calls."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=150, help="kills in total")
    parser.add_argument("--only", help="scenarios whose name contains this")
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--report", action="store_true", help="write the table, kill nothing")
    options = parser.parse_args()
    entries = read_entries()
    chosen = [one for one in SCENARIOS if options.only is None or options.only in one.name]
    if not options.report:
        with workplace() as folder:
            place = Place(folder, options.encoder)
            while sum(len(entry["kills"]) for entry in entries) < options.kills:
                number = len(entries)
                scenario = chosen[number % len(chosen)]
                entry = place.kill(scenario, random.Random(f"{number} {scenario.name}"))
                entries.append(entry)
                KILLS.parent.mkdir(exist_ok=True)
                with KILLS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
                verdict = "as undisturbed" if good(entry) else f"BAD: {entry}"
                print(f"{number + 1}: {scenario.name}: {entry['kills']}: {verdict}", flush=True)
    bad = [entry for entry in entries if not good(entry)]
    write_json(RESULTS / "kills.json", {"bad": len(bad), "runs": entries})
    write_text(TABLE, report(entries))
    print(report(entries).split("\n\n", 2)[2])
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
