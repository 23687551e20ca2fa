"""What a report is about: finished runs, and the trials of sweeps that are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from auxlearn.comparison.methods import Setting, named_runs
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import RunError, shorten
from auxlearn.core.files import user_path
from auxlearn.kinds.choose import kind_of, require
from auxlearn.results.folder import RunFolder, check_finished
from auxlearn.results.record import RunResults
from auxlearn.sweeps.folder import RESULTS, SweepFolder
from auxlearn.sweeps.sweep_file import FOLD


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: Its folder.
        config: Its configuration.
        results: Its results.
        setting: What compared methods share: data set, encoder, metric, and the fold, if any.
        method: Name of the method, the same for all seeds and folds.
        reveal: Whether scores on other sets than dev may be shown; not for values of a sweep that
            may still lose, or have lost, the choice on dev.
    """

    path: Path
    config: RunConfig
    results: RunResults
    setting: Setting
    method: str
    reveal: bool = True

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.config.seed

    @property
    def title(self) -> str:
        """Method, fold and seed in one line."""
        fold = f", fold {self.config.fold}" if self.config.fold else ""
        return f"{self.method}{fold}, seed {self.seed}"

    @property
    def sets(self) -> list[str]:
        """Names of the evaluation sets whose scores may be shown: test first, dev last."""
        names = [name for name in self.results.evaluations if self.reveal or name == "dev"]
        return sorted(names, key=lambda name: (name == "dev", name != "test"))


@dataclass(frozen=True)
class Unfinished:
    """A trial of a sweep that has no results.

    Attributes:
        title: Its labels and seed.
        state: "unfinished", or how it failed.
        error: The message of its error.
    """

    title: str
    state: str
    error: str


@dataclass(frozen=True)
class Collection:
    """All that a report is about.

    Attributes:
        runs: The finished runs.
        unfinished: Trials without results.
        sweeps: The sweeps among the folders.
        notes: Sentences on what is missing.
    """

    runs: list[Run]
    unfinished: list[Unfinished] = field(default_factory=list)
    sweeps: list[SweepFolder] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def collect(folders: Sequence[Path]) -> Collection:
    """Read run folders and sweeps.

    No code of a plug-in is run.
    """
    for folder in folders:
        if not user_path(folder, RunError).is_dir():
            raise RunError(f"there is no folder {shorten(str(folder), 200)}: check the path")
        if (folder / "sweep.yaml").is_file():
            continue
        if not (folder / "config.yaml").is_file():
            raise RunError(
                f"{folder} is neither a run nor a sweep: it has no config.yaml and no sweep.yaml"
            )
        check_finished(folder)
    named = named_runs(folders)
    found = Collection([], sweeps=[folder for folder, _ in named.sweeps.values()])
    hidden = set()
    for name, (place, sweep) in named.sweeps.items():
        trials = [run for run in named.runs if run.source == name]
        waiting = any(run.state == "unfinished" for run in trials)
        if (place.path / RESULTS).is_file() and not waiting:
            continue
        count = sum(run.results is not None for run in trials)
        found.notes.append(
            f"sweep {sweep.name} is not finished: {count} of its trials have results; differences "
            "are not tested"
        )
        if sweep.chosen_axes or sweep.search is not None:
            hidden.add(name)
    known: dict[tuple[object, ...], Run] = {}
    for one in named.runs:
        method = ", ".join([one.method, *one.values.values()])
        if one.results is None:
            fold = dict(one.setting).get(FOLD)
            title = f"{method}{f', fold {fold}' if fold else ''}, seed {one.seed}"
            found.unfinished.append(Unfinished(title, one.state, one.error))
            continue
        config = RunFolder(one.path).read_config()
        require(kind_of(config.kind), "report")
        reveal = one.chosen and one.source not in hidden
        run = Run(one.path, config, one.results, one.setting, method, reveal)
        other = known.setdefault((run.setting, run.method, run.seed), run)
        if other is not run:
            raise RunError(
                f"{other.path} and {run.path} are runs of the same method, data and seed, which "
                "would count as two seeds: leave one of them out"
            )
        found.runs.append(run)
    return found
