"""How long a sweep will take, from a few measured steps."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from auxlearn.errors import UserError
from auxlearn.reporting.reporter import Reporter
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import Trial

#: Steps before the clock starts, and steps that are timed.
WARM_UP, TIMED = 3, 8


@dataclass(frozen=True)
class Estimate:
    """Seconds of one trial.

    Attributes:
        seconds: If it runs through all its epochs; ``None`` if it cannot be started.
        source: "finished" trials of the same kind, or "measured" steps; else why there is none.
    """

    seconds: float | None
    source: str


def estimate_trials(
    trials: Sequence[Trial], folder: SweepFolder, cache_dir: str | None
) -> dict[str, Estimate]:
    """Return an estimate for each trial by its digest.

    Trials of a kind (everything but seed and learning rate is the same) share one. What a kind
    prepares once, such as scores, is counted for each trial, although the cache keeps it.

    Args:
        trials: What to estimate.
        folder: Has the times of trials that have finished.
        cache_dir: Of the trials.
    """
    kinds: dict[str, list[Trial]] = {}
    for trial in trials:
        content = trial.config.model_dump(mode="json", exclude={"seed", "learning_rate"})
        kinds.setdefault(repr(sorted(content.items())), []).append(trial)
    found: dict[str, Estimate] = {}
    for members in kinds.values():
        estimate = _from_finished(members, folder) or _measured(members[0], cache_dir)
        found |= {trial.digest: estimate for trial in members}
    return found


def _from_finished(members: Sequence[Trial], folder: SweepFolder) -> Estimate | None:
    from auxlearn.results.record import RunResults

    runs = [folder.run(trial.digest) for trial in members]
    seconds = [sum(RunResults.load(run.path).seconds.values()) for run in runs if run.finished]
    return Estimate(sum(seconds) / len(seconds), "finished") if seconds else None


def _measured(trial: Trial, cache_dir: str | None) -> Estimate:
    from auxlearn.training.run import train

    clock = _Clock()
    with tempfile.TemporaryDirectory(prefix="auxlearn-estimate-") as place:
        changes = {"output": f"{place}/run", "cache_dir": cache_dir, "eval_steps": WARM_UP + TIMED}
        try:
            with suppress(_EnoughError):
                train(trial.config.model_copy(update=changes), clock)
            return Estimate(clock.seconds(trial), "measured")
        except UserError as error:
            return Estimate(None, str(error))
        except Exception as error:  # as in the sweep itself, one bad trial stops no other
            line = " ".join(str(error).split())
            return Estimate(None, f"{type(error).__name__}: {line}".rstrip(": "))


class _EnoughError(Exception):
    """Ends the run whose steps are timed."""


class _Clock(Reporter):
    """Times the steps and the first evaluation of a run, then breaks it off."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.steps: list[float] = []
        self.total = 0
        self.evaluated = math.nan

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        if title != "training":
            yield lambda amount: None
            return
        self.total = total
        yield lambda amount: self.steps.append(time.perf_counter())

    def row(self, row: dict[str, Any]) -> None:
        if row["kind"] == "eval":
            self.evaluated = time.perf_counter()
            raise _EnoughError

    def seconds(self, trial: Trial) -> float:
        """Return the time of the whole run: preparation, steps, evaluations."""
        first = min(WARM_UP, len(self.steps) - 2)  # entry 0 is the start
        step = (self.steps[-1] - self.steps[first]) / (len(self.steps) - 1 - first)
        evaluation = self.evaluated - self.steps[-1]
        every = trial.config.eval_steps or self.total / trial.config.epochs
        preparation = self.steps[0] - self.begun
        return preparation + self.total * step + (self.total / every) * evaluation
