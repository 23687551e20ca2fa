"""Executor for SLURM, by submitit, https://github.com/facebookincubator/submitit."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from auxlearn.core.errors import SweepError, first_line
from auxlearn.core.lazy import library
from auxlearn.core.registry import register_executor
from auxlearn.core.validation import Settings
from auxlearn.executors.jobs import Executor, Job, Outcome
from auxlearn.executors.worker import run_job


class SlurmOptions(Settings):
    """Options of the executor ``slurm``."""

    partition: str | None = Field(None, description="SLURM partition.")
    minutes: int = Field(240, ge=1, description="Time limit of a SLURM job in minutes.")
    gpus: int = Field(0, ge=0, description="GPUs per trial.")


@register_executor("slurm")
class SlurmExecutor(Executor):
    """Runs each trial as a SLURM job, by submitit; the sweep's folder must be on a shared disk.

    A trial that reaches its time limit or is preempted is queued again. Jobs outlive the sweep that
    queued them: the next one finds their results.
    """

    Options = SlurmOptions

    def __init__(
        self,
        folder: Path,
        jobs: int | None = None,
        threads: int | None = None,
        gpus: int = 0,
        minutes: int = 240,
        partition: str | None = None,
        cluster: str = "slurm",
    ) -> None:
        submitit = library("submitit", "the slurm executor", "slurm")
        if cluster == "slurm" and shutil.which("srun") is None:
            raise SweepError(
                "SLURM is not available here (srun is not found): use another --executor"
            )
        self.slots = jobs or 100
        self.threads = threads or 1
        self._queue = submitit.AutoExecutor(folder=folder / "slurm", cluster=cluster)
        settings: dict[str, Any] = {
            "name": "auxlearn",
            "timeout_min": minutes,
            "cpus_per_task": self.threads,
            "gpus_per_node": gpus,
        }
        if partition is not None:
            settings["slurm_partition"] = partition
        self._queue.update_parameters(**settings)
        self._running: list[tuple[Any, Job]] = []
        self._stopping = False

    def submit(self, job: Job) -> None:
        self._running.append((self._queue.submit(_RequeuedJob(), job), job))

    def wait(self, seconds: float) -> list[Outcome]:
        until = time.monotonic() + seconds
        while True:
            ended = [pair for pair in self._running if pair[0].done()]
            if ended or time.monotonic() >= until:
                break
            time.sleep(min(0.2, seconds))
        for pair in ended:
            self._running.remove(pair)
        return [self._collect(*pair) for pair in ended]

    def _collect(self, queued: Any, job: Job) -> Outcome:
        error = queued.exception()
        if error is None:
            outcome: Outcome = queued.result()
            return outcome
        if self._stopping:
            return Outcome(job.digest, "interrupted", "stopped")
        return Outcome(job.digest, "killed", f"its job ended: {first_line(error)}")

    def stop(self) -> None:
        self._stopping = True
        for queued, _ in self._running:
            queued.cancel()

    def close(self) -> None:
        """Do nothing: the jobs belong to SLURM."""


class _RequeuedJob:
    """The function that a job calls, also after it was queued again; submitit needs the class."""

    def __call__(self, job: Job) -> Outcome:
        return run_job(job)

    def checkpoint(self, job: Job) -> Any:
        """Return what submitit queues after a time limit or a preemption."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job)
