"""The runs of several folders, each with the names of its setting and of its method.

Nothing that a folder holds is executed, and nothing outside it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auxlearn.core.errors import SweepError, UserError
from auxlearn.core.files import name_problem, user_path
from auxlearn.core.run_settings import RunSettings
from auxlearn.core.settings import settings_with
from auxlearn.results.folder import RunFolder, check_contained, recorded_inputs
from auxlearn.results.record import RunResults
from auxlearn.sweeps.folder import SweepFolder, set_metrics
from auxlearn.sweeps.plan import TrialRecord, chosen_trials
from auxlearn.sweeps.sweep_file import FOLD, SETTING_AXES, SweepFile, label

#: Settings that name no method; data, encoder and plug-ins are told apart by their content.
_NOT_METHOD = settings_with("setting", RunSettings) | settings_with("record", RunSettings)


def run_names(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for the method of each run, from its resolved configuration.

    A name has the auxiliary tasks, the weighting and the loss, every setting that all runs have and
    in which runs on the same data set differ, and every other one in which runs would otherwise
    have the same name.

    >>> base = {"dataset": "a", "encoder": "b", "metric": "c", "weights": {"fixed": {}}}
    >>> run_names([{**base, "aux": [], "epochs": 3}, {**base, "aux": [], "epochs": 5}])
    ['single task, epochs 3', 'single task, epochs 5']
    """
    flat = [_flat(config) for config in configs]
    names = [_short(config) for config in configs]
    by_name: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        by_name[name].append(number)
    everyone = range(len(configs))
    shared = {key for key in _differing(everyone, configs, flat) if all(key in one for one in flat)}
    for name, members in by_name.items():
        differing = shared.union(_differing(members, configs, flat))
        for number in members:
            parts = [f"{key} {value}" for key, value in flat[number].items() if key in differing]
            names[number] = ", ".join([name, *parts])
    return names


def _differing(
    members: Iterable[int], configs: Sequence[Mapping[str, Any]], flat: Sequence[Mapping[str, str]]
) -> set[str]:
    """Return the settings in which some runs differ on the same data set."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number in members:
        place = tuple(str(configs[number][key]) for key in ("dataset", "encoder", "metric"))
        groups[place].append(number)
    return {
        key
        for group in groups.values()
        for number in group
        for key in flat[number]
        if len({flat[n].get(key) for n in group}) > 1
    }


def data_digest(results: RunResults) -> str:
    """Return what tells data from others of the name; of a fold, what all folds have in common."""
    return results.dataset.folds or results.dataset.fingerprint


def encoder_digest(results: RunResults) -> str:
    """Return what tells an encoder from others of the name; "" if unknown, or part of a method."""
    recorded = recorded_inputs(Path(results))
    known = "encoder" in recorded and results.config.get("init_from") is None
    return _digest(recorded["encoder"]) if known else ""


def code_digests(results: RunResults) -> dict[str, str]:
    """Return short digests of plug-ins, and of the run that a run began from, by their names."""
    kinds = ("plug-in file ", "task ", "loss ", "weighting ")
    recorded = recorded_inputs(Path(results))
    found = {name: one for name, one in recorded.items() if name.startswith(kinds)}
    if results.config.get("init_from") is not None and "encoder" in recorded:
        found["initial weights"] = recorded["encoder"]
    return {name: _digest(one)[:8] for name, one in found.items()}


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _short(config: Mapping[str, Any]) -> str:
    names = [choice if isinstance(choice, str) else next(iter(choice)) for choice in config["aux"]]
    parts = ["+".join(names) or "single task"]
    if names:
        parts.append(next(iter(config["weights"])))
    loss = next(iter(config.get("loss") or ["cross_entropy"]))
    return ", ".join(parts if loss == "cross_entropy" else [*parts, loss])


def _flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a method as labels, one for each option of a plug-in."""
    found = {}
    for key, value in config.items():
        if key in _NOT_METHOD:
            continue
        choices = value if key == "aux" else [value] if key in ("weights", "loss") else None
        if choices is None:
            found[key] = label(value)
            continue
        for number, choice in enumerate(choices):
            for name, options in choice.items() if isinstance(choice, dict) else ():
                extra = f"{number + 1}." if number else ""
                found |= {
                    f"{extra}{name}.{key}": label(one) for key, one in (options or {}).items()
                }
    return found


#: Label of a setting whose runs are the folds of a cross-validation.
FOLDS = "folds"
#: Labels that the runs of a setting share, as pairs of axis and label.
Setting = tuple[tuple[str, str], ...]


