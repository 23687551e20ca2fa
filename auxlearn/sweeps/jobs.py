"""Jobs: runs as they are sent to processes, how they ended, and the engines that run them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from auxlearn.core.config import RunConfig
from auxlearn.core.signals import StopRequest

#: How a trial ended. "locked": another process is running in its folder. "error": an error that the
#: user can fix. "crash": any other exception. "killed": the process died.
State = Literal[
    "finished", "locked", "interrupted", "error", "crash", "out of memory", "killed", "disk full"
]
FAILURES = ("error", "crash", "out of memory", "killed", "disk full")
#: Those that are not of the trial: the same command runs it again.
PASSING = ("killed", "disk full")

#: Seconds between two looks at running jobs.
UPDATE_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """A trial as it is sent to a process."""

    digest: str
    config: dict[str, Any]  # the resolved configuration; ``output`` is the trial's folder
    log: str  # file for the output of the trial
    #: Where the sweep was started: relative paths are relative to it, wherever the worker runs.
    folder: str
    #: Of torch. Sums depend on it in their last digits, so it is the same for every executor.
    threads: int

    @classmethod
    def of(cls, config: RunConfig, log: Path, threads: int) -> Self:
        """Return the job of a run; it works where this process does."""
        content = config.model_dump(mode="json")
        return cls(config.digest, content, str(log), str(Path.cwd()), threads)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a trial."""

    digest: str
    state: State
    error: str = ""  # in one line; empty for a finished trial
    trace: str = ""  # traceback of a crash


class Executor(ABC):
    """Runs jobs in processes of their own, ``slots`` at a time with ``threads`` each."""

    slots: int
    threads: int

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Start a job; the caller keeps at most :attr:`slots` running."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Outcome]:
        """Return the outcomes of the jobs that ended, after waiting at most so many seconds."""

    @abstractmethod
    def stop(self) -> None:
        """Ask the running jobs to write a checkpoint and end; see :meth:`wait`."""

    @abstractmethod
    def close(self) -> None:
        """End all processes of the executor."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def run_jobs(
    executor: Executor,
    next_job: Callable[[], Job | None],
    left: Callable[[], bool],
    stop: StopRequest,
    say: Callable[[str], None],
) -> Iterator[list[Outcome]]:
    """Run jobs until none is left or running, and yield how those that ended did, again and again;
    after a stop none is started, and the running ones write a checkpoint and end.
    """
    running: set[str] = set()
    stopping = False
    while running or (left() and not stop.requested):
        while not stop.requested and len(running) < executor.slots and (job := next_job()):
            executor.submit(job)
            running.add(job.digest)
        if stop.requested and running and not stopping:
            stopping = True
            say("stopping: running trials write a checkpoint")
            executor.stop()
        ended = executor.wait(UPDATE_SECONDS)
        running -= {outcome.digest for outcome in ended}
        yield ended
