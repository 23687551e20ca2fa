"""Duration of a sweep: from finished trials, or from a few timed steps."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from auxlearn.core.errors import Interrupted, UserError, named_fault
from auxlearn.core.progress import Reporter
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import Trial

#: Steps before the timing, and timed steps.
WARM_UP, TIMED = 3, 8


@dataclass(frozen=True)
class Estimate:
    """Estimated duration of one trial."""

    seconds: float | None  # if it runs all its epochs; ``None`` if it cannot be started
    source: str  # "finished" trials of the same kind, or "measured" steps; otherwise the error.


def estimate_trials(
    trials: Sequence[Trial], folder: SweepFolder, cache_dir: str | None, threads: int
) -> Iterator[tuple[list[Trial], Estimate]]:
    """Yield the trials that differ in seed, fold and learning rate only with their estimate, which
    counts preparation for each of them even if its result is cached.
    """
    import torch

    kinds: dict[str, list[Trial]] = {}
    for trial in trials:
        content = trial.config.model_dump(mode="json", exclude={"seed", "fold", "learning_rate"})
        kinds.setdefault(repr(sorted(content.items())), []).append(trial)
    for members in kinds.values():
        found = _from_finished(members, folder)
        if found is None:
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                found = _measured(members[0], cache_dir)
            finally:
                torch.set_num_threads(before)
        yield members, found


def _from_finished(members: Sequence[Trial], folder: SweepFolder) -> Estimate | None:
    from auxlearn.results.record import RunResults

    runs = [folder.run(trial.digest) for trial in members]
    seconds = [sum(RunResults.load(run.path).seconds.values()) for run in runs if run.finished]
    return Estimate(sum(seconds) / len(seconds), "finished") if seconds else None


def _measured(trial: Trial, cache_dir: str | None) -> Estimate:
    from auxlearn.sweeps.branches import first_branch, most_branches
    from auxlearn.training.run import train

    clock = _Clock()
    config, runs = first_branch(trial.config), most_branches(trial.config)
    with tempfile.TemporaryDirectory(prefix="auxlearn-estimate-") as place:
        changes = {
            "output": f"{place}/run",
            "cache_dir": cache_dir,
            "eval_steps": WARM_UP + TIMED,
            "report_to": (),
        }
        try:
            with suppress(_EnoughError):
                train(config.model_copy(update=changes), clock)
            return Estimate(runs * clock.seconds(trial), "measured")
        except Interrupted:
            raise
        except UserError as error:
            return Estimate(None, str(error))
        except Exception as error:  # as in the sweep, a failing trial does not stop the others
            return Estimate(None, named_fault(error))


class _EnoughError(Exception):
    """Raised to end the run whose steps are timed."""


class _Clock(Reporter):
    """Times the steps and the first evaluation of a run, then ends it."""

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

    def log(self, entry: dict[str, Any]) -> None:
        if entry["kind"] == "eval":
            self.evaluated = time.perf_counter()
            raise _EnoughError

    def seconds(self, trial: Trial) -> float:
        """Return the estimated seconds of the whole run: preparation, steps, evaluations."""
        first = min(WARM_UP, len(self.steps) - 2)  # entry 0 is the start
        step = (self.steps[-1] - self.steps[first]) / (len(self.steps) - 1 - first)
        evaluation = self.evaluated - self.steps[-1]
        every = trial.config.eval_steps or self.total / trial.config.epochs
        preparation = self.steps[0] - self.begun
        return preparation + self.total * step + (self.total / every) * evaluation
