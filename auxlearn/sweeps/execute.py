"""Execution of a sweep: schedules trials, records failures, notices changed inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from auxlearn.core.cache import TensorCache
from auxlearn.core.errors import Interrupted, RunError, SweepError, plugin_title
from auxlearn.core.files import expand
from auxlearn.core.progress import Reporter
from auxlearn.core.signals import StopRequest
from auxlearn.executors.jobs import FAILURES, PASSING, Executor, Job, Outcome, run_jobs
from auxlearn.kinds.metrics import metric_title
from auxlearn.results.folder import locked_folder, recorded_inputs
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import (
    Trial,
    TrialRecord,
    chosen_trials,
    known_trials,
    mean_dev,
    number_of_trials,
    rounds,
)
from auxlearn.sweeps.sweep_file import SweepFile, dump_sweep
from auxlearn.training.checkpoint import CheckpointFolder
from auxlearn.training.inputs import InputChanges, InputReader
from auxlearn.training.pretrain import pretrain


def compare_inputs(folder: SweepFolder, trial: Trial, reader: InputReader) -> InputChanges:
    """Compare the inputs that a trial recorded, if it has begun, with the present ones."""
    run = folder.run(trial.digest)
    begun = run.finished or CheckpointFolder(run.checkpoint_path).any
    if not begun or run.in_use:
        return InputChanges()
    return reader.compare(run.with_own_data(trial.config), recorded_inputs(run.path))


def trial_state(folder: SweepFolder, trial: Trial, reader: InputReader) -> str:
    """Return "finished", "changed", "failed", or "" for a trial that a sweep would still run."""
    finished = folder.run(trial.digest).finished
    if folder.failure(trial.digest) and not finished:
        return "failed"
    if compare_inputs(folder, trial, reader).changed:
        return "changed"
    return "finished" if finished else ""


def has_ended(folder: SweepFolder, trial: Trial, retry_failed: bool = False) -> bool:
    """Return whether a sweep does not run a trial again."""
    failure = folder.failure(trial.digest)
    kept = failure is not None and not retry_failed and failure.state not in PASSING
    return folder.run(trial.digest).finished or kept


def dev_metrics(folder: SweepFolder, digest: str) -> Mapping[str, float] | None:
    """Return the metrics of a trial on dev; ``None`` if it has not finished."""
    return folder.dev_metrics(digest) if folder.run(digest).finished else None


def check_sources(sweep: SweepFile, trials: Iterable[Trial], reader: InputReader) -> None:
    """Refuse data sets and encoders that cannot be read, settings that do not fit them, and
    plug-ins that the processes of trials would not know.
    """
    pretraining = sweep.pretrain
    awaited = pretraining is not None and not (expand(pretraining.output) / "config.json").is_file()
    for trial in trials:
        trial.config.refuse_plugins_of_this_process()
        if pretraining is not None and awaited and trial.config.encoder == pretraining.output:
            continue  # its encoder is still to be pretrained by the sweep
        reader.read(trial.config)
        if sweep.select.metric:
            reader.read(trial.config.model_copy(update={"metric": sweep.select.metric}))


def run_sweep(
    sweep: SweepFile,
    folder: SweepFolder,
    executor: Executor,
    *,
    retry_failed: bool = False,
    cache_dir: str | None = None,
    reporter: Reporter | None = None,
) -> list[TrialRecord]:
    """Run the remaining trials of a sweep and write its ``results.json``. Several processes may run
    a sweep in one folder: each trial is run by the one that locks its run folder.
    """
    shown = reporter or Reporter()
    return _SweepRun(sweep, folder, executor, retry_failed, cache_dir, shown).run()


@dataclass
class _SweepRun:
    """One execution of a sweep, from its first trial to its ``results.json``."""

    sweep: SweepFile
    folder: SweepFolder
    executor: Executor
    retry_failed: bool
    cache_dir: str | None
    reporter: Reporter

    def __post_init__(self) -> None:
        self.total = number_of_trials(self.sweep)
        self.trials: dict[str, Trial] = {}
        self.ended = 0
        self._before: set[str] = set()  # trials that had ended when it began
        self._advance: Callable[[int], None] = lambda amount: None  # before the bar is shown
        self._pending: list[Trial] = []  # a trial that another process runs stays here
        self._messages: set[str] = set()
        self._spoken: set[tuple[str, ...]] = set()  # cells of which a trial has said how it read
        self._dev: dict[str, Mapping[str, float]] = {}

    def run(self) -> list[TrialRecord]:
        with StopRequest() as stop, ExitStack() as stack:
            for trials in rounds(self.sweep, self._score):
                begins = not self.trials
                if begins:
                    ended = partial(has_ended, self.folder, retry_failed=self.retry_failed)
                    known, whole = known_trials(self.sweep, ended, self._dev_metrics)
                    self._before = {trial.digest for trial in known if ended(trial)}
                    self.total = len(known) if whole else self.total
                reader = self._add(trials)
                if begins:  # refuse what would fail trials, before the first
                    if self._pending:
                        TensorCache(expand(self.cache_dir) if self.cache_dir else None)
                    check_sources(self.sweep, self._pending, reader)
                    stack.enter_context(self.folder.locked(dump_sweep(self.sweep)))
                    if self._pending and self.sweep.pretrain is not None:
                        settings = self.sweep.pretrain.model_dump(exclude_unset=True)
                        pretrain(**settings, reporter=self.reporter)
                    title = "trials of the sweep"
                    bar = self.reporter.progress_of_rest(title, self.total, len(self._before))
                    self._advance = stack.enter_context(bar)
                self.folder.save_plan(list(self.trials.values()))
                if begins:  # no configuration was refused
                    self.folder.save_text("sweep.yaml", dump_sweep(self.sweep))
                self._run_round(stop)
        begun = {path.parent.name for path in self.folder.path.glob("trials/*/config.yaml")}
        if others := len(begun - self.trials.keys()):
            self.reporter.message(
                f"{self.folder.path} has {others} trials of other plans, which the results leave "
                "out: delete them, or give each plan an --output of its own"
            )
        if repeated := self.total - len(self.trials) if self.sweep.search else 0:
            self.reporter.message(
                f"{repeated} of the {self.total} trials that the search has suggested repeat "
                "others, and are not run again"
            )
        trials = list(self.trials.values())
        chosen = chosen_trials(self.sweep, trials, self._dev_metrics)
        records = [self.folder.record(trial, trial.digest in chosen) for trial in trials]
        self.folder.save_results(self.sweep, records)
        return records

    def _add(self, trials: list[Trial]) -> InputReader:
        reader = InputReader()
        for trial in trials:
            self.trials[trial.digest] = trial
            failure = self.folder.failure(trial.digest)
            if failure and (self.retry_failed or failure.state in PASSING):
                self.folder.delete_failure(trial.digest)
            state = self._state(trial)
            if state not in FAILURES:
                self._refuse_changed(trial, reader)
            if state is None:
                self._pending.append(trial)
            else:
                self._count(trial)
                run = self.folder.run(trial.digest)
                if state == "finished" and run.lock_path.exists():  # killed just after the results
                    with suppress(RunError), locked_folder(run.path):
                        CheckpointFolder(run.checkpoint_path).delete()
        if failed := sum(self._state(trial) in FAILURES for trial in trials):
            self._say_once(
                f"{failed} trials failed before and are not tried again: --retry-failed "
                "(retry_failed=True) runs them"
            )
        return reader

    def _refuse_changed(self, trial: Trial, reader: InputReader) -> None:
        """Refuse a trial that has begun with other data, another encoder or other code."""
        inputs = compare_inputs(self.folder, trial, reader)
        for line in inputs.missing:
            self._say_once(f"{line}: finished trials are kept")
        if inputs.changed:
            raise SweepError(
                f"'{trial.title}' cannot be part of the sweep, as {inputs.changes} since it began: "
                f"choose another --output, or delete {self.folder.run(trial.digest).path} to train "
                "it again"
            )

    def _state(self, trial: Trial) -> str | None:
        """Return how a trial ended, in this process or another; ``None`` if it has not ended."""
        if self.folder.run(trial.digest).finished:
            return "finished"
        failure = self.folder.failure(trial.digest)
        return failure.state if failure else None

    def _run_round(self, stop: StopRequest) -> None:
        def left() -> bool:
            return bool(self._pending)

        for outcomes in run_jobs(self.executor, self._next_job, left, stop, self.reporter.message):
            for outcome in outcomes:
                self._take(outcome)
        if self._pending:
            raise Interrupted(
                f"stopped with {self.ended} of {self.total} trials done: "
                "the same command resumes the sweep"
            )

    def _next_job(self) -> Job | None:
        """Return the next trial that no other process has run or is running."""
        for trial in list(self._pending):
            run = self.folder.run(trial.digest)
            state = self._state(trial)
            if state is None and run.in_use:
                owner = run.lock_owner or "another process"
                self._say_once(
                    f"{owner} is running '{trial.title}': sharing the trials of this sweep with it"
                )
                continue
            self._pending.remove(trial)
            if state is None:
                return self.folder.job(trial, self.executor.threads, self.cache_dir)
            self._count(trial)
        return None

    def _take(self, outcome: Outcome) -> None:
        trial = self.trials[outcome.digest]
        if outcome.state in ("locked", "interrupted"):  # by another process, Ctrl-C or a cluster
            self._pending.append(trial)
            return
        if outcome.state == "finished" and not self.folder.run(outcome.digest).finished:
            error = f"{plugin_title(self.executor)} says that it has finished: it has no results"
            outcome = replace(outcome, state="crash", error=error)
        cell = tuple(trial.cell.values())
        if cell not in self._spoken and outcome.messages:
            self._spoken.add(cell)
            for line in outcome.messages:
                self._say_once(line)
        self._count(trial)
        parts = [f"{self.ended}/{self.total}", outcome.state, trial.title]
        if outcome.state in FAILURES:
            self.folder.save_failure(trial, outcome)
            parts.append(outcome.error)
        elif dev := self._dev_metrics(trial.digest):
            metric = trial.config.metric
            parts.append(f"dev {metric_title(metric)} {dev[metric]:.3f}")
        self.reporter.message("  ".join(parts))

    def _count(self, trial: Trial) -> None:
        self.ended += 1
        if trial.digest not in self._before:
            self._advance(1)

    def _say_once(self, text: str) -> None:
        if text not in self._messages:
            self._messages.add(text)
            self.reporter.message(text)

    def _dev_metrics(self, digest: str) -> Mapping[str, float] | None:
        if digest not in self._dev and (found := dev_metrics(self.folder, digest)):
            self._dev[digest] = found
        return self._dev.get(digest)

    def _score(self, trials: list[Trial]) -> float | None:
        return mean_dev(trials, self.sweep, self._dev_metrics)
