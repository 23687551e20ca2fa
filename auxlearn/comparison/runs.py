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
from auxlearn.core.files import user_path
from auxlearn.core.run_settings import RunSettings
from auxlearn.core.settings import settings_with
from auxlearn.results.folder import RunFolder, check_contained, recorded_inputs
from auxlearn.results.record import RunResults
from auxlearn.sweeps.folder import SweepFolder, set_metrics
from auxlearn.sweeps.plan import chosen_trials
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
    differing = _differing(range(len(configs)), configs, flat)
    shared = {key for key in differing if all(key in settings for settings in flat)}
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


def content_digests(results: RunResults) -> dict[str, str]:
    """Return what tells data and encoder from others of the name, as far as it is known."""
    digests = {"dataset": results.dataset.folds or results.dataset.fingerprint}
    recorded = recorded_inputs(Path(results))
    if "encoder" in recorded and results.config.get("init_from") is None:
        digests["encoder"] = _digest(recorded["encoder"])
    return digests


def code_digests(results: RunResults) -> dict[str, str]:
    """Return short digests, by name, of plug-ins, files, further data and initial weights."""
    kinds = ("plug-in file ", "task ", "loss ", "weighting ", "file ", "further data ")
    recorded = recorded_inputs(Path(results))
    inputs = {name: content for name, content in recorded.items() if name.startswith(kinds)}
    if results.config.get("init_from") is not None and "encoder" in recorded:
        inputs["initial weights"] = recorded["encoder"]
    return {name: _digest(content)[:8] for name, content in inputs.items()}


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
    labels = {}
    for key, value in config.items():
        if key in _NOT_METHOD or (key == "weights" and not config["aux"]):
            continue
        if key not in ("aux", "weights", "loss"):
            labels[key] = label(value)
            continue
        for number, choice in enumerate(value if key == "aux" else [value]):
            for name, options in choice.items() if isinstance(choice, dict) else ():
                place = f"{number + 1}.{name}" if number else name
                labels |= {f"{place}.{k}": label(option) for k, option in (options or {}).items()}
    return labels


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
        sweeps = self.sweeps.values()
        named = ((sweep.published, folder.path) for folder, sweep in sweeps if sweep.published)
        return next(named, None)


def named_runs(paths: Iterable[str | os.PathLike[str]]) -> NamedRuns:
    """Read sweeps and runs, and name the setting and the method of each run: data sets and encoders
    of one name but other content get a part of their digest; in a sweep they are what its axes say.
    """
    folders = [user_path(path, SweepError) for path in paths]
    if not folders:
        raise SweepError("there is nothing to compare: name a run or a sweep")
    resolved = [path.resolve() for path in folders]
    for path in folders:
        if resolved.count(path.resolve()) > 1:
            raise SweepError(f"{path} is given twice: name each folder once")
        if {*resolved} & {*path.resolve().parents}:
            raise SweepError(f"{path} is part of a sweep that is given as well: leave it out")
    named = NamedRuns()
    is_sweep = {path: (path / "sweep.yaml").is_file() for path in folders}
    sweeps = [SweepFolder(path) for path in folders if is_sweep[path]]
    files = [folder.read_sweep() for folder in sweeps]
    names = [sweep.name for sweep in files]
    for folder, sweep in zip(sweeps, files, strict=True):
        source = sweep.name if names.count(sweep.name) == 1 else f"{sweep.name}: {folder.path}"
        named.sweeps[source] = folder, sweep
        named.runs += _trials_of(folder, sweep, source)
    single = _single_runs([path for path in folders if not is_sweep[path]], named.notes)
    named.runs += single
    for source, (_, sweep) in named.sweeps.items():
        if sweep.chosen_axes and any(r.results is None for r in named.runs if r.source == source):
            axes = ", ".join(sweep.chosen_axes)
            named.notes.append(
                f"{source} is unfinished: the choice of {axes} on dev may still change"
            )
    _tell_contents_apart(named.runs)
    configs = [
        run.results.config | dict(run.setting) | code_digests(run.results)
        for run in single
        if run.results is not None
    ]
    for run, name in zip(single, run_names(configs), strict=True):
        run.method = name
    _make_names_unique(named.runs)
    return named


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


