"""Duration of a sweep: from finished trials, or from a few timed steps."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from auxlearn.core.config import RunConfig, validate
from auxlearn.core.errors import ConfigError, Interrupted, UserError
from auxlearn.core.progress import Reporter
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import Trial, expand_cells, join_settings
from auxlearn.sweeps.sweep_file import SweepFile

#: Steps before the timing, and timed steps.
WARM_UP, TIMED = 3, 8


@dataclass(frozen=True)
class Estimate:
    """Estimated duration of one trial.

    Attributes:
        seconds: Duration if it runs all its epochs; ``None`` if it cannot be started.
        source: "finished" trials of the same kind, or "measured" steps; otherwise the error.
    """

    seconds: float | None
    source: str


def estimate_trials(
    trials: Sequence[Trial], folder: SweepFolder, cache_dir: str | None, threads: int
) -> Iterator[tuple[list[Trial], Estimate]]:
    """Yield the trials of each kind with their estimate, one kind after the other.

    Trials of one kind, which differ in seed, fold and learning rate only, share an estimate.
    Preparation whose result is cached, such as scoring, is nevertheless counted for each trial.
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
            line = " ".join(str(error).split())
            return Estimate(None, f"{type(error).__name__}: {line}".rstrip(": "))


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


class Expected:
    """The settings that a sweep file gives to its trials."""

    def __init__(self, sweep: SweepFile) -> None:
        self._axes: tuple[str, ...] = ()
        self._settings: dict[tuple[str, ...], dict[str, Any]] = {}
        for cell in expand_cells(sweep):
            self._axes = tuple(cell.labels)
            try:
                given = validate(RunConfig, join_settings(cell.settings, ""), "")
            except ConfigError:  # with the values of a search it may be valid
                continue
            searched = {
                key.partition(".")[0] for key in (sweep.search.space if sweep.search else ())
            }
            self._settings[tuple(cell.labels.values())] = {
                name: value
                for name, value in given.identity().items()
                if name in given.model_fields_set - searched
            }

    def differing(
        self, cell: Mapping[str, str], seed: int, config: Mapping[str, Any]
    ) -> str | None:
        """Return the name of a setting of a run that is not that of its trial, if there is one."""
        settings = self._settings.get(tuple(cell.get(axis, "") for axis in self._axes), {})
        try:
            found = validate(RunConfig, dict(config), "").identity()
        except ConfigError:  # of another version, or with the options of a plug-in
            found = {"seed": config["seed"]}
        for name, value in {**settings, "seed": seed}.items():
            if name in found and not _given(value, found[name]):
                return name
        return None


def _given(value: Any, found: Any) -> bool:
    """Return whether a setting is as it was given; defaults are filled in, also of options."""
    if isinstance(value, dict) and isinstance(found, dict):
        return all(key in found and _given(one, found[key]) for key, one in value.items())
    if isinstance(value, list) and isinstance(found, list):
        return len(value) == len(found) and all(map(_given, value, found))
    if isinstance(value, int | float) and isinstance(found, int | float):
        return value == found
    # Of other types, the value was read as something else than it was given.
    return type(value) is not type(found) or bool(value == found)
