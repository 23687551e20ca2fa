"""What a report is about: finished runs, and the trials of sweeps that are not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from auxlearn.config import RunConfig
from auxlearn.errors import RunError
from auxlearn.local_files import user_path
from auxlearn.results.folder import RunFolder, check_contained
from auxlearn.results.record import RunResults
from auxlearn.sweeps.folder import RESULTS, SweepFolder
from auxlearn.wording import shorten

#: Settings in which the runs of one method may differ.
_NOT_METHOD = {"seed", "output", "cache_dir", "report_to", "gradient_log_steps", "device"} | {
    "keep_model",
    "dataset",
    "encoder",
    "metric",  # methods are compared within these three
}


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: Its folder.
        config: Its configuration.
        results: Its results.
        method: Name of the method, the same for all seeds.
        reveal: Whether scores on other sets than dev may be shown; not for values of a sweep that
            may still lose, or have lost, the choice on dev.
    """

    path: Path
    config: RunConfig
    results: RunResults
    method: str
    reveal: bool = True

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.config.seed

    @property
    def setting(self) -> tuple[str, str, str, str]:
        """Data set, its fingerprint, encoder and metric: what compared methods share."""
        data = self.results.dataset
        encoder = Path(self.config.encoder).name
        return data.name, data.fingerprint, encoder, self.config.metric

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

    Raises:
        UserError: A folder is neither, is given twice, is damaged, or is that of an unfinished run.
    """
    found = Collection([])
    places = [user_path(folder, RunError).resolve() for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if not place.is_dir():
            raise RunError(f"there is no folder {shorten(str(folder), 200)}: check the path")
        if places.count(place) > 1:
            raise RunError(f"{folder} is given twice: name each folder once")
        if (folder / "sweep.yaml").is_file():
            _add_sweep(found, SweepFolder(folder))
        elif (folder / "config.yaml").is_file():
            found.runs.append(_read_run(folder))
        else:
            raise RunError(
                f"{folder} is neither a run nor a sweep: it has no config.yaml and no sweep.yaml"
            )
    named = _name_methods([run for run in found.runs if not run.method])
    runs = [run if run.method else next(named) for run in found.runs]
    if len(found.sweeps) > 1:
        runs = [
            replace(run, method=f"{run.method} ({sweep.path})")
            if (sweep := next((s for s in found.sweeps if s.path in run.path.parents), None))
            else run
            for run in runs
        ]
    known: dict[tuple[object, ...], Run] = {}
    for run in runs:
        other = known.setdefault((*run.setting, run.method, run.seed), run)
        if other is not run:
            raise RunError(
                f"{other.path} and {run.path} are runs of the same method, data and seed, which "
                "would count as two seeds: leave one of them out"
            )
    return replace(found, runs=runs)


def _read_run(path: Path, method: str = "", reveal: bool = True) -> Run:
    folder = RunFolder(path)
    config = folder.read_config()
    if not folder.finished:
        raise RunError(
            f"the run in {path} is not finished: resume it with "
            f"`auxlearn train --config {path / 'config.yaml'} --output {path}`"
        )
    return Run(path, config, RunResults.load(path), method, reveal)


def _add_sweep(found: Collection, folder: SweepFolder) -> None:
    check_contained(folder.path)
    sweep = folder.read_sweep()
    found.sweeps.append(folder)
    if (folder.path / RESULTS).is_file():
        for record in folder.load_results():
            title = ", ".join(record.cell.values()) or sweep.name
            if record.finished:
                path = folder.run(record.digest).path
                found.runs.append(_read_run(path, title, record.chosen))
            else:
                one = Unfinished(f"{title}, seed {record.seed}", record.state, record.error)
                found.unfinished.append(one)
        return
    # The trials cannot be planned here: that would run the plug-ins that the sweep names.
    count = 0
    for path in sorted((folder.path / "trials").glob("*")):
        if not (path / "config.yaml").is_file():
            continue
        if RunFolder(path).finished:
            reveal = not sweep.chosen_axes and sweep.search is None
            found.runs.append(_read_run(path, reveal=reveal))
            count += 1
        elif folder.failure(path.name) is None:
            found.unfinished.append(Unfinished(path.name, "unfinished", ""))
    for path in sorted((folder.path / "failures").glob("*.json")):
        outcome = folder.failure(path.stem)
        if outcome and not folder.run(path.stem).finished:
            found.unfinished.append(Unfinished(path.stem, outcome.state, outcome.error))
    found.notes.append(
        f"sweep {sweep.name} is not finished: {count} of its trials have results; methods are "
        "named by their settings, and differences are not tested"
    )


def _name_methods(runs: Sequence[Run]) -> Iterator[Run]:
    """Yield the runs with the name of their method: tasks, weighting and what else differs."""
    settings = [run.config.model_dump(mode="json", exclude=_NOT_METHOD) for run in runs]
    names = [_tasks_and_weighting(run) for run in runs]
    for run, own, name in zip(runs, settings, names, strict=True):
        same = [one for one, other in zip(settings, names, strict=True) if other == name]
        varied = [
            f"{key} {_text(value)}"
            for key, value in own.items()
            if len({_text(one[key]) for one in same}) > 1
        ]
        yield replace(run, method=", ".join([name, *varied]))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _tasks_and_weighting(run: Run) -> str:
    tasks = " + ".join(choice.name for choice in run.config.aux)
    return f"{tasks}, {run.config.weights.name}" if tasks else "single task"
