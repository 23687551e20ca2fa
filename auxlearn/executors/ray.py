"""Executor for Ray, https://docs.ray.io."""

from __future__ import annotations

import math
import os
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


class RayOptions(Settings):
    """Options of the executor ``ray``."""

    address: str | None = Field(
        None, description="Address of a running Ray cluster, or auto; by default one is started."
    )
    gpus: float | None = Field(
        None,
        ge=0,
        description="GPUs per trial, which may be a fraction; by default 1 if there are any, or an "
        "equal part of them if more trials run at a time.",
    )


@register_executor("ray")
class RayExecutor(Executor):
    """Runs trials as tasks of Ray, on this machine or on a cluster that shares the sweep's folder.

    A process runs many trials, so that it starts and imports once; with GPUs it runs one, because
    after a CUDA error every later call in its process fails.
    """

    Options = RayOptions

    def __init__(
        self,
        jobs: int | None = None,
        threads: int | None = None,
        folder: Path | None = None,
        gpus: float | None = None,
        address: str | None = None,
    ) -> None:
        # Without this, Ray warns that it clears CUDA_VISIBLE_DEVICES for tasks without a GPU.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self._ray = ray = library("ray", "the ray executor", "ray")
        self.threads = threads or 1
        local: dict[str, Any] = {"include_dashboard": False, "num_cpus": (jobs or 0) * self.threads}
        if address is not None or not jobs:
            local.pop("num_cpus")
        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                configure_logging=False,
                **({} if address else local),
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            line = " ".join(str(error).split())
            raise SweepError(f"cannot reach Ray at {address or 'this machine'}: {line}") from None
        resources = ray.cluster_resources()
        available = resources.get("GPU", 0)
        fitting = int(resources.get("CPU", 0) // self.threads)
        if gpus is None:
            # As many trials share a GPU as are needed for all of them to fit.
            gpus = 1 / math.ceil((jobs or 1) / available) if available else 0
        if gpus:
            fitting = min(fitting, _trials_on_gpus(available, gpus))
        if fitting == 0:
            ray.shutdown()
            raise SweepError(
                f"Ray has {resources.get('CPU', 0):g} CPUs and {available:g} GPUs, a trial "
                f"requests {self.threads} and {gpus:g}: choose fewer --threads or --gpus"
            )
        self.slots = min(jobs, fitting) if jobs else fitting
        # A trial without GPUs of its own would use the first visible one, like all the others.
        hidden = {"runtime_env": {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}}
        self._run = ray.remote(
            num_cpus=self.threads,
            num_gpus=gpus,
            max_retries=0,
            max_calls=1 if gpus else 0,
            **(hidden if available and not gpus else {}),
        )(run_job)
        self._running: dict[Any, Job] = {}
        self._stopping = False

    def submit(self, job: Job) -> None:
        self._running[self._run.remote(job)] = job

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._running:
            time.sleep(seconds)
            return []
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [self._collect(reference) for reference in ended]

    def _collect(self, reference: Any) -> Outcome:
        job = self._running.pop(reference)
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(reference)
            return outcome
        except errors.TaskCancelledError:
            return Outcome(job.digest, "interrupted", "stopped before its first checkpoint")
        except errors.OutOfMemoryError as error:
            return Outcome(job.digest, "out of memory", first_line(error))
        except errors.RayError as error:
            if self._stopping:
                return Outcome(job.digest, "interrupted", "stopped")
            return Outcome(job.digest, "killed", f"its process ended: {first_line(error)}")

    def stop(self) -> None:
        self._stopping = True
        for reference in self._running:
            self._ray.cancel(reference, force=False)

    def close(self) -> None:
        self._ray.shutdown()


def _trials_on_gpus(gpus: float, share: float) -> int:
    """Return how many trials fit; a fraction of a GPU is never spread over several."""
    return int(gpus / share) if share >= 1 else int(gpus) * int(1 / share + 1e-9)
