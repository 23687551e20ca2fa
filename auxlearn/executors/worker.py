"""Worker process: runs one job and returns its outcome, whichever executor started it."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, suppress
from pathlib import Path

from auxlearn.executors.jobs import Job, Outcome, State

#: Signals of the terminal, which go to all of its processes; a worker starts with them blocked.
OF_THE_PARENT = (signal.SIGINT, signal.SIGHUP)


def start_worker(parent: int) -> None:
    """Leave signals of the terminal to the parent process, and end with it."""
    with suppress(OSError):
        os.setsid()
    handlers = [signal.signal(number, signal.SIG_IGN) for number in OF_THE_PARENT]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_PARENT)  # those that came so far are ignored
    for number, handler in zip(OF_THE_PARENT, handlers, strict=True):
        signal.signal(number, handler)
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)  # the run resumes from its last checkpoint


def run_job(job: Job) -> Outcome:
    """Run one job; exceptions become its outcome."""
    with _printing_to(Path(job.log)):
        try:
            with _working_in(job.folder):
                return _train(job)
        except (KeyboardInterrupt, SystemExit) as error:
            state: State = "interrupted" if isinstance(error, KeyboardInterrupt) else "crash"
            return Outcome(job.digest, state, f"{type(error).__name__}: {error}")
        except Exception as error:
            return _failed(job.digest, error)


@contextmanager
def _working_in(folder: str) -> Iterator[None]:
    from auxlearn.core.errors import SweepError

    with ExitStack() as stack:
        try:
            stack.enter_context(chdir(folder))
        except OSError as error:
            raise SweepError(
                f"{platform.node()} cannot open {folder} ({error.strerror}), where the job was "
                "begun: begin it in a folder on a disk that all machines share"
            ) from None
        yield


def _train(job: Job) -> Outcome:
    import torch

    from auxlearn.core.config import RunConfig
    from auxlearn.core.errors import Interrupted, RunInUse
    from auxlearn.core.progress import LogReporter
    from auxlearn.core.validation import validate

    if torch.get_num_threads() != job.threads:
        torch.set_num_threads(job.threads)
    config = validate(RunConfig, job.config, f"run {job.digest}")
    reporter = LogReporter(Path(job.log))
    try:
        job.train(config.resolved(), reporter)  # which imports its plug-ins
    except Interrupted as error:
        return Outcome(job.digest, "interrupted", str(error))
    except RunInUse as error:
        return Outcome(job.digest, "locked", str(error))
    return Outcome(job.digest, "finished", messages=tuple(reporter.messages))


def _failed(digest: str, error: Exception) -> Outcome:
    from auxlearn.core.errors import NO_ROOM, PluginError, UserError, is_out_of_memory, named_fault

    if any(os.strerror(code) in str(error) for code in NO_ROOM):
        return Outcome(digest, "disk full", named_fault(error))
    raised = isinstance(error, PluginError) and error.__cause__ is not None
    if isinstance(error, UserError) and not raised:
        return Outcome(digest, "error", " ".join(str(error).split()))
    trace = "".join(traceback.format_exception(error))
    state: State = "out of memory" if is_out_of_memory(error) else "crash"
    return Outcome(digest, state, named_fault(error), trace)


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Redirect standard output and standard error to a file, also those of C libraries."""
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
