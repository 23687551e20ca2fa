"""The folder of a sweep and its files.

=====================  ==========================================================
``sweep.yaml``         the sweep file
``plan.json``          the trials so far, so that an unfinished sweep can be compared
``trials/DIGEST/``     one run folder for each trial
``failures/``          the error of each failed trial
``logs/``              the output of each trial
``results.json``       metrics of all trials; identical however often the sweep was
                       stopped, as times and hardware are kept in the run folders only
=====================  ==========================================================
"""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import SweepError, shorten
from auxlearn.core.files import (
    cannot_write,
    delete_parts,
    from_here,
    read_record,
    write_checked_json,
    write_json,
    write_text,
)
from auxlearn.core.locks import Lock, LockHeld, holder, is_held
from auxlearn.core.settings import Columns
from auxlearn.data.dataset import TextDataset
from auxlearn.data.memory import save_folder
from auxlearn.executors.jobs import Job, Outcome
from auxlearn.results.folder import RunFolder, check_contained
from auxlearn.results.outputs import SWEEP_NAMES, check_output_folder, is_owner
from auxlearn.results.record import RunResults, recorded_files
from auxlearn.sweeps.plan import Digest, Trial, TrialRecord
from auxlearn.sweeps.sweep_file import SETTING_AXES, SweepFile, read_sweep
from auxlearn.training.train import train_resolved

if TYPE_CHECKING:
    import pandas


RESULTS = "results.json"
PLAN = "plan.json"
_RUN_AGAIN = "run the same `auxlearn sweep` again"


@dataclass
class _Planned:
    """A trial in ``plan.json``."""

    digest: Digest
    cell: dict[str, str]
    seed: int
    dataset: str
    encoder: str
    metric: str


@dataclass
class _Plan:
    """What ``plan.json`` holds."""

    trials: list[_Planned]