def _tell_contents_apart(runs: Sequence[NamedRun]) -> None:
    """Append a digest to names of data sets and encoders that stand for several contents; a trial
    without results has that of its method, as groups may read the same files with other labels.
    """
    known: dict[tuple[str | Path, str, str, str], str] = {}
    contents: dict[tuple[str, str, bool], set[str]] = defaultdict(set)
    for run in runs:
        digests = {} if run.results is None else content_digests(run.results)
        for axis, name in run.setting:
            if digest := digests.get(axis):
                folded = axis == "dataset" and FOLD in dict(run.setting)
                for method in (run.method, ""):
                    place = (run.source or run.path, axis, name, method)
                    contents[axis, name, folded].add(known.setdefault(place, digest))
    for run in runs:
        labels = []
        for axis, name in run.setting:
            folded = axis == "dataset" and FOLD in dict(run.setting)
            place = (run.source or run.path, axis, name, run.method)
            digest = known.get(place) or known.get((*place[:3], ""), "")
            apart = digest and len(contents[axis, name, folded]) > 1
            labels.append((axis, f"{name} ({digest[:8]})" if apart else name))
        run.setting = tuple(labels)


# ------------------------------------------------------------------------------------------- sweeps


def _trials_of(folder: SweepFolder, sweep: SweepFile, source: str) -> Iterator[NamedRun]:
    """Yield the trials of a sweep as its folder is now, finished or not."""
    trials = folder.load_plan()
    loaded = {trial.digest: _load(folder, trial.digest) for trial in trials}

    def dev(digest: str) -> Mapping[str, float] | None:
        results = loaded[digest][0]
        return None if results is None else set_metrics(results, "dev")

    chosen = chosen_trials(sweep, trials, dev)
    apart = (*sweep.competing_axes, *sweep.chosen_axes)
    for trial in trials:
        if set(sweep.axes) - set(trial.cell):
            raise SweepError(
                f"{folder.path} is damaged: the axes of a trial are not those of sweep.yaml"
            )
        results, state, error = loaded[trial.digest]
        path = folder.run(trial.digest).path
        if results is not None and results.digest != trial.digest:
            raise SweepError(
                f"{folder.path} is damaged: {path} is the run of another trial; run the same "
                "`auxlearn sweep` again"
            )
        labels = {axis: trial.setting[axis] for axis in SETTING_AXES} | dict(trial.cell)
        competing = {axis: trial.cell[axis] for axis in sweep.competing_axes}
        yield NamedRun(
            path,
            trial.seed,
            tuple((axis, name) for axis, name in labels.items() if axis not in apart),
            ", ".join(competing.values()) or sweep.name,
            results,
            source,
            competing,
            {axis: trial.cell[axis] for axis in sweep.chosen_axes},
            trial.digest in chosen,
            state,
            error,
        )


def _load(folder: SweepFolder, digest: str) -> tuple[RunResults | None, str, str]:
    """Return the results of a trial, or its state and error if there are none."""
    try:
        run = folder.run(digest)
        if run.finished:
            return RunResults.load(run.path), "finished", ""
        failure = folder.failure(digest)
    except UserError as error:
        return None, "damaged", str(error)
    return (None, failure.state, failure.error) if failure else (None, "unfinished", "")


# --------------------------------------------------------------------------------------------- runs


def _single_runs(paths: Sequence[Path], notes: list[str]) -> list[NamedRun]:
    """Return the finished runs, whose methods have no names yet."""
    runs: list[NamedRun] = []
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
        labels |= {"metric": config["metric"]} | ({FOLD: config[FOLD]} if config.get(FOLD) else {})
        runs.append(NamedRun(path, config["seed"], tuple(labels.items()), "", results))
    if unfinished:
        notes.append(f"left out, as they have not finished: {', '.join(unfinished)}")
    return runs


def _not_comparable(path: Path) -> str:
    if not path.exists():
        return f"{path} is not the folder of a sweep or a run: it does not exist"
    inner = any(path.glob("*/config.yaml"))
    hint = f": to compare the runs in it, write {path}/*" if inner else ""
    return f"{path} is not the folder of a sweep or a run (no sweep.yaml, no config.yaml){hint}"


def _make_names_unique(runs: Sequence[NamedRun]) -> None:
    """Append the source to a name that several sources have in one setting, in all settings."""
    sources: dict[tuple[str, Setting], dict[str, None]] = {}
    for run in runs:
        sources.setdefault((run.method, run.setting), {})[run.source] = None
    clashing = {(name, later) for (name, _), group in sources.items() for later in list(group)[1:]}
    for run in runs:
        if (run.method, run.source) in clashing:
            run.method = f"{run.method} ({run.source or 'run'})"
