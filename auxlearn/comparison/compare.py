"""Comparison of the methods of sweeps: scores over seeds, the best, and significance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from auxlearn.comparison.bootstrap import Resampled, bootstrap_metrics
from auxlearn.comparison.power import minimum_detectable_difference
from auxlearn.comparison.published import PublishedResult, read_published
from auxlearn.comparison.statistics import Pair, compare_methods, indistinguishable
from auxlearn.config import Metric
from auxlearn.errors import SweepError
from auxlearn.reporting.style import METRIC_TITLES
from auxlearn.results.folder import RunFolder, read_jsonl
from auxlearn.results.record import RunResults
from auxlearn.sweeps.folder import SweepFolder, TrialRecord
from auxlearn.sweeps.sweep_file import SETTING_AXES, SweepFile

METRICS: tuple[Metric, ...] = tuple(METRIC_TITLES)
#: Name of an evaluation set, and a metric on it.
Key = tuple[str, Metric]


@dataclass
class MethodResults:
    """Results of one method in a setting.

    Attributes:
        name: Labels of the competing axes.
        labels: Label of each axis whose value was not chosen on dev.
        chosen: Label of each axis whose value was chosen on dev.
        runs: Folder of each finished run by seed.
        scores: Score by evaluation set, metric and seed.
        epochs: Epoch of the best checkpoint by seed.
        seconds: Wall time by seed.
        missing: Seeds without scores, with the reason.
        degenerate: Seeds whose best checkpoint predicts one class for every dev example.
    """

    name: str
    labels: dict[str, str]
    chosen: dict[str, str]
    runs: dict[int, Path] = field(default_factory=dict)
    scores: dict[Key, dict[int, float]] = field(default_factory=dict)
    epochs: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    degenerate: set[int] = field(default_factory=set)

    def mean(self, key: Key) -> float:
        """Return the mean over seeds; NaN without scores."""
        values = list(self.scores.get(key, {}).values())
        return float(np.mean(values)) if values else math.nan


@dataclass(frozen=True)
class MetricComparison:
    """All methods of a setting compared by one metric on one evaluation set.

    Attributes:
        key: Evaluation set and metric.
        best: Name of the method with the highest mean.
        ties: Methods whose difference from the best may be due to chance.
        pairs: Test results of every two methods.
        detectable: Minimum detectable difference with these seeds and examples.
    """

    key: Key
    best: str
    ties: frozenset[str]
    pairs: tuple[Pair, ...]
    detectable: float

    @property
    def seed_tests(self) -> tuple[str, ...]:
        """Tests over seeds that the pairs were compared by; one, unless seeds are missing."""
        return tuple(sorted({pair.seed_test for pair in self.pairs}))


@dataclass(frozen=True)
class SettingComparison:
    """Comparison of the methods of one setting: the same data set, encoder and metric.

    Attributes:
        setting: Label of each axis that all methods share.
        methods: Results of the methods.
        metrics: Comparison by each evaluation set and metric.
    """

    setting: dict[str, str]
    methods: list[MethodResults]
    metrics: list[MetricComparison]

    @property
    def title(self) -> str:
        """The shared labels in one line."""
        return ", ".join(
            f"checkpoints by {value}" if axis == "metric" else value
            for axis, value in self.setting.items()
        )


@dataclass(frozen=True)
class Comparison:
    """Comparison of one or several sweeps.

    Attributes:
        names: Names of the sweeps.
        competing: Axes that methods are named by.
        settings: Comparison of the methods of each setting.
        chosen: Axes whose value was chosen on dev.
        published: Published results to show beside them.
        source: Reference of the published results.
    """

    names: list[str]
    competing: list[str]
    settings: list[SettingComparison]
    chosen: list[str]
    published: list[PublishedResult]
    source: str


def compare_sweeps(folders: Sequence[SweepFolder], published: str | None = None) -> Comparison:
    """Compare the methods of sweeps.

    Args:
        folders: Folders of the sweeps. Methods of the same name in several sweeps are
            distinguished by the name of the sweep, and sweeps of the same name by their folders.
        published: Name or path of published results; by default those that the sweeps name.

    Raises:
        SweepError: A folder holds no finished sweep or is given twice, or runs were evaluated on
            different examples.
    """
    loaded = [(folder, folder.read_sweep(), folder.load_results()) for folder in folders]
    labels = _sweep_labels([folder.path for folder in folders], [s.name for _, s, _ in loaded])
    grouped: dict[tuple[tuple[str, str], ...], dict[tuple[str, str], MethodResults]] = {}
    for (folder, sweep, records), label in zip(loaded, labels, strict=True):
        for record in records:
            if record.finished and not record.chosen:
                continue
            setting, name = _setting_and_name(sweep, record)
            methods = grouped.setdefault(tuple(setting.items()), {})
            key = (label, name)
            if key not in methods:
                methods[key] = _new_method(name, label, sweep, record, setting)
            _add_record(methods[key], folder, record)
    for methods in grouped.values():
        # Of a method of which no value was chosen, there are only failures.
        for key in [key for key, one in methods.items() if not one.runs and one.chosen]:
            del methods[key]
        _make_names_unique(list(methods.values()))
    settings = [
        SettingComparison(dict(setting), list(methods.values()), _compare(list(methods.values())))
        for setting, methods in grouped.items()
        if any(one.runs for one in methods.values())
    ]
    if not settings:
        raise SweepError("no trial of these sweeps has finished: there is nothing to compare")
    beside = published or next((sweep.published for _, sweep, _ in loaded if sweep.published), None)
    results, source = read_published(beside) if beside else ([], "")
    return Comparison(
        names=labels,
        competing=list(dict.fromkeys(a for _, sweep, _ in loaded for a in sweep.competing_axes)),
        settings=settings,
        chosen=list(dict.fromkeys(a for _, sweep, _ in loaded for a in sweep.chosen_axes)),
        published=results,
        source=source,
    )


def _setting_and_name(sweep: SweepFile, record: TrialRecord) -> tuple[dict[str, str], str]:
    """Return the labels that a trial shares with its competitors, and the name of its method."""
    setting: dict[str, str] = {}
    for axis in SETTING_AXES:
        if axis not in sweep.competing_axes and axis not in sweep.chosen_axes:
            setting[axis] = record.cell.get(axis, record.setting[axis])
    for axis, value in record.cell.items():
        if axis not in (*sweep.competing_axes, *sweep.chosen_axes):
            setting[axis] = value
    name = ", ".join(record.cell[axis] for axis in sweep.competing_axes)
    return setting, name or sweep.name


def _sweep_labels(paths: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Return the name of each sweep, with its folder where several have that name."""
    resolved = [path.resolve() for path in paths]
    for path in paths:
        if resolved.count(path.resolve()) > 1:
            raise SweepError(f"{path} is given twice: name each sweep once")
    return [
        name if names.count(name) == 1 else f"{name}: {path}"
        for name, path in zip(names, paths, strict=True)
    ]


