"""Kill a sweep at random points, parent and workers, and compare what it comes to.

Usage: python benchmarks/sweep_kills.py [--kills 10] [--encoder tiny]

Runs `auxlearn sweep` of 12 trials once undisturbed, then again under SIGKILL: every other kill
hits the whole program, the others only its worker. At the end the two result files must be equal
byte for byte, and no finished trial may have been touched again. Takes some minutes, because every
start imports torch and transformers twice; the suite does the same with processes that are forked.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from sweep_overhead import write_rows


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def start(place: Path, output: str) -> subprocess.Popen:
    """Start the sweep."""
    command = [sys.executable, "-m", "auxlearn", "sweep", str(place / "sweep.yaml")]
    command += ["--output", str(place / output), "--jobs", "1", "--threads", "1"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    """Kill, start again, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draws = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_rows(place / "data")
        content = {
            "name": "kills",
            "base": {
                "dataset": str(place / "data"),
                "encoder": options.encoder,
                "epochs": 3,
                "eval_every": 1,
                "patience": 0,
            },
            "grid": {"aux": [[], "random_mlm", "l3mask"]},
            "seeds": 4,
        }
        (place / "sweep.yaml").write_text(yaml.safe_dump(content))
        begun = time.monotonic()
        assert start(place, "undisturbed").wait() == 0
        length = time.monotonic() - begun
        finished: dict[Path, int] = {}
        for number in range(options.kills):
            process = start(place, "killed")
            time.sleep(draws.uniform(0.2, 0.6) * length)
            whole = number % 2 == 0
            victims = [process.pid] if whole else children(process.pid)
            for victim in victims:
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not whole:
                time.sleep(1.0)
                process.kill()
            process.wait()
            touched = [at for at, when in finished.items() if at.stat().st_mtime_ns != when]
            assert not touched, touched
            for at in (place / "killed").glob("trials/*/results.json"):
                finished[at] = at.stat().st_mtime_ns
            what = "program" if whole else f"{len(victims)} workers"
            print(f"kill {number + 1}: {what}; {len(finished)} of 12 trials finished", flush=True)
        assert start(place, "killed").wait() == 0
        same = [(place / name / "results.json").read_bytes() for name in ("undisturbed", "killed")]
        print("equal" if same[0] == same[1] else "DIFFERENT")
        sys.exit(same[0] != same[1])


if __name__ == "__main__":
    main()
