"""Runs a sweep: hands out trials, keeps failures apart, shares the work with other sweeps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from auxlearn.errors import Interrupted, RunInUse
from auxlearn.sweeps.executors import Executor
from auxlearn.sweeps.folder import SweepFolder, TrialRecord
from auxlearn.sweeps.inputs import compare_inputs, delete_leftovers
from auxlearn.sweeps.plan import SweepFile, Trial
from auxlearn.sweeps.search import number_of_trials, rounds
from auxlearn.sweeps.select import chosen_trials, mean_dev
from auxlearn.sweeps.worker import FAILURES, Outcome
from auxlearn.training.inputs import InputReader
from auxlearn.training.stopping import StopRequest

#: Seconds between two looks at what runs.
TICK = 0.5
#: Seconds between two looks at a trial that another sweep works at.
HELD_TICK = 1.0


@dataclass
class Progress:
    """How far a sweep is; a view draws it.

    Attributes:
        total: Trials that there will be.
        slots: Trials at a time.
        states: "waiting", "running", "held", "finished" or how it failed, by trial.
        seconds: Wall time of the trials that finished since this start.
        started: When each running trial began, on the monotonic clock.
    """

    total: int
    slots: int
    states: dict[str, str] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    started: dict[str, float] = field(default_factory=dict)

    def count(self, *states: str) -> int:
        """Return how many trials are in one of the states."""
        return sum(state in states for state in self.states.values())

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the trials that finished since this start; ``None`` before the first."""
        if not self.seconds:
            return None
        mean = sum(self.seconds) / len(self.seconds)
        now = time.monotonic()
        running = [max(0.0, mean - (now - begun)) for begun in self.started.values()]
        ended = self.count("finished", *FAILURES)
        waiting = self.total - ended - len(running)
        return (sum(running) + waiting * mean) / max(1, min(self.slots, waiting + len(running)))


class View:
    """Shows a sweep. This one shows nothing."""

    def message(self, text: str) -> None:
        """Say one sentence."""

    def update(self, progress: Progress) -> None:
        """Look at the progress, some times a second."""

    def ended(self, trial: Trial, outcome: Outcome, progress: Progress) -> None:
        """Say what became of a trial."""


def run_sweep(
    sweep: SweepFile,
    folder: SweepFolder,
    executor: Executor,
    *,
    retry_failed: bool = False,
    cache_dir: str | None = None,
    view: View | None = None,
) -> list[TrialRecord]:
    """Run what is left of a sweep and write its ``results.json``.

    Finished trials are not run again, killed ones go on from their checkpoint, failed ones keep
    their error until they are to be tried again; none of them holds up the others. Several sweeps
    may work in one folder at once: a trial belongs to who has claimed its run folder, and the
    others wait for it.

    Args:
        sweep: What to run.
        folder: Where.
        executor: By what; the caller closes it.
        retry_failed: Try failed trials again.
        cache_dir: Where tokens and scores are kept; shared by all trials.
        view: Shows the progress.

    Returns:
        One record for each trial.

    Raises:
        ConfigError: A cell of the sweep is no valid configuration.
        Interrupted: The user asked to stop; running trials have written checkpoints.
    """
    return _Session(sweep, folder, executor, retry_failed, cache_dir, view or View()).run()


