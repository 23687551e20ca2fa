"""Interface of the engines that run the trials of a sweep."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from auxlearn.sweeps.jobs import Job, Outcome


class Executor(ABC):
    """Runs the jobs of a sweep in processes of their own, ``slots`` at a time with ``threads``
    each.
    """

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


def first_line(error: BaseException) -> str:
    """Return the first line of an error message that is not blank; "" if there is none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
