"""The program under signals: it leaves no worker behind, and the sweep can be resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")


def processes_of(parent: int) -> list[int]:
    """The worker processes that a process has started, helpers of the engine left out."""
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
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"no {what} in {seconds} s"
        time.sleep(0.02)


@pytest.fixture
def program(sweep_file, tmp_path):
    """Start `auxlearn sweep` of two long trials in a process group of its own."""
    path = sweep_file(base={"epochs": 400})
    started = []

    def start() -> subprocess.Popen:
        command = [sys.executable, "-m", "auxlearn", "sweep", str(path)]
        command += ["--output", str(tmp_path / "out"), "--threads", "1"]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
        )
        started.append(process)
        begun = time.time()
        trained = tmp_path / "out" / "trials"
        wait_for(
            lambda: any(
                f.stat().st_mtime > begun and steps(f) for f in trained.glob("*/metrics.jsonl")
            ),
            120,
            "evaluation",
        )
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_killed_program_leaves_no_worker_and_ctrl_c_leaves_all_resumable(program, tmp_path):
    process = program()
    workers = processes_of(process.pid)
    assert len(workers) == 1
    process.kill()
    process.wait()
    wait_for(lambda: not any(alive(worker) for worker in workers), 5, "end of the worker")

    process = program()
    workers = processes_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not any(alive(worker) for worker in workers)
    assert "Traceback" not in errors
    lines = [line for line in errors.splitlines() if "error" in line]
    assert lines == ["error: stopped with 0 of 2 trials done: the same command resumes the sweep"]

    (metrics,) = (tmp_path / "out" / "trials").glob("*/metrics.jsonl")
    before = steps(metrics)
    assert before
    program()
    wait_for(lambda: len(steps(metrics)) > len(before), 60, "step beyond the checkpoint")
    after = steps(metrics)
    assert after[: len(before)] == before
    assert after == sorted(set(after))


def steps(metrics: Path) -> list[int]:
    """Steps after which a run was evaluated, in the order of its file."""
    lines = metrics.read_text().splitlines(keepends=True)
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    return [entry["step"] for entry in entries if entry["kind"] == "eval"]