@dataclass
class NamedRun:
    """A run with its names; of a sweep, also a trial without results."""

    path: Path
    seed: int
    setting: Setting  # what it shares with those it is compared with
    method: str  # name of its method, the same for all seeds and folds
    results: RunResults | None  # its results; None if there are none
    source: str = ""  # the sweep it is from; "" for a single run
    competing: dict[str, str] = field(default_factory=dict)  # axes that name methods
    values: dict[str, str] = field(default_factory=dict)  # of axes chosen on dev
    chosen: bool = True  # whether these values are chosen
    state: str = "finished"  # "finished", "unfinished", or how it failed
    error: str = ""


@dataclass
class NamedRuns:
    """The runs of several folders with their names."""

    runs: list[NamedRun] = field(default_factory=list)  # of sweeps, then single ones
    # folder and file of each sweep by its name, which is the source of its trials
    sweeps: dict[str, tuple[SweepFolder, SweepFile]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what is missing, one sentence each

    @property
    def chosen_axes(self) -> list[str]:
        axes = (axis for _, sweep in self.sweeps.values() for axis in sweep.chosen_axes)
        return list(dict.fromkeys(axes))

    @property
    def published(self) -> tuple[str, Path] | None:
        """Published results that a sweep names, and the folder of the sweep."""
        named = ((one.published, folder.path) for folder, one in self.sweeps.values())
        return next(((name, path) for name, path in named if name), None)


def named_runs(paths: Iterable[str | os.PathLike[str]]) -> NamedRuns:
    """Read sweeps and runs, and name the setting and the method of each run: data sets and encoders
    of one name but other content get a part of their digest; in a sweep they are what its axes say.
    """
    folders = [user_path(path, SweepError) for path in paths]
    resolved = [path.resolve() for path in folders]
    for path in folders:
        if resolved.count(path.resolve()) > 1:
            raise SweepError(f"{path} is given twice: name each folder once")
    found = NamedRuns()
    sweeps = [
        (SweepFolder(path), SweepFolder(path).read_sweep()) for path in folders if _is_sweep(path)
    ]
    names = [sweep.name for _, sweep in sweeps]
    contents = _Contents()
    for folder, sweep in sweeps:
        label = sweep.name if names.count(sweep.name) == 1 else f"{sweep.name}: {folder.path}"
        found.sweeps[label] = folder, sweep
        found.runs += _trials_of(folder, sweep, label, contents)
    single = _single_runs([path for path in folders if not _is_sweep(path)], contents, found.notes)
    found.runs += single
    for label, (_, sweep) in found.sweeps.items():
        if sweep.chosen_axes and any(r.results is None for r in found.runs if r.source == label):
            axes = ", ".join(sweep.chosen_axes)
            found.notes.append(
                f"{label} is unfinished: the choice of {axes} on dev may still change"
            )
    for run in found.runs:
        run.setting = contents.named(run)
    configs = []
    for run in single:
        assert run.results is not None
        configs.append(run.results.config | dict(run.setting) | code_digests(run.results))
    for run, name in zip(single, run_names(configs), strict=True):
        run.method = name
    _make_names_unique(found.runs)
    return found


def folds_of(setting: Mapping[str, str]) -> int:
    """Return the number of folds of the cross-validation that runs are; 0 if they are none."""
    return int(setting.get(FOLDS, "0").partition(" ")[0])


def without_fold(setting: Setting) -> tuple[Setting, int | None]:
    """Return a setting with the number of folds in place of the fold, and the fold.

    >>> without_fold((("dataset", "a"), ("fold", "2/5")))
    ((('dataset', 'a'), ('folds', '5 folds')), 2)
    """
    labels = dict(setting)
    if FOLD not in labels:
        return setting, None
    number, _, count = labels.pop(FOLD).partition("/")
    return (*labels.items(), (FOLDS, f"{count} folds")), int(number)


def _is_sweep(path: Path) -> bool:
    return (path / "sweep.yaml").is_file()


class _Contents:
    """Which content data sets and encoders of one name have."""

    def __init__(self) -> None:
        # By sweep or path of a single run, axis, name, and method ("" for any): groups of settings
        # may read the same files with other labels.
        self._digests: dict[tuple[str | Path, str, str, str], str] = {}
        self._known: dict[tuple[str, str, bool], set[str]] = defaultdict(set)

    def add(self, run: NamedRun, results: RunResults) -> None:
        digests = {"dataset": data_digest(results), "encoder": encoder_digest(results)}
        for axis, name in run.setting:
            if digest := digests.get(axis):
                for method in (run.method, ""):
                    place = (run.source or run.path, axis, name, method)
                    found = self._digests.setdefault(place, digest)
                    self._known[self._key(run, axis, name)].add(found)

    def named(self, run: NamedRun) -> Setting:
        """Return the setting of a run, with a digest in names that stand for several contents."""
        labels = []
        for axis, name in run.setting:
            several = len(self._known[self._key(run, axis, name)]) > 1
            place = (run.source or run.path, axis, name)
            digest = self._digests.get((*place, run.method)) or self._digests.get((*place, ""), "")
            labels.append((axis, f"{name} ({digest[:8]})" if digest and several else name))
        return tuple(labels)

    @staticmethod
    def _key(run: NamedRun, axis: str, name: str) -> tuple[str, str, bool]:
        return axis, name, axis == "dataset" and FOLD in dict(run.setting)


# ------------------------------------------------------------------------------------------- sweeps


def _trials_of(
    folder: SweepFolder, sweep: SweepFile, label: str, contents: _Contents
) -> Iterator[NamedRun]:
    """Yield the trials of a sweep as its folder is now, finished or not."""
    trials = folder.load_plan()
    loaded = {trial.digest: _load(folder, trial.digest) for trial in trials}

    def dev(digest: str) -> Mapping[str, float] | None:
        results = loaded[digest][0]
        return None if results is None else set_metrics(results, "dev")

    chosen = chosen_trials(sweep, trials, dev)
    for trial in trials:
        if set(sweep.axes) - set(trial.cell):
            raise SweepError(
                f"{folder.path} is damaged: the axes of a trial are not those of sweep.yaml"
            )
        setting, name = _setting_and_name(sweep, trial)
        results, state, error = loaded[trial.digest]
        run = NamedRun(
            folder.run(trial.digest).path,
            trial.seed,
            setting,
            name,
            results,
            label,
            {axis: trial.cell[axis] for axis in sweep.competing_axes},
            {axis: trial.cell[axis] for axis in sweep.chosen_axes},
            trial.digest in chosen,
            state,
            error,
        )
        if results is not None:
            if results.digest != trial.digest:
                raise SweepError(
                    f"{folder.path} is damaged: {run.path} is the run of another trial; run the "
                    "same `auxlearn sweep` again"
                )
            contents.add(run, results)
        yield run


def _setting_and_name(sweep: SweepFile, trial: TrialRecord) -> tuple[Setting, str]:
    """Return the labels that a trial shares with its competitors, and the name of its method."""
    apart = (*sweep.competing_axes, *sweep.chosen_axes)
    setting = {
        axis: trial.cell.get(axis, trial.setting[axis])
        for axis in SETTING_AXES
        if axis not in apart
    }
    setting |= {axis: value for axis, value in trial.cell.items() if axis not in apart}
    name = ", ".join(trial.cell[axis] for axis in sweep.competing_axes)
    return tuple(setting.items()), name or sweep.name


def _load(folder: SweepFolder, digest: str) -> tuple[RunResults | None, str, str]:
    """Return the results of a trial, or its state and error if there are none."""
    try:
        if problem := name_problem(digest):
            raise SweepError(f"the trials of {folder.path} are damaged ({problem})")
        run = folder.run(digest)
        if run.finished:
            return RunResults.load(run.path), "finished", ""
        failure = folder.failure(digest)
    except UserError as error:
        return None, "damaged", str(error)
    return (None, failure.state, failure.error) if failure else (None, "unfinished", "")


# --------------------------------------------------------------------------------------------- runs


def _single_runs(paths: Sequence[Path], contents: _Contents, notes: list[str]) -> list[NamedRun]:
    """Return the finished runs, whose methods have no names yet."""
    found: list[NamedRun] = []
    unfinished: list[str] = []
    for path in paths:
        run = RunFolder(path)
        if not run.finished:
            if not (path / "config.yaml").is_file():
                raise SweepError(_not_comparable(path))
            unfinished.append(str(path))
            continue
        check_contained(path)  # that of a sweep is checked as a whole
        results = RunResults.load(path)
        config = results.config
        labels = {axis: Path(config[axis]).name for axis in ("dataset", "encoder")}
        labels |= {"metric": config["metric"]}
        labels |= {FOLD: config[FOLD]} if config.get(FOLD) else {}
        found.append(NamedRun(path, config["seed"], tuple(labels.items()), "", results))
        contents.add(found[-1], results)
    if unfinished:
        notes.append(f"left out, as they have not finished: {', '.join(unfinished)}")
    return found


def _not_comparable(path: Path) -> str:
    if not path.exists():
        return f"{path} is not the folder of a sweep or a run: it does not exist"
    inner = path.is_dir() and any((one / "config.yaml").is_file() for one in path.iterdir())
    hint = f": to compare the runs in it, write {path}/*" if inner else ""
    return f"{path} is not the folder of a sweep or a run (no sweep.yaml, no config.yaml){hint}"


def _make_names_unique(runs: Sequence[NamedRun]) -> None:
    """Append the source to a name that several sources have in one setting, in all settings."""
    sources: dict[tuple[str, Setting], dict[str, None]] = {}
    for run in runs:
        sources.setdefault((run.method, run.setting), {})[run.source] = None
    clashing = {(name, one) for (name, _), group in sources.items() for one in list(group)[1:]}
    for run in runs:
        if (run.method, run.source) in clashing:
            run.method = f"{run.method} ({run.source or 'run'})"
