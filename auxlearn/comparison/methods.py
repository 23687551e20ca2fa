"""The methods of a comparison: runs that differ in the seed only, by setting, and their folds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from auxlearn.comparison.runs import NamedRuns, Setting, named_runs, without_fold
from auxlearn.core.errors import ConfigError, SweepError, did_you_mean, shorten
from auxlearn.results.record import RunResults
from auxlearn.sweeps.sweep_file import FOLD

#: Axes whose labels have a meaning and keep it.
_FIXED = ("metric", FOLD)


@dataclass
class Method:
    """Runs of one method in a setting."""

    name: str
    source: str = ""  # the sweep it is from; "" for single runs
    labels: dict[str, str] = field(default_factory=dict)  # by axis, not chosen on dev
    chosen: dict[str, str] = field(default_factory=dict)  # by axis, chosen on dev
    runs: dict[int, Path] = field(default_factory=dict)  # by seed; of folds, by number
    results: dict[int, RunResults] = field(default_factory=dict)  # likewise
    missing: dict[int, str] = field(default_factory=dict)  # reason by seed
    unchosen: Counter[str] = field(default_factory=Counter)  # likewise missing, of other values
    folds: dict[int, Method] = field(default_factory=dict)  # by number, if any

    def add(self, seed: int, path: Path, results: RunResults) -> None:
        if seed in self.runs:
            raise SweepError(
                f"{self.runs[seed]} and {path} are both '{self.name}' with seed {seed}: "
                "leave one out"
            )
        self.runs[seed], self.results[seed] = path, results

    @property
    def sets(self) -> list[str]:
        """Names of the sets that some run was evaluated on."""
        names = (name for run in self.results.values() for name in run.evaluations)
        return list(dict.fromkeys(names))

    @classmethod
    def of_folds(cls, folds: Mapping[int, Method]) -> Method:
        """Return one method from those on the folds of a cross-validation."""
        first = next(iter(folds.values()))
        whole = cls(first.name, first.source, first.labels, folds=dict(folds))
        for fold, method in folds.items():
            for seed, path in method.runs.items():
                whole.add(len(whole.runs), path, method.results[seed])
            method.name = first.name
            whole.chosen |= {f"fold {fold} {axis}": v for axis, v in method.chosen.items()}
        return whole

    def by_seed(self, of_run: Callable[[RunResults], float]) -> dict[int, float]:
        """Return a number of each run by seed; of folds, the mean over the seeds of each."""
        if self.folds:
            each = {fold: method.by_seed(of_run) for fold, method in self.folds.items()}
            return {fold: fmean(numbers.values()) for fold, numbers in each.items() if numbers}
        return {seed: of_run(results) for seed, results in self.results.items()}


#: Methods by setting.
Methods = dict[Setting, list[Method]]


def methods_of(named: NamedRuns) -> Methods:
    """Group runs into methods; those of values that were not chosen on dev are left out."""
    grouped: dict[tuple[Setting, str, str], Method] = {}
    for run in named.runs:
        if run.results is not None and not run.chosen:
            continue
        labels = dict(run.setting) | run.competing | ({"sweep": run.source} if run.source else {})
        method = grouped.setdefault(
            (run.setting, run.method, run.source), Method(run.method, run.source, labels)
        )
        if run.results is None:
            reason = run.error or run.state
            if run.chosen:
                method.missing[run.seed] = reason
            else:
                method.unchosen[reason] += 1
        else:
            method.chosen = dict(run.values)
            method.add(run.seed, run.path, run.results)
    settings: Methods = {}
    finished = {setting for (setting, _, _), method in grouped.items() if method.runs}
    for (setting, _, source), method in grouped.items():
        # Of a method of which no value was chosen, there are only failures.
        unchosen = not method.runs and source and named.sweeps[source][1].chosen_axes
        if setting in finished and not unchosen:
            settings.setdefault(setting, []).append(method)
    if not settings:
        reason = f" ({named.notes[0]})" if named.notes else ""
        if errors := [run.error for run in named.runs if run.error]:
            count = f"{len(errors)} of {len(named.runs)} trials have failed"
            reason = f" ({count}, the first by: {shorten(errors[0], 200)})"
        raise SweepError(f"no run here has finished: there is nothing to compare{reason}")
    return settings


def runs_of_method(sweep: str | Path, name: str) -> list[Path]:
    settings = methods_of(named_runs([sweep]))
    names = {method.name for methods in settings.values() for method in methods}
    if name not in names:
        raise ConfigError(f"{sweep} has no method '{name}': {did_you_mean(name, names)}")
    by_setting = {
        ", ".join(label for _, label in setting): list(method.runs.values())
        for setting, methods in settings.items()
        for method in methods
        if method.name == name and method.runs
    }
    first = next(iter(by_setting.values()), [])
    if len(by_setting) > 1:
        raise ConfigError(
            f"{sweep} has '{name}' in {len(by_setting)} settings ({'; '.join(by_setting)}): name "
            f"the runs of one of them instead, here those of the first: {' '.join(map(str, first))}"
        )
    return first


def renamed(settings: Methods, names: Mapping[str, str] | Sequence[str]) -> Methods:
    """Give methods, data sets and encoders new names, by their old ones or as ``OLD=NEW``."""
    new_names: dict[str, str] = {}
    for old, new in names.items() if isinstance(names, Mapping) else map(_divided, names):
        if not new.strip():
            raise ConfigError(f"'{old}' is given no new name: give it one")
        if new_names.setdefault(old, new) != new:
            raise ConfigError(f"'{old}' is given two new names: give it one")
    used = {method.name for methods in settings.values() for method in methods}
    used |= {label for setting in settings for axis, label in setting if axis not in _FIXED}
    if unknown := next((old for old in new_names if old not in used), None):
        hint = did_you_mean(unknown, used)
        raise ConfigError(f"nothing to rename: there is no '{unknown}': {hint}")
    result: Methods = {}
    for setting, methods in settings.items():
        named = [
            replace(method, name=new_names.get(method.name, method.name)) for method in methods
        ]
        shown = [method.name for method in named]
        if clash := next((name for name in shown if shown.count(name) > 1), None):
            raise SweepError(f"two methods would be named '{clash}': choose another name")
        key = tuple(
            (axis, label if axis in _FIXED else new_names.get(label, label))
            for axis, label in setting
        )
        if key in result:
            raise SweepError(f"two data sets would be named '{dict(key)['dataset']}'")
        result[key] = named
    return result


def _divided(text: str) -> tuple[str, str]:
    """Divide ``OLD=NEW`` at the last ``=``: names of methods may hold some."""
    old, _, new = text.rpartition("=")
    if not (old and new):
        raise ConfigError(f"'{shorten(text)}' renames no method: write OLD=NEW")
    return old, new


def joined_folds(settings: Methods) -> Methods:
    """Join settings that differ in the fold alone, under ``("folds", "5 folds")``."""
    folds: dict[Setting, dict[str, dict[int, Method]]] = {}
    joined: Methods = {}
    for setting, methods in settings.items():
        key, fold = without_fold(setting)
        joined[key] = methods  # those of folds are replaced below
        if fold is not None:
            for method in methods:
                folds.setdefault(key, {}).setdefault(method.name, {})[fold] = method
    for key, by_name in folds.items():
        joined[key] = [Method.of_folds(members) for members in by_name.values()]
    return joined
