"""``python -m benchmarks.two_ends``: cheaper rules for a learned share, by ``two_ends.md``.

Trains what has no record yet, slice by slice, and appends a line to the results after every run:
the same command goes on after it has ended in any way. ``--no-run`` prints the tables.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from auxlearn import RunConfig, train
from auxlearn.comparison.statistics import Column, holm, mean_noise, noise_of
from auxlearn.core.errors import UserError
from auxlearn.core.files import write_text
from auxlearn.core.registry import load_plugin
from auxlearn.data.dataset import Split
from auxlearn.data.load import load_dataset
from auxlearn.data.splits import hold_out, text_keys
from auxlearn.evaluation.paired import (
    calibrated_log_losses,
    log_losses,
    paired_difference as paired,
)
from auxlearn.results.folder import append_jsonl, read_jsonl
from auxlearn.results.predictions import read_stored
from auxlearn.sweeps.branches import Gain, Weights, alone, best_of, together
from auxlearn.training.loop import TrainingLoop
from benchmarks.common import RESULTS
from benchmarks.horizon.__main__ import PLUGIN, folder_name
from benchmarks.horizon.bed import (
    SETTINGS,
    Setting,
    Variant,
    join,
    settings_of,
    write_draw,
    write_split,
)
from benchmarks.horizon.record import LAST, data_labels, predict
from benchmarks.horizon.scores import mean_and_error
from benchmarks.tables import table

Tensors = dict[str, Tensor]
SINGLE = "single 0"
#: Standard errors of the log loss by which a run must be better, as in `meta`.
EVIDENCE = 0.5
#: Points on the line between the single task and a run with a task, but for the ends of that line.
LEVELS = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Bed:
    """Settings with their draws, and the settings of all runs."""

    name: str
    draws: range
    settings: tuple[Setting, ...]
    run: Mapping[str, Any]


def minilm_settings(labels: int, dev: int) -> tuple[Setting, ...]:
    """Return the settings with the pretrained encoder: five sets, with the tasks of each."""
    related = {"imdb": "imdb_cad", "qqp": "paws", "mnli": "qqp"}
    names = {"citation_intent": "ACL-ARC", "imdb": "IMDb", "qqp": "QQP"}
    names |= {"ohsumed": "Ohsumed", "mnli": "MNLI"}
    found = []
    for data, name in names.items():
        make = partial(Setting, data=data, train=labels, dev=dev)
        title, both = f"{name} {labels}", ("random_mlm", "simcse")
        for task in both:
            found.append(make(f"{title}, {task}, corpus", aux=(task,), reads="corpus"))
        for task in ("l3mask", "shuffled_labels"):
            found.append(make(f"{title}, {task}", aux=(task,)))
        if data in related:
            further = {"reads": "related", "foreign": related[data]}
            found.append(make(f"{title}, related", aux=("supervised",), **further))
        found.append(make(f"{title}, random_mlm + simcse", aux=both, reads="corpus"))
    return tuple(found)


SIMCSE = Setting("pydocs 150, simcse, corpus", None, 150, ("simcse",), "corpus")
OLD = tuple(
    o
    for o in SETTINGS
    if o.name not in ("SST-2 300, random_mlm, corpus", "QQP 600, random_mlm, corpus")
)
PRETRAINED = {"epochs": 6, "batch_size": 8, "learning_rate": 1e-4, "precision": "bf16"}
TINY = Bed(
    "tiny", range(200, 210), (SIMCSE, *OLD), {"epochs": 10, "batch_size": 16, "encoder": "tiny"}
)
MINILM = Bed("minilm", range(200, 205), minilm_settings(200, 300), PRETRAINED)
HALF = Bed("minilm, half dev", range(200, 205), minilm_settings(100, 100), PRETRAINED)
BEDS = (TINY, MINILM, HALF)
#: Bed, part of the names of settings, and what is trained of each draw: shares, or seeds.
SLICES: tuple[tuple[Bed, str, Sequence[float | str]], ...] = (
    (TINY, "", (0.0, 0.5, 0.3, 0.1)),
    (MINILM, "random_mlm, corpus", (0.0, 0.5)),
    (MINILM, "", (0.0, 0.5)),
    (MINILM, "random_mlm, corpus", (0.3, 0.1)),
    (MINILM, "", (0.3, 0.1)),
    (TINY, "", ("single 1", "single 2", "single 3", "single 4")),
    (MINILM, "", ("single 1", "single 2")),
    (MINILM, "", ("single 3", "single 4")),
    (HALF, "random_mlm, corpus", (0.0, 0.5)),
    (HALF, "", (0.0, 0.5)),
    (HALF, "", (0.3, 0.1)),
    (HALF, "", ("single 1", "single 2", "single 3", "single 4")),
)


def group_of(setting: Setting) -> str:
    """Return the name of the labelled examples, which settings share with their single task."""
    return setting.name.partition(", ")[0]


def data_of(setting: str) -> str:
    """Return the data set of a setting, by its name."""
    return setting.split()[0]


def tasks_of(setting: Setting) -> tuple[str, ...]:
    """Return the tasks, each of which has runs of its own."""
    name = setting.name.partition(", ")[2]
    return (name,) if len(setting.aux) == 1 else tuple(f"{one}, corpus" for one in setting.aux)


@dataclass(frozen=True)
class View:
    """What some parameters predict: losses of dev are calibrated, those of test are as they are."""

    dev: np.ndarray
    dev_right: np.ndarray
    test: np.ndarray
    test_right: np.ndarray

    @classmethod
    def of(cls, probabilities: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> View:
        """Compute it from class probabilities on dev and test."""
        right = [p.argmax(1) == y for p, y in zip(probabilities, labels, strict=True)]
        dev = calibrated_log_losses(probabilities[0], labels[0])
        return cls(dev, right[0], log_losses(probabilities[1], labels[1], 1.0), right[1])

    def packed(self) -> list[Any]:
        """Return losses as base64 of float16, and what is right as hexadecimal digits of bits."""
        losses = [
            base64.b64encode(a.astype("<f2").tobytes()).decode() for a in (self.dev, self.test)
        ]
        return [
            *losses,
            *(np.packbits(a).tobytes().hex() for a in (self.dev_right, self.test_right)),
        ]

    @classmethod
    def unpacked(cls, packed: Sequence[str]) -> View:
        """Read what :meth:`packed` returned."""
        dev, test = (np.frombuffer(base64.b64decode(a), "<f2").astype(float) for a in packed[:2])
        bits = [np.unpackbits(np.frombuffer(bytes.fromhex(a), np.uint8)) for a in packed[2:]]
        return cls(dev, bits[0][: len(dev)] == 1, test, bits[1][: len(test)] == 1)


@dataclass
class Trained:
    """Views, processor seconds of training, and the parameters of the best checkpoint."""

    views: dict[str, View] = field(default_factory=dict)
    seconds: float = 0.0
    best: Tensors = field(default_factory=dict)


def on_line(single: Tensors, ends: Sequence[Tensors], levels: Sequence[float]) -> Tensors:
    """Return theta_0 + sum l_k (theta_k - theta_0); heads that the single task lacks stay."""
    found = {}
    for name, tensor in ends[-1].items():
        start = single.get(name, tensor)
        moved = (
            level * (end.get(name, start) - start) for end, level in zip(ends, levels, strict=True)
        )
        found[name] = start + sum(moved) if tensor.is_floating_point() else tensor
    return found


def train_run(
    settings: Mapping[str, Any], folder: Path, single: Tensors, others: Sequence[Tensors]
) -> Trained:
    """Train a run and evaluate its views.

    Args:
        settings: Of the run.
        folder: For its files, deleted at the end.
        single: Best parameters of the single task; nothing without points on a line.
        others: Those of further tasks of which this is the last.
    """
    shutil.rmtree(folder, ignore_errors=True)
    found, labels = Trained(), data_labels(settings)
    with recording(found, labels, single, others):
        results = train(RunConfig(**settings, keep_model=False, patience=0, output=str(folder)))
    stored = [
        np.array(
            [
                results.kind.output(v)
                for v in read_stored(folder, s, results.kind, results.names_of(s)).values
            ]
        )
        for s in ("dev", "test")
    ]
    found.views["best"] = View.of(stored, labels)
    shutil.rmtree(folder)
    return found


@contextmanager
def recording(
    found: Trained, labels: Sequence[np.ndarray], single: Tensors, others: Sequence[Tensors]
) -> Iterator[None]:
    """Evaluate the late mean and points on lines at the end of the run trained in this context."""
    evaluate, load_best, run = TrainingLoop._evaluate, TrainingLoop._load_best, TrainingLoop.run
    late: list[Tensors] = []
    spent = 0.0

    def view(loop: TrainingLoop, tensors: Tensors) -> View:
        loop.training_step.encoder.load_tensors(tensors)
        autocast = loop.training_step.autocast
        return View.of([predict(loop, split, autocast) for split in ("dev", "test")], labels)

    def recorded_evaluate(loop: TrainingLoop) -> None:
        evaluate(loop)
        if loop.state.step > LAST * loop.total_steps:
            late.append(
                {k: v.detach().clone() for k, v in loop.training_step.encoder.tensors().items()}
            )

    def recorded_load_best(loop: TrainingLoop) -> None:
        nonlocal spent
        load_best(loop)
        begun = time.process_time()
        encoder = loop.training_step.encoder
        found.best = {k: v.detach().clone() for k, v in encoder.tensors().items()}
        means = {
            k: sum(one[k] for one in late) / len(late) if v.is_floating_point() else v
            for k, v in found.best.items()
        }
        found.views["late"] = view(loop, means)
        if single:
            found.views["middle"] = view(loop, on_line(single, [found.best], [0.5]))
        for levels in product(LEVELS[1:], repeat=1 + len(others)) if others else ():
            name = " ".join(f"{level:g}" for level in levels)
            found.views[name] = view(loop, on_line(single, [*others, found.best], levels))
        encoder.load_tensors(found.best)
        spent = time.process_time() - begun

    def timed_run(loop: TrainingLoop) -> Any:
        begun = time.process_time()
        state = run(loop)
        found.seconds = time.process_time() - begun - spent
        return state

    with (
        mock.patch.object(TrainingLoop, "_evaluate", recorded_evaluate),
        mock.patch.object(TrainingLoop, "_load_best", recorded_load_best),
        mock.patch.object(TrainingLoop, "run", timed_run),
        mock.patch("auxlearn.results.plots.plot_run"),
    ):
        yield


def write_sets(data: Path, folder: Path) -> None:
    """Write the sets for the pretrained encoder without repeats, once."""
    if (folder / "done").is_file():
        return
    for name in ("citation_intent", "imdb", "qqp", "ohsumed", "mnli", "paws", "imdb_cad"):
        splits = [load_dataset(str(data / name)).split(one) for one in ("test", "train", "dev")]
        if name == "citation_intent":
            whole = without_repeats(join(splits[0], join(splits[1], splits[2])))
            rest, test = hold_out(whole, 400 / len(whole), seed=0)
            splits = [test, *hold_out(rest, 0.1, seed=0)]
        elif name == "imdb_cad":
            own = load_dataset(str(data / "imdb"))
            splits = [without_repeats(one, *own.splits.values()) for one in splits]
        for number, split in enumerate(splits):
            kept = without_repeats(split, *splits[:number]) if number else split
            write_split(folder / name / f"{('test', 'train', 'dev')[number]}.jsonl", kept)
    (folder / "done").touch()


def without_repeats(split: Split, *others: Split) -> Split:
    """Return the first of equal texts, none with two labels, and none that another split has."""
    assert split.labels is not None
    keys, labels = text_keys(split), {}
    seen = {key for other in others for key in text_keys(other)}
    for key, label in zip(keys, split.labels, strict=True):
        labels.setdefault(key, set()).add(label)
    kept = []
    for index, key in enumerate(keys):
        if key not in seen and len(labels[key]) == 1:
            kept.append(index)
            seen.add(key)
    return split.select(kept)


@dataclass(frozen=True)
class Case:
    """A draw of a setting."""

    options: argparse.Namespace
    bed: Bed
    setting: Setting
    draw: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.bed.name, group_of(self.setting), self.draw

    def known(self) -> dict[str, Run]:
        """Return the recorded runs of the same labelled examples, by name."""
        return read_all(self.options.results).get(self.key, {})

    def of(self, task: str) -> Case:
        """Return the case of another task with the same labelled examples."""
        name = f"{group_of(self.setting)}, {task}"
        return replace(self, setting=next(o for o in self.bed.settings if o.name == name))

    def train_missing(self, what: float | str) -> None:
        """Train a share, or a seed of the single task, that has no record."""
        known, tasks = self.known(), tasks_of(self.setting)
        if isinstance(what, str) or len(tasks) == 1:
            run = what if isinstance(what, str) else f"{tasks[0]} {what:g}"
            if run not in known:
                self.train(run)
        elif what == 0.1:  # all that `meta` trains before it joins tasks is there
            *_, (run, weights) = meta_branches(Draw(known, tasks))
            if run not in known:
                self.train(run, weights)
        needed = {
            f"{t} 0.5" for o in self.bed.settings if group_of(o) == self.key[1] for t in tasks_of(o)
        }
        if needed <= known.keys():
            shutil.rmtree(self.models, ignore_errors=True)

    @property
    def models(self) -> Path:
        return Path(self.options.output, "models", *map(str, self.key))

    def parameters(self, run: str) -> Tensors:
        """Return the best parameters of a run, trained again where they are gone."""
        path = self.models / f"{run}.safetensors"
        if not path.is_file():
            self.train(run)
        return load_file(path)

    def train(self, run: str, weights: Weights = ()) -> None:
        """Train and record a run, with the points on lines that it ends."""
        task, _, number = run.rpartition(" ")
        variant = (
            Variant(0, restart=int(number))
            if task == "single"
            else Variant(0.5 if weights else float(number))
        )
        data = Path(
            self.options.output, "data", self.bed.name, folder_name(self.setting), str(self.draw)
        )
        sets = self.options.data if self.bed is TINY else self.options.output / "sets"
        write_draw(self.setting, self.draw, sets, data)
        base = {
            "encoder": str(self.options.encoder),
            "device": "cpu",
            "max_length": 64,
            **self.bed.run,
        }
        base["cache_dir"] = str(self.options.output / "cache")
        settings = settings_of(self.setting, self.draw, variant, data, base)
        if weights:
            settings["weights"] = {"fixed": {"alpha": list(weights[1:]), "mix": "steps"}}
        pairs = [
            tasks_of(o) for o in self.bed.settings if group_of(o) == self.key[1] and len(o.aux) > 1
        ]
        single, others = {}, []
        if variant.share == 0.5 and not weights:
            single = self.parameters(SINGLE)
            others = [
                self.of(one).parameters(f"{one} 0.5")
                for *first, last in pairs
                if last == task
                for one in first
            ]
        found = train_run(settings, self.options.output / "run", single, others)
        if run == SINGLE or any(run == f"{one} 0.5" for *first, _ in pairs for one in first):
            self.models.mkdir(parents=True, exist_ok=True)
            save_file(found.best, self.models / "new")
            (self.models / "new").rename(self.models / f"{run}.safetensors")
        if run not in self.known():
            views = {name: view.packed() for name, view in found.views.items()}
            line = {"key": self.key, "run": run, "seconds": round(found.seconds, 1), "views": views}
            append_jsonl(self.options.results, [line])
            print(time.strftime("%H:%M:%S"), *self.key, run, f"{found.seconds:.1f} s", flush=True)


@dataclass(frozen=True)
class Run:
    """A recorded run."""

    seconds: float
    views: Mapping[str, View]


Records = dict[tuple[str, str, int], dict[str, Run]]


def read_all(path: Path) -> Records:
    """Return all records; a line that a kill has cut off is left out."""
    return _read(path, path.stat().st_size if path.is_file() else 0)


@lru_cache(1)
def _read(path: Path, size: int) -> Records:
    found: Records = {}
    for one in read_jsonl(path):
        views = {name: View.unpacked(packed) for name, packed in one["views"].items()}
        found.setdefault(tuple(one["key"]), {})[one["run"]] = Run(one["seconds"], views)
    return found


#: A run and its view.
Point = tuple[str, str]


@dataclass(frozen=True)
class Draw:
    """Recorded runs of a draw, of which rules with some tasks choose."""

    runs: Mapping[str, Run]
    tasks: tuple[str, ...]

    def view(self, point: Point) -> View:
        return self.runs[point[0]].views[point[1]]

    def gain(self, point: Point, base: Point) -> Gain:
        """Return the gain of a point over another on dev, as `meta` computes it."""
        old, new = self.view(base), self.view(point)
        every = np.ones(len(old.dev))
        wrong = paired(~old.dev_right + 0.0, ~new.dev_right + 0.0, every)
        return Gain(paired(old.dev, new.dev, every), wrong)

    def best_loss(self, points: Sequence[Point], base: Point) -> Point:
        gains = {point: self.gain(point, base) for point in points if point != base}
        return best_of(gains, EVIDENCE) or base  # type: ignore[arg-type,return-value]

    def best_accuracy(self, points: Sequence[Point]) -> Point:
        """Return the first of the points with the best dev accuracy."""
        return max(points, key=lambda point: self.view(point).dev_right.mean())


#: What a rule takes, and the runs that it trains.
Choice = tuple[Point, Sequence[str]]


def meta_branches(draw: Draw) -> Iterator[tuple[str, Weights]]:
    """Yield run and weights of the branches of `meta` of 2026: 0.3, then 0.5 or 0.1, then all."""
    better, base = [], (SINGLE, "best")
    for number, task in enumerate(draw.tasks):
        first = draw.gain((f"{task} 0.3", "best"), base)
        second = 0.5 if first.loss.mean > 0 else 0.1
        runs = {
            f"{task} {share:g}": alone(number, share, len(draw.tasks)) for share in (0.3, second)
        }
        yield from runs.items()
        taken, _ = draw.best_loss([(run, "best") for run in runs], base)
        better += [runs[taken]] if taken != SINGLE else []
    if len(better) > 1:
        yield f"{' + '.join(draw.tasks)} together", together(better)


def meta(draw: Draw) -> Choice:
    runs = [run for run, _ in meta_branches(draw)]
    return draw.best_loss([(run, "best") for run in runs], (SINGLE, "best")), [SINGLE, *runs]


def line(
    draw: Draw, score: str, levels: Sequence[float], guard: bool = False, view: str = "best"
) -> Choice:
    """Choose among points of the lines from the single task to one run with each task."""
    base, points, runs = (SINGLE, view), {}, [SINGLE]
    for given in product(levels, repeat=len(draw.tasks)):
        used = [(task, level) for task, level in zip(draw.tasks, given, strict=True) if level]
        if len(used) > 1 and view == "best":
            points[f"{draw.tasks[-1]} 0.5", " ".join(f"{level:g}" for level in given)] = sum(given)
        elif len(used) == 1:
            points[f"{used[0][0]} 0.5", view if used[0][1] == 1 else "middle"] = sum(given)
    for task in draw.tasks:
        end = f"{task} 0.5", view
        runs.append(end[0])
        ends = (draw.view(base).dev.mean() + draw.view(end).dev.mean()) / 2
        gain = draw.gain(end, base).loss
        if guard and (
            draw.view((end[0], "middle")).dev.mean() > ends or abs(gain.mean) < gain.error
        ):
            runs.append(f"{task} 0.3")
            points[runs[-1], view] = 0.6  # after the middle, which is like it and is there already
    order = [base, *sorted(points, key=lambda point: points[point])]
    return (draw.best_accuracy(order) if score == "accuracy" else draw.best_loss(order, base)), runs


def seeds(draw: Draw, count: int) -> Choice:
    runs = [f"single {number}" for number in range(count)]
    return draw.best_accuracy([(run, "best") for run in runs]), runs


def single(draw: Draw, *views: str) -> Choice:
    return draw.best_accuracy([(SINGLE, view) for view in views]), [SINGLE]


ENDS = (0.0, 1.0)
LINES: dict[str, Any] = {
    "line, accuracy": partial(line, score="accuracy", levels=LEVELS),
    "ends, loss": partial(line, score="loss", levels=ENDS),
    "line, loss": partial(line, score="loss", levels=LEVELS),
}
GUARDED = {f"{name}, guard": partial(rule, guard=True) for name, rule in LINES.items()}
VIEWS: dict[str, Any] = {
    "ends, loss, late": partial(line, score="loss", levels=ENDS, view="late"),
    "single, late": lambda draw: single(draw, "late"),
    "single, best or late": lambda draw: single(draw, "best", "late"),
}
RESTARTS = {"3 restarts": partial(seeds, count=3), "5 restarts": partial(seeds, count=5)}
#: Tables: title, rules, shares and seeds that a draw needs to count.
TABLES: tuple[tuple[str, Mapping[str, Any], Sequence[float], int], ...] = (
    ("Rules of two runs", LINES | VIEWS, (0.5,), 1),
    ("All rules but restarts", {"meta": meta} | LINES | GUARDED | VIEWS, (0.1, 0.3, 0.5), 1),
    ("All rules", {"meta": meta} | LINES | GUARDED | VIEWS | RESTARTS, (0.1, 0.3, 0.5), 5),
)
AGAINST = ("meta", "single", "3 restarts")


@dataclass(frozen=True)
class Scored:
    """Test results of the rules on a draw."""

    right: Mapping[str, np.ndarray]  # of each example, by rule; "single" is the single task
    cost: Mapping[str, float]  # in runs with the task


def score(draw: Draw, rules: Mapping[str, Any]) -> Scored:
    """Apply rules to a draw."""
    right, cost = {"single": draw.view((SINGLE, "best")).test_right}, {"single": 0.0}
    unit = fmean(draw.runs[f"{task} 0.5"].seconds for task in draw.tasks)
    for name, rule in ({"single": single_task} | rules).items():
        point, runs = rule(draw)
        right[name] = draw.view(point).test_right
        cost[name] = sum(draw.runs[run].seconds for run in runs) / unit
    return Scored(right, cost)


def single_task(draw: Draw) -> Choice:
    return (SINGLE, "best"), [SINGLE]


def scores_of(
    bed: Bed, records: Records, rules: Mapping[str, Any], shares: Sequence[float], count: int
) -> dict[str, dict[int, Scored]]:
    """Apply rules to all draws that have the shares and so many seeds, by setting."""
    found: dict[str, dict[int, Scored]] = {}
    for setting, number in product(bed.settings, bed.draws):
        draw = Draw(records.get((bed.name, group_of(setting), number), {}), tasks_of(setting))
        needed = {f"{task} {share:g}" for task in draw.tasks for share in shares}
        needed |= {f"single {seed}" for seed in range(count)}
        if needed <= draw.runs.keys():
            found.setdefault(setting.name, {})[number] = score(draw, rules)
    return found


def compared(
    scored: Mapping[str, Mapping[int, Scored]], first: str, second: str
) -> tuple[float, float]:
    """Return the difference of two rules in points, the mean over data sets, and its p-value."""
    noises, means = [], []
    for data in dict.fromkeys(map(data_of, scored)):
        own = [draws for one, draws in scored.items() if data_of(one) == data]
        draws = sorted(set.intersection(*(set(one) for one in own)))
        if len(draws) < 3:
            continue
        rows = {
            (r, d): np.mean([one[d].right[r] for one in own], 0)
            for r in (first, second)
            for d in draws
        }
        scores = {r: {d: 100 * rows[r, d].mean() for d in draws} for r in (first, second)}
        values = 100 * np.array(list(rows.values()))
        places = {key: number for number, key in enumerate(rows)}
        column = Column(scores, places, np.cov(values) / values.shape[1], values.shape[1])
        noises.append(noise_of(column, {first: 1.0, second: -1.0}, draws))
        means.append(fmean(scores[first][d] - scores[second][d] for d in draws))
    return (fmean(means), max(mean_noise(noises).test(fmean(means)))) if means else (np.nan, np.nan)


def said(values: Sequence[float]) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:+.1f}" if error is None else f"{mean:+.1f} ± {error:.1f}"


def tables(records: Records) -> Iterator[str]:
    """Yield the tables of what has been recorded."""
    for bed, (title, rules, shares, count) in product(BEDS, TABLES):
        scored = scores_of(bed, records, rules, shares, count)
        if not scored:
            continue
        gains = {
            rule: {
                s: [100 * (o.right[rule].mean() - o.right["single"].mean()) for o in draws.values()]
                for s, draws in scored.items()
            }
            for rule in rules
        }
        yield f"**{title}, {bed.name}**: gain over the single task in points ± standard error."
        yield table(
            ["setting", "draws", "single", *rules],
            [
                [
                    s,
                    str(len(draws)),
                    f"{100 * fmean(o.right['single'].mean() for o in draws.values()):.1f}",
                    *(said(gains[rule][s]) for rule in rules),
                ]
                for s, draws in scored.items()
            ],
        )
        pairs = [
            (a, b)
            for b in AGAINST
            for a in ("meta", *rules)
            if a in rules and b in ("single", *rules) and a != b and (a not in RESTARTS)
        ]
        pairs += [("meta", "5 restarts")] if "5 restarts" in rules else []
        tests = {pair: compared(scored, *pair) for pair in pairs}
        corrected = dict(
            zip(tests, holm([1.0 if np.isnan(p) else p for _, p in tests.values()]), strict=True)
        )
        rows = []
        for rule in rules:
            means = [fmean(values) for values in gains[rule].values()]
            cost = fmean(o.cost[rule] for draws in scored.values() for o in draws.values())
            worst = min(gains[rule], key=lambda s: fmean(gains[rule][s]))
            cells = [
                f"{tests[rule, b][0]:+.1f} ({corrected[rule, b]:.2f})" if (rule, b) in tests else ""
                for b in (*AGAINST, "5 restarts")
            ]
            rows.append(
                [
                    rule,
                    f"{fmean(means):+.2f}",
                    f"{cost:.2f}",
                    f"{said(gains[rule][worst])} ({worst})",
                    *cells,
                ]
            )
        yield (
            "Mean gain over settings, cost, the setting with the least gain, and mean differences "
            "over data sets (p with Holm's correction):"
        )
        yield table(
            [
                "rule",
                "gain",
                "cost",
                "least",
                *(f"minus {one}" for one in (*AGAINST, "5 restarts")),
            ],
            rows,
        )


def main() -> int:
    """Train and report; exit code 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_ends", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with the data sets")
    parser.add_argument("--encoder", type=Path, metavar="DIR", help="the pretrained encoder")
    parser.add_argument("--output", type=Path, default=Path("runs/two_ends"), metavar="DIR")
    parser.add_argument("--results", type=Path, default=RESULTS / "two_ends.jsonl", metavar="FILE")
    parser.add_argument("--slices", type=int, nargs="+", default=range(len(SLICES)))
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no run after this")
    parser.add_argument("--no-run", action="store_true", help="print the tables")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    torch.set_num_threads(1)
    load_plugin(str(PLUGIN))
    try:
        if not options.no_run:
            write_text(
                options.results, "".join(json.dumps(o) + "\n" for o in read_jsonl(options.results))
            )
            write_sets(options.data, options.output / "sets")
        for bed, part, what in (
            [] if options.no_run else [SLICES[number] for number in options.slices]
        ):
            settings = [one for one in bed.settings if part in one.name]
            for draw, one, setting in product(bed.draws, what, settings):
                if time.monotonic() < end:
                    Case(options, bed, setting, draw).train_missing(one or SINGLE)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n\n".join(tables(read_all(options.results))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
