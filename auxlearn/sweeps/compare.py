"""From sweeps to a comparison: figures over seeds, what is best, and what may be chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from auxlearn.config import Metric
from auxlearn.errors import SweepError
from auxlearn.results.folder import read_jsonl
from auxlearn.results.record import RunResults
from auxlearn.sweeps.folder import SweepFolder, TrialRecord
from auxlearn.sweeps.plan import SETTING_AXES, SweepFile
from auxlearn.sweeps.published import PublishedFigure, read_published
from auxlearn.sweeps.statistics import (
    Pair,
    Predictions,
    compare_methods,
    fewest_seeds,
    indistinguishable,
    minimum_detectable_difference,
)

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
        detectable: Smallest true difference that so many seeds find four times in five.
        needed: Seeds below which the tests can tell nothing apart.
    """

    key: tuple[str, Metric]
    best: str
    ties: frozenset[str]
    pairs: tuple[Pair, ...]
    detectable: float
    needed: int


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
        folders: The sweeps; methods of the same name in several are told apart by the sweep's.
        published: Name or path of published figures; by default what the sweeps name.

    Raises:
        SweepError: A folder holds no finished sweep, or predictions do not fit together.
    """
    loaded = [(folder, folder.read_sweep(), folder.load_results()) for folder in folders]
    several = len(loaded) > 1
    grouped: dict[tuple[tuple[str, str], ...], dict[str, Row]] = {}
    for folder, sweep, records in loaded:
        for record in records:
            if record.finished and not record.chosen:
                continue
            setting, name = _place(sweep, record)
            rows = grouped.setdefault(tuple(setting.items()), {})
            if several and name in rows and rows[name].cell.get("sweep") != sweep.name:
                name = f"{name} ({sweep.name})"
            if name not in rows:
                rows[name] = _new_row(name, sweep, record, setting)
            _enter(rows[name], folder, record)
    for rows in grouped.values():  # a setting that was not chosen has nothing but failures
        for name in [name for name, row in rows.items() if not row.runs and row.chosen]:
            del rows[name]
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
        names=[sweep.name for _, sweep, _ in loaded],
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


def _new_row(name: str, sweep: SweepFile, record: TrialRecord, setting: dict[str, str]) -> Row:
    competing = {axis: record.cell[axis] for axis in sweep.competing_axes}
    chosen = {axis: record.cell[axis] for axis in sweep.chosen_axes}
    return Row(name, {**setting, **competing, "sweep": sweep.name}, chosen)


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
    read: dict[str, dict[str, dict[int, Predictions]]] = {}
    columns = []
    for key in keys:
        having = [row for row in rows if row.figures.get(key)]
        name, metric = key
        if name not in read:
            read[name] = _predictions(having, name)
        scores = {row.name: row.figures[key] for row in having}
        pairs = compare_methods(scores, read[name], metric)
        best = max(having, key=lambda row: row.mean(key)).name
        columns.append(
            Column(
                key=key,
                best=best,
                ties=frozenset(indistinguishable(best, pairs)),
                pairs=tuple(pairs),
                detectable=minimum_detectable_difference(
                    _spreads(scores), min(len(values) for values in scores.values())
                ),
                needed=fewest_seeds(len(pairs)),
            )
        )
    return columns


def _spreads(scores: Mapping[str, Mapping[int, float]]) -> list[float]:
    """Return the standard deviation of the paired difference of every two methods."""
    names, spreads = list(scores), []
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            seeds = sorted(set(scores[first]) & set(scores[second]))
            if len(seeds) > 1:
                differences = [scores[first][seed] - scores[second][seed] for seed in seeds]
                spreads.append(float(np.std(differences, ddof=1)))
    return spreads


def _predictions(rows: Sequence[Row], name: str) -> dict[str, dict[int, Predictions]]:
    """Return every row's predictions on a set; classes are numbered alike for all."""
    lines = {
        (row.name, seed): read_jsonl(path / "predictions" / f"{name}.jsonl")
        for row in rows
        for seed, path in row.runs.items()
    }
    labels = {line[key] for found in lines.values() for line in found for key in _LABELS}
    number = {label: i for i, label in enumerate(sorted(labels))}
    made: dict[str, dict[int, Predictions]] = {}
    for (method, seed), found in lines.items():
        truth, predicted = (np.array([number[line[key]] for line in found]) for key in _LABELS)
        made.setdefault(method, {})[seed] = Predictions(truth, predicted[None], len(number))
    _check_same_rows(made, name)
    return made


def _check_same_rows(predictions: Mapping[str, Mapping[int, Predictions]], name: str) -> None:
    every = [(who, seed, p) for who, seeds in predictions.items() for seed, p in seeds.items()]
    who, seed, first = every[0]
    for other, other_seed, found in every[1:]:
        if not np.array_equal(found.truth, first.truth):
            raise SweepError(
                f"'{other}' (seed {other_seed}) and '{who}' (seed {seed}) were evaluated on "
                f"different rows of '{name}': the data has changed in between, run them anew"
            )
