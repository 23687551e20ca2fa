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
    """A trial as it is sent to a process."""

    digest: str
    config: dict[str, Any]  # the resolved configuration; ``output`` is the trial's folder
    log: str  # file for the output of the trial
    #: Where the sweep was started: relative paths are relative to it, wherever the worker runs.
    folder: str
    #: Of torch. Sums depend on it in their last digits, so it is the same for every executor.
    threads: int


@dataclass(frozen=True)
class Outcome:
    """Outcome of a trial."""

    digest: str
    state: State
    error: str = ""  # in one line; empty for a finished trial
    trace: str = ""  # traceback of a crash