def _make_names_unique(methods: Sequence[MethodResults]) -> None:
    """Append the sweep to the name of a method that another sweep has as well."""
    taken: set[str] = set()
    for method in methods:
        if method.name in taken:
            method.name = f"{method.name} ({method.labels['sweep']})"
        taken.add(method.name)


def _new_method(
    name: str, label: str, sweep: SweepFile, record: TrialRecord, setting: dict[str, str]
) -> MethodResults:
    competing = {axis: record.cell[axis] for axis in sweep.competing_axes}
    chosen = {axis: record.cell[axis] for axis in sweep.chosen_axes}
    return MethodResults(name, {**setting, **competing, "sweep": label}, chosen)


def _add_record(method: MethodResults, folder: SweepFolder, record: TrialRecord) -> None:
    """Add the results of one trial to those of its method."""
    if not record.finished:
        method.missing[record.seed] = record.state
        return
    method.chosen = {axis: record.cell[axis] for axis in method.chosen}
    method.missing.pop(record.seed, None)
    path = folder.run(record.digest).path
    method.runs[record.seed] = path
    for name, scores in {"dev": record.dev, **record.evaluations}.items():
        for metric in METRICS:
            method.scores.setdefault((name, metric), {})[record.seed] = scores[metric]
    method.epochs[record.seed] = record.best_epoch or 0.0
    results = RunResults.load(path)
    method.seconds[record.seed] = sum(results.seconds.values())
    if results.degenerate is not None:
        method.degenerate.add(record.seed)


