"""From sweeps to a comparison: figures over seeds, what is best, and what may be chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from auxlearn.comparison.bootstrap import Resampled, bootstrap_metrics
from auxlearn.comparison.power import minimum_detectable_difference
from auxlearn.comparison.published import PublishedFigure, read_published
from auxlearn.comparison.statistics import Pair, compare_methods, indistinguishable
from auxlearn.config import Metric
from auxlearn.errors import SweepError
from auxlearn.results.folder import read_jsonl
from auxlearn.results.record import RunResults
from auxlearn.sweeps.folder import SweepFolder, TrialRecord
from auxlearn.sweeps.plan import SETTING_AXES, SweepFile

_LABELS = ("label", "predicted")
METRICS: tuple[Metric, ...] = ("accuracy", "macro_f1")


@dataclass
class Row:
    """A method in a block.

    Attributes:
        name: Labels of the competing axes.
        cell: Labels of all axes that are not chosen on dev.
        chosen: Labels of the axes that were.
        runs: Folder of each finished run by seed.
        figures: Figure by set, metric and seed.
        epochs: Epoch of the best checkpoint by seed.
        seconds: Wall time by seed.
        missing: Seeds without figures, with the reason.
        degenerate: Seeds whose best checkpoint predicts one class for every dev example.
    """

    name: str
    cell: dict[str, str]
    chosen: dict[str, str]
    runs: dict[int, Path] = field(default_factory=dict)
    figures: dict[tuple[str, Metric], dict[int, float]] = field(default_factory=dict)
    epochs: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    degenerate: set[int] = field(default_factory=set)

    def mean(self, column: tuple[str, Metric]) -> float:
        """Return the mean over seeds; NaN without figures."""
        values = list(self.figures.get(column, {}).values())
        return float(np.mean(values)) if values else math.nan


@dataclass(frozen=True)
class Column:
    """One metric on one evaluation set, compared over the methods of a block.

    Attributes:
        key: Set and metric.
        best: Name of the method with the highest mean.
        ties: Methods whose difference to the best may be chance.
        pairs: Every two methods.
        detectable: Smallest true difference that these seeds and examples find four times in five.
    """

    key: tuple[str, Metric]
    best: str
    ties: frozenset[str]
    pairs: tuple[Pair, ...]
    detectable: float

    @property
    def seed_tests(self) -> tuple[str, ...]:
        """Which tests over seeds the pairs have; one, unless seeds are missing."""
        return tuple(sorted({pair.seed_test for pair in self.pairs}))


@dataclass(frozen=True)
class Block:
    """Methods that compete: the same data, encoder and metric.

    Attributes:
        setting: Label of each axis that all methods share.
        rows: The methods.
        columns: What they are compared by.
    """

    setting: dict[str, str]
    rows: list[Row]
    columns: list[Column]

    @property
    def title(self) -> str:
        """The shared labels in one line."""
        return ", ".join(
            f"checkpoints by {value}" if axis == "metric" else value
            for axis, value in self.setting.items()
        )


@dataclass(frozen=True)
class Comparison:
    """All blocks of one or several sweeps.

    Attributes:
        names: Of the sweeps.
        competing: Axes that methods are named by.
        blocks: What competes with what.
        chosen: Axes of which the value was chosen on dev.
        published: Published figures to show beside.
        source: Where they are from.
    """

    names: list[str]
    competing: list[str]
    blocks: list[Block]
    chosen: list[str]
    published: list[PublishedFigure]
    source: str


def compare_sweeps(folders: Sequence[SweepFolder], published: str | None = None) -> Comparison:
    """Compare the methods of sweeps.

    Args:
        folders: The sweeps; methods of the same name in several are told apart by the sweep's, and
            sweeps of the same name by their folders.
        published: Name or path of published figures; by default what the sweeps name.

    Raises:
        SweepError: A folder holds no finished sweep or is given twice, or predictions do not fit
            together.
    """
    loaded = [(folder, folder.read_sweep(), folder.load_results()) for folder in folders]
    labels = _sweep_labels([folder.path for folder in folders], [s.name for _, s, _ in loaded])
    grouped: dict[tuple[tuple[str, str], ...], dict[tuple[str, str], Row]] = {}
    for (folder, sweep, records), label in zip(loaded, labels, strict=True):
        for record in records:
            if record.finished and not record.chosen:
                continue
            setting, name = _place(sweep, record)
            rows = grouped.setdefault(tuple(setting.items()), {})
            key = (label, name)
            if key not in rows:
                rows[key] = _new_row(name, label, sweep, record, setting)
            _enter(rows[key], folder, record)
    for rows in grouped.values():  # a setting that was not chosen has nothing but failures
        for key in [key for key, row in rows.items() if not row.runs and row.chosen]:
            del rows[key]
        _tell_apart(list(rows.values()))
    blocks = [
        Block(dict(setting), list(rows.values()), _columns(list(rows.values())))
        for setting, rows in grouped.items()
        if any(row.runs for row in rows.values())
    ]
    if not blocks:
        raise SweepError("no trial of these sweeps has finished: there is nothing to compare")
    beside = published or next((sweep.published for _, sweep, _ in loaded if sweep.published), None)
    figures, source = read_published(beside) if beside else ([], "")
    return Comparison(
        names=labels,
        competing=list(dict.fromkeys(a for _, sweep, _ in loaded for a in sweep.competing_axes)),
        blocks=blocks,
        chosen=list(dict.fromkeys(a for _, sweep, _ in loaded for a in sweep.chosen_axes)),
        published=figures,
        source=source,
    )


def _place(sweep: SweepFile, record: TrialRecord) -> tuple[dict[str, str], str]:
    """Return the labels that a trial shares with its competitors, and its name among them."""
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


def _tell_apart(rows: Sequence[Row]) -> None:
    """Put the sweep behind the name of a method that another sweep has as well."""
    taken: set[str] = set()
    for row in rows:
        if row.name in taken:
            row.name = f"{row.name} ({row.cell['sweep']})"
        taken.add(row.name)


def _new_row(
    name: str, label: str, sweep: SweepFile, record: TrialRecord, setting: dict[str, str]
) -> Row:
    competing = {axis: record.cell[axis] for axis in sweep.competing_axes}
    chosen = {axis: record.cell[axis] for axis in sweep.chosen_axes}
    return Row(name, {**setting, **competing, "sweep": label}, chosen)


def _enter(row: Row, folder: SweepFolder, record: TrialRecord) -> None:
    if not record.finished:
        row.missing[record.seed] = record.state
        return
    row.chosen = {axis: record.cell[axis] for axis in row.chosen}
    row.missing.pop(record.seed, None)
    path = folder.run(record.digest).path
    row.runs[record.seed] = path
    for name, figures in {"dev": record.dev, **record.evaluations}.items():
        for metric in METRICS:
            row.figures.setdefault((name, metric), {})[record.seed] = figures[metric]
    row.epochs[record.seed] = record.best_epoch or 0.0
    results = RunResults.load(path)
    row.seconds[record.seed] = sum(results.seconds.values())
    if results.degenerate is not None:
        row.degenerate.add(record.seed)


def _columns(rows: Sequence[Row]) -> list[Column]:
    rows = [row for row in rows if row.runs]
    keys = list(dict.fromkeys(key for row in rows for key in row.figures))
    keys.sort(key=lambda key: key[0] == "dev")  # test first, then other sets, dev last
    resampled: dict[str, dict[Metric, Resampled]] = {}
    columns = []
    for key in keys:
        having = [row for row in rows if row.figures.get(key)]
        name, metric = key
        if name not in resampled:
            resampled[name] = _resample(having, name)
        scores = {row.name: row.figures[key] for row in having}
        pairs = compare_methods(scores, resampled[name][metric])
        best = max(having, key=lambda row: row.mean(key)).name
        columns.append(
            Column(
                key=key,
                best=best,
                ties=frozenset(indistinguishable(best, pairs)),
                pairs=tuple(pairs),
                detectable=_detectable(scores, pairs, resampled[name][metric].examples),
            )
        )
    return columns


def _detectable(
    scores: Mapping[str, Mapping[int, float]], pairs: Sequence[Pair], examples: int
) -> float:
    seeds = min(len(values) for values in scores.values())
    noises = [pair.noise for pair in pairs]
    return minimum_detectable_difference(noises, seeds, len(scores), examples)


def _resample(rows: Sequence[Row], name: str) -> dict[Metric, Resampled]:
    """Return every row's metrics on resamples of a set."""
    runs = [(row.name, seed, path) for row in rows for seed, path in row.runs.items()]
    numbers: dict[str, int] = {}
    read = [_read_predictions(path, name, numbers) for _, _, path in runs]
    truth = read[0][0]
    who, seed, path = runs[0]
    if not len(truth):
        raise SweepError(f"{path} holds no predictions for '{name}': run that trial again")
    for (other, other_seed, _), (found, _) in zip(runs, read, strict=True):
        if not np.array_equal(found, truth):
            raise SweepError(
                f"'{other}' (seed {other_seed}) and '{who}' (seed {seed}) were evaluated on "
                f"different rows of '{name}': the data has changed in between, run them anew"
            )
    if len(rows) == 1:  # nothing to compare
        return {metric: Resampled(len(truth), {}) for metric in METRICS}
    rank = np.argsort(np.argsort(list(numbers)))  # of each number, that of its label
    predicted = np.stack([rank[found] for _, found in read])
    made: dict[Metric, Resampled] = {}
    for metric, values in bootstrap_metrics(rank[truth], predicted, len(numbers)).items():
        by_method: dict[str, dict[int, np.ndarray]] = {}
        for (method, seed, _), value in zip(runs, values, strict=True):
            by_method.setdefault(method, {})[seed] = value
        made[metric] = Resampled(len(truth), by_method)
    return made


def _read_predictions(
    run: Path, name: str, numbers: dict[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return true and predicted classes; labels not seen before get the next number."""
    lines = read_jsonl(run / "predictions" / f"{name}.jsonl")
    found = [[numbers.setdefault(line[key], len(numbers)) for line in lines] for key in _LABELS]
    truth, predicted = (np.array(column, dtype=np.int32) for column in found)
    return truth, predicted
