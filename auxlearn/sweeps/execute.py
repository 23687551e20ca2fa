"""Execution of a sweep: schedules trials, records failures, notices changed inputs."""

from __future__ import annotations

import json
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean

from auxlearn.core.cache import check_cache_folder
from auxlearn.core.errors import Interrupted, RunInUse
from auxlearn.core.files import expand
from auxlearn.core.progress import Reporter
from auxlearn.core.signals import StopRequest
from auxlearn.executors.jobs import FAILURES, PASSING, Executor, Job, Outcome, run_jobs
from auxlearn.results.folder import recorded_inputs
from auxlearn.results.record import RunResults
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import (
    Trial,
    TrialRecord,
    chosen_trials,
    mean_dev,
    number_of_trials,
    rounds,
)
from auxlearn.sweeps.sweep_file import SweepFile, dump_sweep
from auxlearn.sweeps.view import SweepProgress, View
from auxlearn.training.checkpoint import CheckpointFolder
from auxlearn.training.inputs import FILE, Comparison, InputReader


def compare_inputs(folder: SweepFolder, trial: Trial, reader: InputReader) -> Comparison:
    """Compare the inputs that a trial recorded, if it has begun, with the present ones."""
    run = folder.run(trial.digest)
    begun = run.finished or CheckpointFolder(run.checkpoint_path).any
    if not begun or run.in_use:
        return Comparison()
    recorded = recorded_inputs(run.path)
    if recorded is None:
        return Comparison(missing=(f"some trials have no {FILE} to compare their data with",))
    return reader.compare(run.with_own_data(trial.config), recorded)


def trial_state(folder: SweepFolder, trial: Trial, reader: InputReader) -> str:
    """Return "finished", "changed", "failed", or "" for a trial that a sweep would still run."""
    finished = folder.run(trial.digest).finished
    if folder.failure(trial.digest) and not finished:
        return "failed"
    if compare_inputs(folder, trial, reader).changed:
        return "changed"
    return "finished" if finished else ""


def known_durations(folder: SweepFolder, trials: Sequence[Trial]) -> dict[str, float]:
    """Return the mean seconds of the finished trials that differ from a trial in seed, fold and
    learning rate only, by the digests of those trials that have such ones.
    """
    kinds: dict[str, list[str]] = defaultdict(list)
    for trial in trials:
        content = trial.config.model_dump(mode="json", exclude={"seed", "fold", "learning_rate"})
        kinds[json.dumps(content)].append(trial.digest)
    found: dict[str, float] = {}
    for digests in kinds.values():
        runs = [run for digest in digests if (run := folder.run(digest)).finished]
        if runs:
            seconds = fmean(sum(RunResults.load(run.path).seconds.values()) for run in runs)
            found |= dict.fromkeys(digests, seconds)
    return found


def check_sources(sweep: SweepFile, trials: Iterable[Trial], reader: InputReader) -> None:
    """Refuse data sets and encoders that cannot be read, and settings that do not fit them."""
    for trial in trials:
        reader.read(trial.config)
        if sweep.select.metric:
            reader.read(trial.config.model_copy(update={"metric": sweep.select.metric}))


#: Seconds between two checks of a trial that another process has locked.
LOCK_CHECK_SECONDS = 1.0


def run_sweep(
    sweep: SweepFile,
    folder: SweepFolder,
    executor: Executor,
    *,
    retry_failed: bool = False,
    cache_dir: str | None = None,
    view: View | None = None,
) -> list[TrialRecord]:
    """Run the remaining trials of a sweep and write its ``results.json``. Several processes may run
    a sweep in one folder: each trial is run by the one that locks its run folder.
    """
    shown = view or View(Reporter())
    return _SweepRun(sweep, folder, executor, retry_failed, cache_dir, shown).run()


