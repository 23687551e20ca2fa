"""Jobs: runs as they are sent to processes, how they ended, and the engines that run them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import ValidationError

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, PluginError, blamed_on, describe, plugin_title
from auxlearn.core.progress import Reporter
from auxlearn.core.registry import EXECUTORS
from auxlearn.core.settings import PluginChoice
from auxlearn.core.signals import StopRequest
from auxlearn.core.validation import Settings, validate

#: How a run ended. "locked": another process is running in its folder. "error": an error that the
#: user can fix. "crash": any other exception. "killed": the process died.
State = Literal[
    "finished", "locked", "interrupted", "error", "crash", "out of memory", "killed", "disk full"
]
#: Trains a resolved configuration, and reports to the log.
Train = Callable[[RunConfig, Reporter], object]
FAILURES = ("error", "crash", "out of memory", "killed", "disk full")
#: Those that are not of the run: the same command runs it again.
PASSING = ("killed", "disk full")

#: Seconds between two looks at running jobs.
UPDATE_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """A run as it is sent to a process."""

    digest: str
    train: Train  # a function of a module, which the process imports
    config: dict[str, Any]  # the resolved configuration; ``output`` is the run folder
    log: str  # file for the output of the run
    #: Where the sweep was started: relative paths are relative to it, wherever the worker runs.
    folder: str
    #: Of torch. Sums depend on it in their last digits, so it is the same for every executor.
    threads: int

    @classmethod
    def of(cls, config: RunConfig, train: Train, log: Path, threads: int) -> Self:
        """Return the job of a run; it works where this process does.

        Raises:
            ConfigError: The process of the job would not know a plug-in of the run.
        """
        config.refuse_plugins_of_this_process()
        content = config.model_dump(mode="json")
        return cls(config.digest, train, content, str(log), str(Path.cwd()), threads)


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    digest: str
    state: State
    error: str = ""  # in one line; empty for a finished run
    trace: str = ""  # traceback of a crash
    messages: tuple[str, ...] = ()  # what a finished run has said of data, encoder and training


class Executor(ABC):
    """Runs jobs in processes of their own, ``slots`` at a time with ``threads`` each.

    One that is registered by ``register_executor`` is made as ``cls(jobs=..., threads=...,
    folder=..., **options)``: what the user has asked for, ``None`` if nothing, the folder of the
    sweep, and the fields of its ``Options``.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Settings]] = Settings

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
        with blamed_on(self, "close"):
            self.close()


def executor_maker(
    executor: str | Mapping[str, Any] | Executor, jobs: int | None, threads: int | None
) -> Callable[[Path], AbstractContextManager[Executor]]:
    """Check an executor given by name, options or object; return what makes and closes it."""
    if isinstance(executor, Executor):
        if jobs is not None or threads is not None:
            raise ConfigError(
                "jobs and threads are those of the executor that is given: leave them out, or name "
                "an executor"
            )
        return lambda folder: nullcontext(executor)
    try:
        choice = PluginChoice.model_validate(executor)
    except ValidationError:
        raise ConfigError(
            f"executor: {describe(executor)} is no name, nor one name with its options: write "
            "local, or {slurm: {partition: gpu}}"
        ) from None
    cls, options = EXECUTORS.get(choice.name), EXECUTORS.options(choice.name)
    settings: Settings = validate(options, choice.options, f"executor {choice.name}")
    asked = {"jobs": jobs, "threads": threads, **settings.model_dump()}

    def make(folder: Path) -> Executor:
        with blamed_on(cls, "__init__"):
            made: Executor = cls(folder=folder, **asked)
            return made

    return make


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
    for name in ("slots", "threads"):
        count = getattr(executor, name, None)
        if not isinstance(count, int) or count < 1:
            raise PluginError(
                f"{name} of {plugin_title(executor)} is {describe(count)}: set a whole number from "
                "1 on"
            )
    running: set[str] = set()
    stopping = False
    while running or (left() and not stop.requested):
        while not stop.requested and len(running) < executor.slots and (job := next_job()):
            with blamed_on(executor, "submit"):
                executor.submit(job)
            running.add(job.digest)
        if stop.requested and running and not stopping:
            stopping = True
            say("stopping: what is running writes a checkpoint")
            with blamed_on(executor, "stop"):
                executor.stop()
        with blamed_on(executor, "wait"):
            ended = executor.wait(UPDATE_SECONDS)
        _check_outcomes(executor, ended, running)
        running -= {outcome.digest for outcome in ended}
        yield ended


def _check_outcomes(executor: Executor, ended: object, running: Collection[str]) -> None:
    """Refuse what ``wait`` returns unless it is a list with outcomes of running jobs."""
    if not isinstance(ended, list) or not all(
        isinstance(outcome, Outcome)
        and outcome.digest in running
        and outcome.state in get_args(State)
        and isinstance(outcome.error, str)
        for outcome in ended
    ):
        raise PluginError(
            f"wait of {plugin_title(executor)} returns {describe(ended)}: return a list with the "
            "Outcome of each submitted job that has ended since"
        )