def _compare(methods: Sequence[MethodResults]) -> list[MetricComparison]:
    """Compare methods by each metric on each evaluation set that any of them has scores for."""
    methods = [method for method in methods if method.runs]
    keys = list(dict.fromkeys(key for method in methods for key in method.scores))
    keys.sort(key=lambda key: key[0] == "dev")  # test first, then other sets, dev last
    resampled: dict[str, dict[Metric, Resampled]] = {}
    comparisons = []
    for key in keys:
        scored = [method for method in methods if method.scores.get(key)]
        name, metric = key
        if name not in resampled:
            resampled[name] = _resample(scored, name)
        scores = {method.name: method.scores[key] for method in scored}
        pairs = compare_methods(scores, resampled[name][metric])
        best = max(scored, key=lambda method: method.mean(key)).name
        comparisons.append(
            MetricComparison(
                key=key,
                best=best,
                ties=frozenset(indistinguishable(best, pairs)),
                pairs=tuple(pairs),
                detectable=_detectable(scores, pairs, resampled[name][metric].examples),
            )
        )
    return comparisons


def _detectable(
    scores: Mapping[str, Mapping[int, float]], pairs: Sequence[Pair], examples: int
) -> float:
    seeds = min(len(values) for values in scores.values())
    noises = [pair.noise for pair in pairs]
    return minimum_detectable_difference(noises, seeds, len(scores), examples)


def _resample(methods: Sequence[MethodResults], name: str) -> dict[Metric, Resampled]:
    """Return the metrics of all methods on resamples of an evaluation set."""
    runs = [(method.name, seed, path) for method in methods for seed, path in method.runs.items()]
    numbers: dict[str, int] = {}
    read = [_read_predictions(path, name, numbers) for _, _, path in runs]
    truth = read[0][0]
    first, seed, path = runs[0]
    if not len(truth):
        raise SweepError(f"{path} holds no predictions for '{name}': run that trial again")
    for (other, other_seed, _), (found, _) in zip(runs, read, strict=True):
        if not np.array_equal(found, truth):
            raise SweepError(
                f"'{other}' (seed {other_seed}) and '{first}' (seed {seed}) were evaluated on "
                f"different examples of '{name}': the data has changed in between, run them again"
            )
    if len(methods) == 1:  # nothing to compare
        return {metric: Resampled(len(truth), {}) for metric in METRICS}
    rank = np.argsort(np.argsort(list(numbers)))  # classes in alphabetical order of their labels
    predicted = np.stack([rank[found] for _, found in read])
    resampled: dict[Metric, Resampled] = {}
    for metric, values in bootstrap_metrics(rank[truth], predicted, len(numbers)).items():
        by_method: dict[str, dict[int, np.ndarray]] = {}
        for (method, seed, _), value in zip(runs, values, strict=True):
            by_method.setdefault(method, {})[seed] = value
        resampled[metric] = Resampled(len(truth), by_method)
    return resampled


def _read_predictions(
    run: Path, name: str, numbers: dict[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes that a run should have predicted and those it has, ``(examples,)`` each.

    Args:
        run: Run folder.
        name: Evaluation set.
        numbers: Number of each label; labels that are not in it are added.
    """
    lines = read_jsonl(RunFolder(run).predictions_path / f"{name}.jsonl")
    truth, predicted = (
        np.array([numbers.setdefault(line[key], len(numbers)) for line in lines], dtype=np.int32)
        for key in ("label", "predicted")
    )
    return truth, predicted