class _Session:
    def __init__(
        self,
        sweep: SweepFile,
        folder: SweepFolder,
        executor: Executor,
        retry_failed: bool,
        cache_dir: str | None,
        view: View,
    ) -> None:
        self.sweep = sweep
        self.folder = folder
        self.executor = executor
        self.retry_failed = retry_failed
        self.cache_dir = cache_dir
        self.view = view
        self.progress = Progress(number_of_trials(sweep), executor.slots)
        self.trials: dict[str, Trial] = {}
        self._dev: dict[str, Mapping[str, float]] = {}
        self._pending: deque[Trial] = deque()
        self._held: dict[str, float] = {}
        self._told_held = False
        self._told: set[str] = set()

    def run(self) -> list[TrialRecord]:
        with StopRequest() as stop:
            for trials in rounds(self.sweep, self._score):
                if not self.trials:
                    self.folder.save_sweep(self.sweep)  # the plan holds: nothing was refused
                self._add(trials)
                self._run_round(stop)
        chosen = chosen_trials(self.sweep, list(self.trials.values()), self._dev_figures)
        records = [
            self.folder.record(trial, digest in chosen) for digest, trial in self.trials.items()
        ]
        self.folder.save_results(self.sweep, records)
        return records

    def _add(self, trials: list[Trial]) -> None:
        reader = InputReader()
        for trial in trials:
            digest = trial.digest
            self.trials[digest] = self.progress.trials[digest] = trial
            failure = self.folder.failure(digest)
            if failure and (self.retry_failed or failure.state == "killed"):
                self.folder.forget_failure(digest)
            self._compare_inputs(trial, reader)
            state = self._known_state(digest)
            self.progress.states[digest] = state or "waiting"
            if state is None:
                self._pending.append(trial)

    def _compare_inputs(self, trial: Trial, reader: InputReader) -> None:
        """Let a trial begin again whose data, encoder or code are not what it was made of."""
        if self._known_state(trial.digest) in FAILURES:
            return
        found = compare_inputs(self.folder, trial, reader)
        for line in found.missing:
            if line not in self._told:
                self._told.add(line)
                self.view.message(f"{line}: finished trials are taken as they are")
        if not found.changed:
            delete_leftovers(self.folder, trial)
            return
        try:
            place = self.folder.set_aside(trial)
        except RunInUse:  # another sweep has seen it as well
            return
        self.view.message(
            f"'{trial.title}' is trained again, as {found.changes} since: what it had come to is "
            f"in {place}"
        )

    def _known_state(self, digest: str) -> str | None:
        """Return how a trial ended, in this sweep or in another; ``None`` if it has not."""
        if self.folder.run(digest).finished:
            return "finished"
        failure = self.folder.failure(digest)
        return failure.state if failure else None

    def _run_round(self, stop: StopRequest) -> None:
        executor, progress = self.executor, self.progress
        running: set[str] = set()
        while self._pending or self._held or running:
            if stop.requested:
                self._stop(running)
            while self._pending and len(running) < executor.slots:
                trial = self._pending.popleft()
                if self._start(trial):
                    running.add(trial.digest)
            for outcome in executor.wait(TICK):
                running.discard(outcome.digest)
                self._ended(outcome)
            self._look_at_held()
            self.view.update(progress)

    def _start(self, trial: Trial) -> bool:
        digest = trial.digest
        state = self._known_state(digest)
        if state is not None:  # another sweep was quicker
            self.progress.states[digest] = state
            return False
        if self.folder.run(digest).in_use:
            self._hold(trial)
            return False
        self.progress.states[digest] = "running"
        self.progress.started[digest] = time.monotonic()
        self.executor.submit(self.folder.job(trial, self.executor.threads, self.cache_dir))
        return True

    def _ended(self, outcome: Outcome) -> None:
        trial = self.trials[outcome.digest]
        begun = self.progress.started.pop(outcome.digest)
        if outcome.state == "held":
            self._hold(trial)
            return
        self.progress.states[outcome.digest] = outcome.state
        if outcome.state == "finished":
            self.progress.seconds.append(time.monotonic() - begun)
        elif outcome.state in FAILURES:
            self.folder.save_failure(trial, outcome)
        else:
            self.progress.states[outcome.digest] = "waiting"
            self._pending.append(trial)  # interrupted: by Ctrl-C, or by a queue that takes it back
        self.view.ended(trial, outcome, self.progress)

    def _hold(self, trial: Trial) -> None:
        self.progress.states[trial.digest] = "held"
        self._held[trial.digest] = time.monotonic() + HELD_TICK
        if not self._told_held:
            holder = self.folder.run(trial.digest).holder or "another process"
            self.view.message(
                f"{holder} is at work on '{trial.title}': sharing the trials of this sweep with it"
            )
            self._told_held = True

    def _look_at_held(self) -> None:
        now = time.monotonic()
        for digest in [digest for digest, due in self._held.items() if due <= now]:
            state = self._known_state(digest)
            if state is not None or not self.folder.run(digest).in_use:
                del self._held[digest]
                self.progress.states[digest] = state or "waiting"
                if state is None:  # whoever had it is gone
                    self._pending.append(self.trials[digest])
            else:
                self._held[digest] = now + HELD_TICK

    def _stop(self, running: set[str]) -> None:
        if running:
            self.view.message("stopping: running trials write a checkpoint")
            self.executor.stop()
        while running:
            for outcome in self.executor.wait(TICK):
                running.discard(outcome.digest)
                self._ended(outcome)
        ended = self.progress.count("finished", *FAILURES)
        raise Interrupted(
            f"stopped with {ended} of {self.progress.total} trials done: the same command goes on"
        )

    def _dev_figures(self, digest: str) -> Mapping[str, float] | None:
        if digest not in self._dev and self.folder.run(digest).finished:
            self._dev[digest] = self.folder.dev_metrics(digest)
        return self._dev.get(digest)

    def _score(self, trials: list[Trial]) -> float | None:
        return mean_dev(trials, self.sweep, self._dev_figures)