class SweepFolder:
    """Access to the files of a sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Check, before any work is done, that a sweep can use the folder."""
        check_output_folder(self.path, "sweep")
        if not self.path.is_dir() or is_owner(self.path, "sweep"):
            return
        # Left by a kill at the very start; a sweep.yaml alone is a user's own.
        left = SWEEP_NAMES - {"sweep.yaml"}
        for name in sorted(entry.name for entry in self.path.iterdir()):
            if not name.startswith(".") and name not in left:
                raise SweepError(
                    f"{self.path} is not empty and is not the folder of a sweep (it holds "
                    f"{shorten(name)}): choose another --output"
                )

    def run(self, digest: str) -> RunFolder:
        return RunFolder(self.path / "trials" / digest)

    def job(self, trial: Trial, threads: int, cache_dir: str | None) -> Job:
        """Return a trial as it is sent to a process."""
        output = str(self.run(trial.digest).path.resolve())
        config = trial.config.model_copy(update={"output": output, "cache_dir": cache_dir})
        log = self.path.resolve() / "logs" / f"{trial.digest}.log"
        return Job.of(config, train_resolved, log, threads)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Let one process write at a time, and delete what killed ones have left."""
        lock = Lock(self.path / ".lock")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(waiting=lambda owner: None)
        except OSError as error:
            raise cannot_write(lock.path, error) from None
        try:
            for folder in (self.path, self.path / "failures"):
                delete_parts(folder, recursive=False)
            yield
        finally:
            lock.release()

    @contextmanager
    def locked(self, plan: str) -> Iterator[None]:
        """Refuse the folder while a sweep of another plan runs in it: the table at its end would be
        that of either. Processes of one plan share its trials, and each has a lock.
        """
        ours = f".plan-{sha256(plan.encode()).hexdigest()[:12]}-"
        lock = Lock(self.path / f"{ours}{os.getpid()}.lock")
        try:
            with self._writing():
                with suppress(LockHeld):  # by a process of that number on another machine
                    lock.acquire()
                for other in self.path.glob(".plan-*.lock"):
                    if not is_held(other):  # left by a kill
                        other.unlink(missing_ok=True)
                    elif not other.name.startswith(ours):
                        raise SweepError(
                            f"{holder(other) or 'another process'} runs a sweep of another plan in "
                            f"{self.path}: wait until it has ended, or choose another --output"
                        )
            yield
        finally:
            lock.release()

    def save_data(self, dataset: TextDataset, place: Path, columns: Columns) -> None:
        """Save data that are in memory in the folder, unless another process has done so."""
        with self._writing():
            if not place.is_dir():
                save_folder(dataset, place, columns)

    def save_text(self, name: str, content: str) -> None:
        """Write a text, such as a report on the sweep, into its folder."""
        with self._writing():
            write_text(self.path / name, content)

    def read_sweep(self) -> SweepFile:
        if not (self.path / "sweep.yaml").is_file():
            raise SweepError(f"{self.path} is not the folder of a sweep: it holds no sweep.yaml")
        check_contained(self.path)
        return read_sweep(self.path / "sweep.yaml")

    def failure(self, digest: str) -> Outcome | None:
        try:
            return read_record(Outcome, self._failure_path(digest), SweepError, "delete it")
        except FileNotFoundError:
            return None

    def save_failure(self, trial: Trial, outcome: Outcome) -> None:
        content = {**asdict(outcome), "cell": dict(trial.cell), "seed": trial.seed}
        content["config"] = trial.config.model_dump(mode="json")
        with self._writing():
            write_json(self._failure_path(trial.digest), content)

    def delete_failure(self, digest: str) -> None:
        self._failure_path(digest).unlink(missing_ok=True)

    def _failure_path(self, digest: str) -> Path:
        return self.path / "failures" / f"{digest}.json"

    def dev_metrics(self, digest: str) -> dict[str, float]:
        """Return the metrics of a finished trial on dev; those of other sets are not read."""
        return set_metrics(RunResults.load(self.run(digest).path), "dev")

    def record(self, trial: Trial | TrialRecord, chosen: bool) -> TrialRecord:
        """Return the record of a trial as its folder is now."""
        cell, setting = dict(trial.cell), dict(trial.setting)
        record = TrialRecord(trial.digest, cell, trial.seed, setting=setting)
        if not self.run(trial.digest).finished:
            failure = self.failure(trial.digest)
            return replace(record, state=failure.state, error=failure.error) if failure else record
        results = RunResults.load(self.run(trial.digest).path)
        metrics = {name: set_metrics(results, name) for name in results.evaluations}
        return replace(
            record,
            state="finished",
            chosen=chosen,
            dev=metrics.pop("dev"),
            evaluations=metrics if chosen else {},
            best_epoch=None if results.point else results.best.epoch,
        )

    def save_results(self, sweep: SweepFile, records: Sequence[TrialRecord]) -> None:
        content = {
            "name": sweep.name,
            "axes": list(sweep.axes),
            "chosen_axes": list(sweep.chosen_axes),
            "competing_axes": list(sweep.competing_axes),
            "trials": [asdict(record) for record in records],
        }
        with self._writing():
            write_checked_json(self.path / RESULTS, content)

    def save_plan(self, trials: Sequence[Trial]) -> None:
        """Write ``plan.json``: the trials, whether or not they have finished."""
        content = [
            {"digest": trial.digest, "cell": dict(trial.cell), "seed": trial.seed, **trial.setting}
            for trial in trials
        ]
        with self._writing():
            write_checked_json(self.path / PLAN, {"trials": content})

    def load_plan(self) -> list[TrialRecord]:
        try:
            plan = read_record(_Plan, self.path / PLAN, SweepError, _RUN_AGAIN)
        except FileNotFoundError:
            begun = f"no sweep has begun in it; if one was stopped there, {_RUN_AGAIN}"
            advice = begun if self.path.is_dir() else "there is no such folder any more"
            raise SweepError(f"{self.path} holds no {PLAN}: {advice}") from None
        return [
            TrialRecord(t.digest, t.cell, t.seed, setting={a: getattr(t, a) for a in SETTING_AXES})
            for t in plan.trials
        ]

    def recorded_files(self) -> dict[str, dict[str, str]]:
        """Return the digests of the files of each planned trial, none if it has not finished."""
        planned = [trial.digest for trial in self.load_plan()]
        return {digest: recorded_files(self.run(digest).path) for digest in planned}


def set_metrics(results: RunResults, name: str) -> dict[str, float]:
    return dict(results.evaluations[name].all.metrics)


@dataclass(frozen=True, repr=False)
class SweepResults:
    """The trials of a sweep; as a path it is the sweep's folder, which ``compare`` takes."""

    name: str
    folder: Path  # in full, so that it stays this one if the working folder changes
    axes: tuple[str, ...]  # what trials differ in apart from the seed, in order
    trials: tuple[TrialRecord, ...]  # one record for each trial, failed ones included
    #: By trial, SHA-256 of the files of its run, which tell data apart that have the same path.
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)

    def __fspath__(self) -> str:
        files = SweepFolder(self.folder).recorded_files()
        # A failed trial may have finished since; of a damaged file its reader tells.
        same = all(files.get(digest) in ({}, ours) for digest, ours in self.files.items() if ours)
        if files.keys() != self.files.keys() or not same:
            raise SweepError(f"{from_here(self.folder)} holds other trials than these by now")
        return from_here(self.folder)

    @property
    def failed(self) -> tuple[TrialRecord, ...]:
        """The trials without results."""
        return tuple(trial for trial in self.trials if not trial.finished)

    def __repr__(self) -> str:
        states = Counter(trial.state for trial in self.trials)
        shown = ", ".join(f"{count} {state}" for state, count in states.items())
        place = shorten(from_here(self.folder), 200)
        return f"<SweepResults in {place}: {len(self.trials)} trials, {shown}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.to_frame().to_html()}"

    def to_frame(self) -> pandas.DataFrame:
        """Return one row for each trial: its axes (numbers where all values of one are), seed,
        state, whether it was chosen on dev, metrics by set (of sets other than dev, if chosen),
        best epoch, error and run folder.
        """
        import pandas

        rows = []
        for trial in self.trials:
            row: dict[str, Any] = dict(trial.cell)
            row |= {"seed": trial.seed, "state": trial.state, "chosen": trial.chosen}
            for name, metrics in {"dev": trial.dev, **trial.evaluations}.items():
                row |= {f"{name}_{metric}": value for metric, value in metrics.items()}
            row |= {"best_epoch": trial.best_epoch, "error": trial.error}
            row["folder"] = str(self.folder / "trials" / trial.digest)
            rows.append(row)
        frame = pandas.DataFrame(rows)
        for axis in {axis for trial in self.trials for axis in trial.cell}:
            with suppress(ValueError):  # of names
                frame[axis] = pandas.to_numeric(frame[axis])
        last = ["best_epoch", "error", "folder"]  # behind the metrics that only some rows have
        return frame[[*(name for name in frame if name not in last), *last]]
