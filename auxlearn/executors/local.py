"""Executor for processes of this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait as wait_for
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from auxlearn.core.errors import SweepError
from auxlearn.core.processes import threads_given
from auxlearn.core.registry import register_executor
from auxlearn.core.rng import ONE_THREAD
from auxlearn.executors.jobs import Executor, Job, Outcome
from auxlearn.executors.worker import OF_THE_PARENT, run_job, start_worker


def default_threads(jobs: int) -> int:
    """Return ``OMP_NUM_THREADS`` if it is set, else the number of cores divided by ``jobs``."""
    return threads_given(max(1, (os.cpu_count() or 1) // jobs))


@register_executor("local")
class LocalExecutor(Executor):
    """Runs trials in processes of this machine, by the loky of joblib, one for each slot, so that a
    death fails one trial and a process imports once for many.
    """

    def __init__(
        self, jobs: int | None = None, threads: int | None = None, folder: Path | None = None
    ) -> None:
        if sys.stdout is None or sys.stderr is None:  # loky flushes both
            raise SweepError(
                "this program has no standard output or error, which the processes of trials are "
                'started with: set sys.stdout and sys.stderr, such as to open(os.devnull, "w")'
            )
        self.slots = jobs = jobs or 1
        self.threads = threads or default_threads(jobs)
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
    """A worker process and the job that it runs."""

    def __init__(self, threads: int, gpu: str | None) -> None:
        self._environment = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        if gpu is not None:
            self._environment["CUDA_VISIBLE_DEVICES"] = gpu
        self._pool: Any = None
        self._kills = 0
        self.job: Job | None = None
        self.future: Future[Outcome] | None = None

    def submit(self, job: Job) -> None:
        with ONE_THREAD, _starting():
            try:
                if self._pool is None:
                    from joblib.externals.loky import ProcessPoolExecutor

                    # It ends a worker whose memory has grown, as that of any training, and starts
                    # another.
                    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
                    self._pool = ProcessPoolExecutor(
                        max_workers=1,
                        initializer=start_worker,
                        initargs=(os.getpid(),),
                        env=self._environment,
                    )
                self._kills = kills_for_memory()
                self.future = self._pool.submit(run_job, job)
            except OSError as error:
                raise SweepError(
                    f"no process can be started here ({error.strerror or error}): it needs shared "
                    "memory, /dev/shm, that can be written to"
                ) from None
            self.job = job

    def collect(self, stopping: bool) -> Outcome:
        assert self.job is not None
        assert self.future is not None
        error, digest = self.future.exception(), self.job.digest
        if error is None:
            outcome = self.future.result()
        elif stopping:
            outcome = Outcome(digest, "interrupted", "stopped before its first checkpoint")
        else:
            cause = _cause_of_death(error, kills_for_memory() > self._kills)
            outcome = Outcome(digest, "killed", cause)
        self.job = self.future = None
        if outcome.state in ("crash", "out of memory", "killed"):
            self.shut_down()  # such a trial may have left the process in any state
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


@contextmanager
def _starting() -> Iterator[None]:
    """Start processes in the block that do not die of the Ctrl-C or lost terminal of this one, and
    loky's helpers so that they do not warn if the sweep is killed.
    """
    from multiprocessing import resource_tracker as standard_tracker

    from joblib.externals.loky.backend import resource_tracker

    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [before, "ignore:resource_tracker"]))
    try:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_PARENT)  # they inherit this
        try:
            resource_tracker.ensure_running()
            standard_tracker.ensure_running()  # older ones of Python unblock Ctrl-C
            signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_PARENT)
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def kills_for_memory() -> int:
    """Return how many processes the system has killed so far because memory ran out."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def _cause_of_death(error: BaseException, memory_ran_out: bool) -> str:
    """Return how a worker process ended, from the message of loky's error."""
    match = re.search(r"\{(?:SIG)?(\w+)\((-?\d+)\)", str(error))
    if match is None:
        return f"its process ended: {type(error).__name__}"
    name, code = match.groups()
    if int(code) >= 0:
        return f"its process ended with exit code {code}"
    advice = " as memory ran out" if name == "KILL" and memory_ran_out else ""
    return f"its process was killed by SIG{name}{advice}"


def _visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [part for part in named.split(",") if part]
    if shutil.which("nvidia-smi") is None:
        return []
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
