"""Fixtures for sweeps: a data set of a few lines, and an encoder small enough for fast trials."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from auxlearn.executors.jobs import Executor, Job, Outcome
from auxlearn.executors.slurm import SlurmOptions
from auxlearn.executors.worker import run_job
from tests import helpers

#: A plug-in with tasks that fail.
FAILING_TASKS = str(Path(__file__).parent / "failing_tasks.py")


def write_dataset(folder: Path) -> Path:
    """Write 48 lines of text in three classes: 24 for train, 12 each for dev and test."""
    rows = helpers.rows("", "again")
    return helpers.write_splits(folder, train=rows[:24], dev=rows[24:36], test=rows[36:])


@pytest.fixture(scope="session")
def fast_settings(tmp_path_factory, one_layer) -> dict[str, Any]:
    return {
        "dataset": str(write_dataset(tmp_path_factory.mktemp("sweep-data"))),
        "encoder": str(one_layer),
        "epochs": 2,
        "batch_size": 8,
        "patience": 0,
        "learning_rate": 1e-3,
        "device": "cpu",
    }


@pytest.fixture
def sweep_file(fast_settings, tmp_path) -> Callable[..., Path]:
    def write(**content: Any) -> Path:
        path = tmp_path / "sweep.yaml"
        base = fast_settings | content.pop("base", {})
        whole = {"name": "trial", "base": base, "seeds": 2} | content
        path.write_text(yaml.safe_dump(whole, sort_keys=False))
        return path

    return write


class InlineExecutor(Executor):
    """Runs each job in this process when it is submitted, which needs no worker processes."""

    slots = 1
    threads = 1

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._ended: list[Outcome] = []

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self._ended.append(run_job(job))

    def wait(self, seconds: float) -> list[Outcome]:
        ended, self._ended = self._ended, []
        if not ended:
            time.sleep(min(seconds, 0.05))
        return ended

    def stop(self) -> None: ...

    def close(self) -> None: ...


class InlineOfSweep(InlineExecutor):
    """The same, as a registered executor is made."""

    Options = SlurmOptions

    def __init__(self, **options: Any) -> None:
        super().__init__()