@dataclass
class _SweepRun:
    """One execution of a sweep, from its first trial to its ``results.json``."""

    sweep: SweepFile
    folder: SweepFolder
    executor: Executor
    retry_failed: bool
    cache_dir: str | None
    view: View

    def __post_init__(self) -> None:
        self.progress = SweepProgress(number_of_trials(self.sweep), self.executor.slots)
        self.trials = self.progress.trials
        self._dev: dict[str, Mapping[str, float]] = {}
        self._pending: deque[Trial] = deque()
        self._locked: dict[str, float] = {}
        self._said: set[str] = set()

    def run(self) -> list[TrialRecord]:
        with StopRequest() as stop:
            for trials in rounds(self.sweep, self._score):
                begins = not self.trials
                reader = self._add(trials)
                if begins:  # refuse what would fail trials, before the first
                    if self._pending:
                        check_cache_folder(
                            None if self.cache_dir is None else expand(self.cache_dir)
                        )
                    check_sources(self.sweep, self._pending, reader)
                self.folder.save_plan(list(self.trials.values()))
                if begins:  # no configuration was refused
                    self.folder.save_text("sweep.yaml", dump_sweep(self.sweep))
                self._run_round(stop)
        chosen = chosen_trials(self.sweep, list(self.trials.values()), self._dev_metrics)
        records = [
            self.folder.record(trial, digest in chosen) for digest, trial in self.trials.items()
        ]
        self.folder.save_results(self.sweep, records)
        return records

    def _add(self, trials: list[Trial]) -> InputReader:
        reader = InputReader()
        for trial in trials:
            digest = trial.digest
            self.trials[digest] = trial
            failure = self.folder.failure(digest)
            if failure and (self.retry_failed or failure.state in PASSING):
                self.folder.delete_failure(digest)
            self._compare_inputs(trial, reader)
            state = self._known_state(digest)
            self.progress.states[digest] = state or "waiting"
            if state is None:
                self._pending.append(trial)
        return reader

    def _compare_inputs(self, trial: Trial, reader: InputReader) -> None:
        """Move a trial aside, to be trained again, if its data, encoder or code have changed."""
        if self._known_state(trial.digest) in FAILURES:
            return
        found = compare_inputs(self.folder, trial, reader)
        for line in found.missing:
            self._say_once(line, f"{line}: finished trials are kept")
        if not found.changed:
            run = self.folder.run(trial.digest)
            if run.finished and run.checkpoint_path.exists():  # killed just after its results
                with suppress(RunInUse), run.locked(trial.config):
                    CheckpointFolder(run.checkpoint_path).delete()
            return
        try:
            place = self.folder.set_aside(trial)
        except RunInUse:  # another process is doing the same
            return
        self.view.message(
            f"'{trial.title}' is trained again, as {found.changes} since: its earlier results are "
            f"in {place}"
        )

    def _known_state(self, digest: str) -> str | None:
        """Return how a trial ended, in this process or another; ``None`` if it has not ended."""
        if self.folder.run(digest).finished:
            return "finished"
        failure = self.folder.failure(digest)
        return failure.state if failure else None

    def _run_round(self, stop: StopRequest) -> None:
        def left() -> bool:
            return bool(self._pending or self._locked)

        for outcomes in run_jobs(self.executor, self._next_job, left, stop, self.view.message):
            for outcome in outcomes:
                self._ended(outcome)
            self._check_locked()
            self.view.update(self.progress)
        if left():
            raise Interrupted(
                f"stopped with {self.progress.ended} of {self.progress.total} trials done: "
                "the same command resumes the sweep"
            )

    def _next_job(self) -> Job | None:
        """Return the next trial that no other process has run or is running."""
        while self._pending:
            trial = self._pending.popleft()
            digest = trial.digest
            if (state := self._known_state(digest)) is not None:
                self.progress.states[digest] = state
            elif self.folder.run(digest).in_use:
                self._wait_for_owner(trial)
            else:
                self.progress.states[digest] = "running"
                self.progress.started[digest] = time.monotonic()
                return self.folder.job(trial, self.executor.threads, self.cache_dir)
        return None

    def _ended(self, outcome: Outcome) -> None:
        trial = self.trials[outcome.digest]
        begun = self.progress.started.pop(outcome.digest)
        if outcome.state == "locked":
            self._wait_for_owner(trial)
            return
        self.progress.states[outcome.digest] = outcome.state
        if outcome.state == "finished":
            self.progress.seconds.append(time.monotonic() - begun)
        elif outcome.state in FAILURES:
            self.folder.save_failure(trial, outcome)
        else:
            self.progress.states[outcome.digest] = "waiting"
            self._pending.append(trial)  # interrupted by Ctrl-C or by the queue of a cluster
        self.view.trial_ended(trial, outcome, self.progress)

    def _wait_for_owner(self, trial: Trial) -> None:
        self.progress.states[trial.digest] = "locked"
        self._locked[trial.digest] = time.monotonic() + LOCK_CHECK_SECONDS
        owner = self.folder.run(trial.digest).lock_owner or "another process"
        self._say_once(
            "lock", f"{owner} is running '{trial.title}': sharing the trials of this sweep with it"
        )

    def _say_once(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self.view.message(text)

    def _check_locked(self) -> None:
        now = time.monotonic()
        for digest in [digest for digest, due in self._locked.items() if due <= now]:
            state = self._known_state(digest)
            if state is None and self.folder.run(digest).in_use:
                self._locked[digest] = now + LOCK_CHECK_SECONDS
                continue
            del self._locked[digest]
            self.progress.states[digest] = state or "waiting"
            if state is None:  # the lock owner ended without a result
                self._pending.append(self.trials[digest])

    def _dev_metrics(self, digest: str) -> Mapping[str, float] | None:
        if digest not in self._dev and self.folder.run(digest).finished:
            self._dev[digest] = self.folder.dev_metrics(digest)
        return self._dev.get(digest)

    def _score(self, trials: list[Trial]) -> float | None:
        return mean_dev(trials, self.sweep, self._dev_metrics)
