"""Where trials run: processes of this machine, Ray, or SLURM. The engines are existing ones."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import time
from abc import ABC, abstractmethod
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from auxlearn.errors import SweepError
from auxlearn.sweeps.worker import Job, Outcome, begin, run_job


class Executor(ABC):
    """Runs jobs, some at a time.

    Attributes:
        slots: Jobs at a time.
        threads: Threads of each job.
    """

    slots: int
    threads: int

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Start a job; there are never more than :attr:`slots`."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Outcome]:
        """Return the jobs that ended, after at most so long."""

    @abstractmethod
    def stop(self) -> None:
        """Ask the running jobs to write a checkpoint and to end; :meth:`wait` returns them."""

    @abstractmethod
    def close(self) -> None:
        """End every process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class LocalExecutor(Executor):
    """Processes of this machine, by joblib's loky.

    Each slot is a loky executor of one process. So the death of a process fails the one trial that
    ran in it, and the others go on. A process lives for many trials: it starts and imports once.

    Args:
        jobs: Trials at a time.
        threads: Of each; by default the cores are shared out.
    """

    def __init__(self, jobs: int = 1, threads: int | None = None) -> None:
        self.slots = jobs
        self.threads = threads or max(1, (os.cpu_count() or 1) // jobs)
        gpus = _visible_gpus() if jobs > 1 else []
        self._slots = [
            _Slot(self.threads, gpus[number % len(gpus)] if len(gpus) > 1 else None)
            for number in range(jobs)
        ]
        self._stopping = False

    def submit(self, job: Job) -> None:
        next(slot for slot in self._slots if slot.job is None).submit(job)

    def wait(self, seconds: float) -> list[Outcome]:
        futures = [slot.future for slot in self._slots if slot.future is not None]
        if not futures:
            time.sleep(seconds)
            return []
        wait_for(futures, seconds, FIRST_COMPLETED)
        ended = [slot for slot in self._slots if slot.future is not None and slot.future.done()]
        return [slot.collect(self._stopping) for slot in ended]

    def stop(self) -> None:
        self._stopping = True
        for slot in self._slots:
            slot.signal(signal.SIGTERM)

    def close(self) -> None:
        for slot in self._slots:
            slot.shut_down()


class _Slot:
    """A process and the job it is at."""

    def __init__(self, threads: int, gpu: str | None) -> None:
        self._environment = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        if gpu is not None:
            self._environment["CUDA_VISIBLE_DEVICES"] = gpu
        self._pool: Any = None
        self.job: Job | None = None
        self.future: Future[Outcome] | None = None

    def submit(self, job: Job) -> None:
        if self._pool is None:
            from joblib.externals.loky import ProcessPoolExecutor

            self._pool = ProcessPoolExecutor(
                max_workers=1,
                initializer=begin,
                initargs=(os.getpid(),),
                env=self._environment,
            )
        self.job = job
        self.future = self._pool.submit(run_job, job)

    def collect(self, stopping: bool) -> Outcome:
        assert self.job is not None
        assert self.future is not None
        error = self.future.exception()
        digest = self.job.digest
        if error is None:
            outcome = self.future.result()
        elif stopping:
            outcome = Outcome(digest, "interrupted", "stopped before its first checkpoint")
        else:
            outcome = Outcome(digest, "killed", _how_it_died(error))
        self.job = self.future = None
        if outcome.state in ("crash", "out of memory", "killed"):
            self.shut_down()  # what such a trial left in the process is not known
        return outcome

    def signal(self, number: int) -> None:
        if self._pool is None or self.job is None:
            return
        for process in list(self._pool._processes.values()):
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def shut_down(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=self.job is not None)
            self._pool = None


def _how_it_died(error: BaseException) -> str:
    found = re.search(r"\{(?:SIG)?(\w+)\((-?\d+)\)", str(error))
    if found is None:
        return f"its process ended: {type(error).__name__}"
    name, code = found.groups()
    if int(code) >= 0:
        return f"its process ended with exit code {code}"
    advice = " (the system does this when memory runs out)" if name == "KILL" else ""
    return f"its process was killed by SIG{name}{advice}"


def _visible_gpus() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [part for part in named.split(",") if part]
    if shutil.which("nvidia-smi") is None:
        return []
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


class RayExecutor(Executor):
    """Tasks of Ray, on this machine or on a cluster; the sweep's folder must be on a shared disk.

    A process lives for many trials, so that it starts and imports once; with GPUs for one, because
    an error of CUDA makes every later call in its process fail.

    Args:
        jobs: Trials at a time; by default as many as the CPUs (and GPUs) allow.
        threads: CPUs that a trial asks for, and the threads it computes with.
        gpus: GPUs that a trial asks for; parts of one are possible. By default one if there are
            any, or an equal part if ``jobs`` are more than the GPUs. With 0 a trial sees none.
        address: Of a running cluster, such as ``"auto"``; by default Ray is started here.

    Raises:
        SweepError: Ray is not installed, cannot be reached, or has too little for one trial.
    """

    def __init__(
        self,
        jobs: int | None = None,
        threads: int | None = None,
        gpus: float | None = None,
        address: str | None = None,
    ) -> None:
        # Ray otherwise warns of what it does to CUDA_VISIBLE_DEVICES for tasks without a GPU.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError:
            raise SweepError(
                "the ray executor needs Ray: install it with `pip install 'auxlearn[ray]'`"
            ) from None
        self._ray = ray
        self.threads = threads or 1
        here: dict[str, Any] = {"include_dashboard": False, "num_cpus": (jobs or 0) * self.threads}
        if address is not None or not jobs:
            here.pop("num_cpus")
        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                configure_logging=False,
                **({} if address else here),
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            line = " ".join(str(error).split())
            raise SweepError(f"cannot reach Ray at {address or 'this machine'}: {line}") from None
        have = ray.cluster_resources()
        fitting = int(have.get("CPU", 0) // self.threads)
        there = have.get("GPU", 0)
        if gpus is None:
            # So many of the trials share a GPU that all of them fit.
            gpus = 1 / math.ceil((jobs or 1) / there) if there else 0
        if gpus:
            fitting = min(fitting, _trials_on_gpus(there, gpus))
        if fitting == 0:
            ray.shutdown()
            raise SweepError(
                f"Ray has {have.get('CPU', 0):g} CPUs and {have.get('GPU', 0):g} GPUs, a trial "
                f"asks for {self.threads} and {gpus:g}: choose fewer --threads or --gpus"
            )
        self.slots = min(jobs, fitting) if jobs else fitting
        # Without GPUs of its own a trial would take the first it sees, as all the others.
        hidden = {"runtime_env": {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}}
        self._run = ray.remote(
            num_cpus=self.threads,
            num_gpus=gpus,
            max_retries=0,
            max_calls=1 if gpus else 0,
            **(hidden if there and not gpus else {}),
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
            return Outcome(job.digest, "out of memory", _first_line(error))
        except errors.RayError as error:
            if self._stopping:
                return Outcome(job.digest, "interrupted", "stopped")
            return Outcome(job.digest, "killed", f"its process ended: {_first_line(error)}")

    def stop(self) -> None:
        self._stopping = True
        for reference in self._running:
            self._ray.cancel(reference, force=False)

    def close(self) -> None:
        self._ray.shutdown()


def _trials_on_gpus(gpus: float, share: float) -> int:
    """Return how many trials fit; a trial with part of a GPU has it on one GPU."""
    return int(gpus / share) if share >= 1 else int(gpus) * int(1 / share + 1e-9)


class SlurmExecutor(Executor):
    """Jobs of SLURM, one for each trial, by submitit; the sweep's folder must be on a shared disk.

    A trial that meets its time limit or is preempted is queued again and goes on from its
    checkpoint. Jobs outlive the sweep that queued them: the next one finds their results.

    Args:
        folder: Where submitit keeps scripts and logs.
        jobs: Jobs in the queue at a time.
        threads: CPUs of a job.
        gpus: GPUs of a job, whole ones; by default none.
        minutes: Time limit of a job.
        partition: Which one; by default SLURM's own.
        cluster: "slurm", or "local" for processes of this machine.

    Raises:
        SweepError: submitit or SLURM is missing, or the GPUs are not whole.
    """

    def __init__(
        self,
        folder: Path,
        jobs: int = 100,
        threads: int | None = None,
        gpus: float | None = None,
        minutes: int = 240,
        partition: str | None = None,
        cluster: str = "slurm",
    ) -> None:
        try:
            import submitit
        except ImportError:
            raise SweepError(
                "the slurm executor needs submitit: install it with `pip install 'auxlearn[slurm]'`"
            ) from None
        if gpus is not None and not float(gpus).is_integer():
            raise SweepError(f"SLURM gives whole GPUs only: --gpus {gpus:g} asks for a part of one")
        if cluster == "slurm" and shutil.which("srun") is None:
            raise SweepError("there is no SLURM here (srun is not found): use another --executor")
        self.slots = jobs
        self.threads = threads or 1
        self._queue = submitit.AutoExecutor(folder=folder, cluster=cluster)
        settings: dict[str, Any] = {
            "name": "auxlearn",
            "timeout_min": minutes,
            "cpus_per_task": self.threads,
            "gpus_per_node": int(gpus or 0),
        }
        if partition is not None:
            settings["slurm_partition"] = partition
        self._queue.update_parameters(**settings)
        self._running: list[tuple[Any, Job]] = []
        self._stopping = False

    def submit(self, job: Job) -> None:
        self._running.append((self._queue.submit(_Requeued(), job), job))

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
        return Outcome(job.digest, "killed", f"its job ended: {_first_line(error)}")

    def stop(self) -> None:
        self._stopping = True
        for queued, _ in self._running:
            queued.cancel()

    def close(self) -> None:
        """Nothing: no process belongs to this one."""


class _Requeued:
    """The call that submitit makes, and makes again after a time limit or a preemption."""

    def __call__(self, job: Job) -> Outcome:
        return run_job(job)

    def checkpoint(self, job: Job) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
