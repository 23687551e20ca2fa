"""A trial as it is sent to a process, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

#: How a trial ended. "locked": another process is running in its folder. "error": an error that the
#: user can fix. "crash": any other exception. "killed": the process died.
State = Literal["finished", "locked", "interrupted", "error", "crash", "out of memory", "killed"]
FAILURES = ("error", "crash", "out of memory", "killed")


@dataclass(frozen=True)
class Job:
    """A trial as it is sent to a process.

    Attributes:
        digest: Hash of the configuration.
        config: The resolved configuration; ``output`` is the trial's folder.
        log: File for the output of the trial.
        folder: Working directory that the sweep was started in. Relative paths of the
            configuration and of plug-in options are relative to it, wherever the worker runs.
        threads: CPU threads of torch. Sums depend on it in their last digits, so it is the same
            for every executor.
    """

    digest: str
    config: dict[str, Any]
    log: str
    folder: str
    threads: int


@dataclass(frozen=True)
class Outcome:
    """Outcome of a trial.

    Attributes:
        digest: Hash of its configuration.
        state: How it ended.
        error: Error message in one line; empty for a finished trial.
        trace: Traceback of a crash.
    """

    digest: str
    state: State
    error: str = ""
    trace: str = ""
