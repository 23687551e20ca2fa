"""What runs in the process of a trial, whichever executor started it."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

#: How a trial ended. "held": another process is at work in its folder. "error": the user can mend
#: it. "crash": anything else that was raised. "killed": the process died.
State = Literal["finished", "held", "interrupted", "error", "crash", "out of memory", "killed"]
FAILURES = ("error", "crash", "out of memory", "killed")


@dataclass(frozen=True)
class Job:
    """A trial as it is sent to a process.

    Attributes:
        digest: Hash of the configuration.
        config: The resolved configuration; ``output`` is the trial's folder.
        log: File that takes what the trial prints.
        folder: Where the sweep was started: relative paths of the configuration, in options of
            plug-ins as well, start there, in whichever folder and on whichever machine the worker
            runs.
        threads: Threads that torch computes with. The last digits of a sum depend on it, so every
            executor gets the same number.
    """

    digest: str
    config: dict[str, Any]
    log: str
    folder: str
    threads: int


@dataclass(frozen=True)
class Outcome:
    """What became of a trial.

    Attributes:
        digest: Which one.
        state: How it ended.
        error: One line, unless it finished.
        trace: Traceback of a crash.
    """

    digest: str
    state: State
    error: str = ""
    trace: str = ""


def begin(parent: int) -> None:
    """Prepare a worker process: import what every trial needs, and do not outlive the parent.

    Ctrl-C reaches the sweep alone (``setsid``); it tells the worker to stop.

    Args:
        parent: Process id of the sweep.
    """
    with suppress(OSError):
        os.setsid()
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    import auxlearn.training.run  # noqa: F401


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)  # a trial is at most set back to its last checkpoint


def run_job(job: Job) -> Outcome:
    """Train one trial; whatever it raises becomes the outcome."""
    with _printing_to(Path(job.log)):
        try:
            with _working_in(Path(job.folder)):
                return _train(job)
        except (KeyboardInterrupt, SystemExit) as error:
            state: State = "interrupted" if isinstance(error, KeyboardInterrupt) else "crash"
            return Outcome(job.digest, state, f"{type(error).__name__}: {error}")
        except Exception as error:
            return _failed(job.digest, error)


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    from auxlearn.errors import SweepError

    before = os.getcwd()
    try:
        os.chdir(folder)
    except OSError as error:
        raise SweepError(
            f"{platform.node()} cannot open {folder} ({error.strerror}), where the sweep was "
            "started: start it in a folder on a disk that all machines share"
        ) from None
    try:
        yield
    finally:
        os.chdir(before)


def _train(job: Job) -> Outcome:
    import torch

    from auxlearn.config import RunConfig, validate
    from auxlearn.errors import Interrupted, RunInUse
    from auxlearn.training.run import train

    if torch.get_num_threads() != job.threads:
        torch.set_num_threads(job.threads)
    config = validate(RunConfig, job.config, f"trial {job.digest}")
    try:
        train(config)
    except Interrupted as error:
        return Outcome(job.digest, "interrupted", str(error))
    except RunInUse as error:
        return Outcome(job.digest, "held", str(error))
    return Outcome(job.digest, "finished")


def _failed(digest: str, error: Exception) -> Outcome:
    from auxlearn.errors import UserError

    line = " ".join(str(error).split())
    if isinstance(error, UserError):
        return Outcome(digest, "error", line)
    trace = "".join(traceback.format_exception(error))
    state: State = "out of memory" if _is_out_of_memory(error) else "crash"
    return Outcome(digest, state, f"{type(error).__name__}: {line}".rstrip(": "), trace)


def _is_out_of_memory(error: Exception) -> bool:
    # torch has an error of its own for a GPU; on the CPU its allocator raises a RuntimeError.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Send standard output and standard error, also those of libraries in C, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    before = os.dup(1), os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in zip((1, 2), before, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(file)
