"""``python -m benchmarks.two_ends``: cheaper rules for a learned share, by ``two_ends.md``.

Trains what has no record yet, slice by slice, and appends a line to the results after every run:
the same command goes on after it has ended in any way. ``--no-run`` trains nothing. At the end the
tables of what is recorded are written into the README and ``docs/results/two_ends.md``.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from auxlearn import RunConfig, train
from auxlearn.comparison.statistics import (
    MINIMUM_SEEDS,
    Column,
    Noise,
    holm,
    mean_noise,
    noise_of,
)
from auxlearn.core.errors import UserError
from auxlearn.core.files import write_text
from auxlearn.core.registry import load_plugin
from auxlearn.data.dataset import Split
from auxlearn.data.load import load_dataset
from auxlearn.data.splits import hold_out, text_keys
from auxlearn.evaluation.evaluator import Evaluator
from auxlearn.objectives.base import outputs_of
from auxlearn.results.folder import append_jsonl, read_jsonl
from auxlearn.results.predictions import read_stored
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.whole_runs.paired import paired_difference
from benchmarks.beds import (
    SETTINGS,
    Setting,
    data_labels,
    join,
    settings_of,
    write_draw,
    write_split,
)
from benchmarks.common import RESULTS
from benchmarks.tables import mean_and_error, table, write_section
from benchmarks.three_runs import (
    Gain,
    Weights,
    alone,
    best_of,
    calibrated_log_losses,
    log_losses,
    together,
)

README = Path(__file__).parents[1] / "README.md"
PAGE = README.parent / "docs" / "results" / "two_ends.md"
#: Registers ``shuffled_labels``.
PLUGIN = README.parent / "examples" / "clean_vs_shuffled.py"
Tensors = dict[str, Tensor]
SINGLE = "single 0"
#: Standard errors of the log loss by which a run must be better, as in `meta`.
EVIDENCE = 0.5
#: Points on the line between the single task and a run with a task, but for the ends of that line.
LEVELS = (0.0, 0.5, 1.0)
#: Share of the steps after which the parameters of evaluations are averaged.
LAST = 0.75


@dataclass(frozen=True)
class Bed:
    """Settings with their draws, and the settings of all runs."""

    name: str
    draws: range
    settings: tuple[Setting, ...]
    run: Mapping[str, Any]


def minilm_settings(labels: int, dev: int) -> tuple[Setting, ...]:
    """Return the settings with the pretrained encoder: five sets, with the tasks of each."""
    sets = {"ACL-ARC": "citation_intent", "IMDb": "imdb", "QQP": "qqp", "Ohsumed": "ohsumed"}
    related = {"IMDb": "imdb_cad", "QQP": "paws", "MNLI": "qqp"}
    found = []
    for name, data in {**sets, "MNLI": "mnli"}.items():
        for task, aux, reads in (
            ("random_mlm, corpus", "random_mlm", "corpus"),
            ("simcse, corpus", "simcse", "corpus"),
            ("l3mask", "l3mask", "labelled"),
            ("shuffled_labels", "shuffled_labels", "labelled"),
            ("related", "supervised", "related"),
            ("random_mlm + simcse", "random_mlm simcse", "corpus"),
        ):
            further = related.get(name) if reads == "related" else None
            if further or reads != "related":
                title, tasks = f"{name} {labels}, {task}", tuple(aux.split())
                found.append(Setting(title, data, labels, tasks, reads, further, dev=dev))  # type: ignore[arg-type]
    return tuple(found)


SIMCSE = Setting("pydocs 150, simcse, corpus", None, 150, ("simcse",), "corpus")
PRETRAINED = {"epochs": 6, "batch_size": 8, "learning_rate": 1e-4, "precision": "bf16"}
SMALL = {"epochs": 10, "batch_size": 16, "encoder": "tiny"}
TINY = Bed("tiny", range(200, 210), (SIMCSE, *SETTINGS), SMALL)
MINILM = Bed("minilm", range(200, 205), minilm_settings(200, 300), PRETRAINED)
HALF = Bed("minilm, half dev", range(200, 205), minilm_settings(100, 100), PRETRAINED)
BEDS = (TINY, MINILM, HALF)
SEEDS = tuple(f"single {number}" for number in range(1, 5))
#: Bed, part of the names of settings, and what is trained of each draw: shares, or seeds.
SLICES: tuple[tuple[Bed, str, Sequence[float | str]], ...] = (
    (TINY, "", (0.0, 0.5, 0.3, 0.1)),
    (MINILM, "random_mlm, corpus", (0.0, 0.5)),
    (MINILM, "", (0.0, 0.5)),
    (MINILM, "random_mlm, corpus", (0.3, 0.1)),
    (MINILM, "", (0.3, 0.1)),
    (TINY, "", SEEDS),
    (MINILM, "", SEEDS[:2]),
    (MINILM, "", SEEDS[2:]),
    (HALF, "random_mlm, corpus", (0.0, 0.5)),
    (HALF, "", (0.0, 0.5)),
    (HALF, "", (0.3, 0.1)),
    (HALF, "", SEEDS),
)


def key_of(bed: Bed, setting: Setting, draw: int) -> tuple[str, str, int]:
    """Return the key of labelled examples, which settings share with their single task."""
    return bed.name, setting.name.partition(", ")[0], draw


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

    def packed(self) -> list[str]:
        """Return losses as base64 of float16, and what is right as hexadecimal digits of bits."""
        losses = [one.astype("<f2").tobytes() for one in (self.dev, self.test)]
        right = [np.packbits(one).tobytes().hex() for one in (self.dev_right, self.test_right)]
        return [*(base64.b64encode(one).decode() for one in losses), *right]

    @classmethod
    def unpacked(cls, packed: Sequence[str]) -> View:
        """Read what :meth:`packed` returned."""
        dev, test = (np.frombuffer(base64.b64decode(a), "<f2").astype(float) for a in packed[:2])
        bits = [np.unpackbits(np.frombuffer(bytes.fromhex(a), np.uint8)) for a in packed[2:]]
        return cls(dev, bits[0][: len(dev)] == 1, test, bits[1][: len(test)] == 1)


@dataclass
class Run:
    """A run: its views and the processor seconds of training; when trained, its best parameters."""

    views: dict[str, View] = field(default_factory=dict)
    seconds: float = 0.0
    best: Tensors = field(default_factory=dict)


def on_line(single: Tensors, ends: Sequence[Tensors], levels: Sequence[float]) -> Tensors:
    """Return theta_0 + sum l_k (theta_k - theta_0); heads that the single task lacks stay."""
    found = dict(ends[-1])
    for name, tensor in ends[-1].items():
        if tensor.is_floating_point():
            start = single.get(name, tensor)
            steps = [end.get(name, start) - start for end in ends]
            found[name] = start + sum(a * step for a, step in zip(levels, steps, strict=True))
    return found


def train_run(
    settings: Mapping[str, Any], folder: Path, single: Tensors, others: Sequence[Tensors]
) -> Run:
    """Train a run and evaluate its views.

    Args:
        settings: Of the run.
        folder: For its files, deleted at the end.
        single: Best parameters of the single task; nothing without points on a line.
        others: Those of further tasks of which this is the last.
    """
    shutil.rmtree(folder, ignore_errors=True)
    found, labels = Run(), data_labels(settings)
    with recording(found, labels, single, others):
        results = train(RunConfig(**settings, keep_model=False, patience=0, output=str(folder)))
    stored = []
    for split in ("dev", "test"):
        values = read_stored(folder, split, results.kind, results.names_of(split)).values
        stored.append(np.array([results.kind.output(one) for one in values]))
    found.views["best"] = View.of(stored, labels)
    shutil.rmtree(folder)
    return found


@contextmanager
def recording(
    found: Run, labels: Sequence[np.ndarray], single: Tensors, others: Sequence[Tensors]
) -> Iterator[None]:
    """Evaluate the late mean and points on lines at the end of the run trained in this context."""
    evaluate, load_best, run = TrainingLoop._evaluate, TrainingLoop._load_best, TrainingLoop.run
    late: list[Tensors] = []
    spent = 0.0

    def copied(loop: TrainingLoop) -> Tensors:
        tensors = loop.training_step.encoder.tensors()
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def view(loop: TrainingLoop, tensors: Tensors) -> View:
        loop.training_step.encoder.load_tensors(tensors)
        return View.of([predict(loop, split) for split in ("dev", "test")], labels)

    def recorded_evaluate(loop: TrainingLoop) -> None:
        evaluate(loop)
        if loop.state.step > LAST * loop.total_steps:
            late.append(copied(loop))

    def recorded_load_best(loop: TrainingLoop) -> None:
        nonlocal spent
        load_best(loop)
        begun = time.process_time()
        found.best = copied(loop)
        mean = on_line(late[0], late, [1 / len(late)] * len(late))
        found.views["late"] = view(loop, mean)
        if single:
            found.views["middle"] = view(loop, on_line(single, [found.best], [0.5]))
        for levels in product(LEVELS[1:], repeat=1 + len(others)) if others else ():
            name = " ".join(f"{level:g}" for level in levels)
            found.views[name] = view(loop, on_line(single, [*others, found.best], levels))
        loop.training_step.encoder.load_tensors(found.best)
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


def predict(loop: TrainingLoop, name: str) -> np.ndarray:
    """Return the class probabilities of the present parameters on a split."""
    evaluator: Evaluator = loop.evaluate.func.__self__  # type: ignore[attr-defined]
    encoder, autocast = loop.training_step.encoder, loop.training_step.autocast
    texts = evaluator.texts(evaluator.dataset.splits[name])
    with encoder.evaluating():
        return np.asarray(outputs_of(encoder.kind, encoder.classify, texts, (), None, autocast))


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
    keys = text_keys(split)
    labels: dict[tuple[str, ...], set[int]] = {}
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
        """Key of the labelled examples, which settings share with their single task."""
        return key_of(self.bed, self.setting, self.draw)

    @property
    def models(self) -> Path:
        """Folder of the parameters that later runs of the same labelled examples need."""
        return Path(self.options.output, "models", *map(str, self.key))

    def train_missing(self, what: float | str) -> None:
        """Train a share, or a seed of the single task, that has no record."""
        known, tasks = read_all(self.options.results).get(self.key, {}), tasks_of(self.setting)
        weights: Weights = ()
        if isinstance(what, str):
            run = what
        elif what == 0.1:  # the last that `meta` reads, which no rule does elsewhere
            missing = missing_of_meta(Draw(known, tasks))
            if missing is None:
                return
            run, weights = missing if len(tasks) > 1 else (missing[0], ())
        elif len(tasks) == 1:
            run = f"{tasks[0]} {what:g}"
        else:
            return
        if run not in known:
            self.train(run, weights)
        same = [one for one in self.bed.settings if key_of(self.bed, one, self.draw) == self.key]
        if {f"{task} 0.5" for one in same for task in tasks_of(one)} <= {*known, run}:
            shutil.rmtree(self.models, ignore_errors=True)

    def parameters(self, run: str) -> Tensors:
        """Return the best parameters of a run, trained again where they are gone."""
        path = self.models / f"{run}.safetensors"
        if not path.is_file():
            name = f"{self.key[1]}, {run.removesuffix(' 0.5')}"
            same = [one for one in self.bed.settings if one.name == name]
            replace(self, setting=(same or [self.setting])[0]).train(run)
        return load_file(path)

    def train(self, run: str, weights: Weights = ()) -> None:
        """Train and record a run, with the points on lines that it ends."""
        task, _, number = run.rpartition(" ")
        share = 0.0 if task == "single" else 0.5 if weights else float(number)
        restart = 0 if share else int(number)
        output = self.options.output
        folder = self.setting.name.replace(" ", "_").replace(",", "")
        data = Path(output, "data", self.bed.name, folder, str(self.draw))
        sets = self.options.data if self.bed is TINY else output / "sets"
        write_draw(self.setting, self.draw, sets, data)
        base = {"encoder": str(self.options.encoder), "max_length": 64, **self.bed.run}
        base |= {"device": "cpu", "cache_dir": str(output / "cache")}
        settings = settings_of(self.setting, self.draw, share, restart, data, base)
        if weights:
            settings["weights"] = {"fixed": {"alpha": list(weights[1:]), "mix": "steps"}}
        same = [one for one in self.bed.settings if key_of(self.bed, one, self.draw) == self.key]
        joined = [tasks_of(one) for one in same if len(one.aux) > 1]
        single: Tensors = {}
        others: list[Tensors] = []
        if share == 0.5 and not weights:
            single = self.parameters(SINGLE)
            first = [one for *first, last in joined for one in first if last == task]
            others = [self.parameters(f"{one} 0.5") for one in first]
        found = train_run(settings, output / "run", single, others)
        if run in (SINGLE, *(f"{one} 0.5" for *first, _ in joined for one in first)):
            self.models.mkdir(parents=True, exist_ok=True)
            save_file(found.best, self.models / "new")
            (self.models / "new").rename(self.models / f"{run}.safetensors")
        if run not in read_all(self.options.results).get(self.key, {}):
            views = {name: view.packed() for name, view in found.views.items()}
            line = {"key": self.key, "run": run, "seconds": round(found.seconds, 1), "views": views}
            append_jsonl(self.options.results, [line])
            print(time.strftime("%H:%M:%S"), *self.key, run, f"{found.seconds:.1f} s", flush=True)


Records = dict[tuple[str, str, int], dict[str, Run]]


def read_all(path: Path) -> Records:
    """Return all records; a line that a kill has cut off is left out."""
    return _read(path, path.stat().st_size if path.is_file() else 0)


@lru_cache(1)
def _read(path: Path, size: int) -> Records:
    found: Records = {}
    for one in read_jsonl(path):
        views = {name: View.unpacked(packed) for name, packed in one["views"].items()}
        found.setdefault(tuple(one["key"]), {})[one["run"]] = Run(views, one["seconds"])
    return found


#: A run and its view.
Point = tuple[str, str]
BASE: Point = (SINGLE, "best")
#: What a rule takes, and the runs that it trains.
Choice = tuple[Point, Sequence[str]]


@dataclass(frozen=True)
class Draw:
    """Recorded runs of a draw, of which rules with some tasks choose."""

    runs: Mapping[str, Run]
    tasks: tuple[str, ...]

    def view(self, point: Point) -> View:
        return self.runs[point[0]].views[point[1]]

    def gain(self, point: Point, base: Point = BASE) -> Gain:
        """Return the gain of a point over another on dev, as `meta` computes it."""
        old, new = self.view(base), self.view(point)
        every = np.ones(len(old.dev))
        wrong = paired_difference(~old.dev_right + 0.0, ~new.dev_right + 0.0, every)
        return Gain(paired_difference(old.dev, new.dev, every), wrong)

    def best_loss(self, points: Sequence[Point], base: Point = BASE) -> Point:
        gains = {point: self.gain(point, base) for point in points if point != base}
        return best_of(gains, EVIDENCE) or base  # type: ignore[arg-type,return-value]

    def best_accuracy(self, points: Sequence[Point]) -> Point:
        """Return the first of the points with the best dev accuracy."""
        return max(points, key=lambda point: self.view(point).dev_right.mean())


def meta_branches(draw: Draw) -> Iterator[tuple[str, Weights]]:
    """Yield runs and weights of `meta` of this registration: 0.3, then 0.5 or 0.1, then all."""
    better = []
    for number, task in enumerate(draw.tasks):
        first = f"{task} 0.3"
        runs = {first: alone(number, 0.3, len(draw.tasks))}
        yield first, runs[first]
        share = 0.5 if draw.gain((first, "best")).loss.mean > 0 else 0.1
        runs[f"{task} {share:g}"] = alone(number, share, len(draw.tasks))
        yield f"{task} {share:g}", runs[f"{task} {share:g}"]
        taken, _ = draw.best_loss([(run, "best") for run in runs])
        better += [runs[taken]] if taken != SINGLE else []
    if len(better) > 1:
        yield f"{' + '.join(draw.tasks)} together", together(better)


def missing_of_meta(draw: Draw) -> tuple[str, Weights] | None:
    """Return the first run of `meta` without a record, which decides on those after it."""
    return next((branch for branch in meta_branches(draw) if branch[0] not in draw.runs), None)


def meta(draw: Draw) -> Choice:
    runs = [run for run, _ in meta_branches(draw)]
    return draw.best_loss([(run, "best") for run in runs]), [SINGLE, *runs]


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
        run = f"{task} 0.5"
        runs.append(run)
        ends = (draw.view(base).dev.mean() + draw.view((run, view)).dev.mean()) / 2
        gain = draw.gain((run, view), base).loss
        barrier = draw.view((run, "middle")).dev.mean() > ends
        if guard and (barrier or abs(gain.mean) < gain.error):
            runs.append(f"{task} 0.3")
            points[runs[-1], view] = 0.6  # after the middle, which is like it and is there already
    order = [base, *sorted(points, key=lambda point: points[point])]
    return (draw.best_accuracy(order) if score == "accuracy" else draw.best_loss(order, base)), runs


def seeds(draw: Draw, count: int) -> Choice:
    runs = [f"single {number}" for number in range(count)]
    return draw.best_accuracy([(run, "best") for run in runs]), runs


def single(draw: Draw, *views: str) -> Choice:
    return draw.best_accuracy([(SINGLE, view) for view in views]), [SINGLE]


Rule = Callable[[Draw], Choice]
ENDS = (0.0, 1.0)
LINES: dict[str, Rule] = {
    "line, accuracy": partial(line, score="accuracy", levels=LEVELS),
    "ends, loss": partial(line, score="loss", levels=ENDS),
    "line, loss": partial(line, score="loss", levels=LEVELS),
}
GUARDED: dict[str, Rule] = {
    "line, accuracy, guard": partial(line, score="accuracy", levels=LEVELS, guard=True),
    "ends, loss, guard": partial(line, score="loss", levels=ENDS, guard=True),
    "line, loss, guard": partial(line, score="loss", levels=LEVELS, guard=True),
}
VIEWS: dict[str, Rule] = {
    "single": lambda draw: single(draw, "best"),
    "ends, loss, late": partial(line, score="loss", levels=ENDS, view="late"),
    "single, late": lambda draw: single(draw, "late"),
    "single, best or late": lambda draw: single(draw, "best", "late"),
}
RESTARTS: dict[str, Rule] = {f"{n} restarts": partial(seeds, count=n) for n in (3, 5)}
SHARED: dict[str, Rule] = {"meta": meta, **LINES, **GUARDED, **VIEWS}
#: Title of a table, its rules, and the shares and the number of seeds that a draw needs to count.
TABLES: tuple[tuple[str, dict[str, Rule], Sequence[float], int], ...] = (
    ("Rules of two runs", LINES | VIEWS, (0.5,), 1),
    ("All rules but restarts", SHARED, (0.3, 0.5), 1),
    ("All rules", SHARED | RESTARTS, (0.3, 0.5), 5),
)
AGAINST = ("meta", "single", *RESTARTS)


#: By rule, what is right on test and the cost in runs with the task.
Scored = dict[str, tuple[np.ndarray, float]]


def score(draw: Draw, rules: Mapping[str, Rule]) -> Scored:
    """Apply rules to a draw."""
    unit = fmean(draw.runs[f"{task} 0.5"].seconds for task in draw.tasks)
    choices = {name: rule(draw) for name, rule in rules.items()}
    return {
        name: (draw.view(point).test_right, sum(draw.runs[run].seconds for run in runs) / unit)
        for name, (point, runs) in choices.items()
    }


def score_all(
    records: Records,
    bed: Bed,
    settings: Sequence[Setting],
    rules: Mapping[str, Rule],
    shares: Sequence[float],
    count: int,
) -> dict[str, dict[int, Scored]]:
    """Apply rules to the draws of settings that have all runs of theirs: these shares, ``count``
    single tasks and, for `meta`, what it trains after its first share.
    """
    scored: dict[str, dict[int, Scored]] = {}
    for setting, number in product(settings, bed.draws):
        draw = Draw(records.get(key_of(bed, setting, number), {}), tasks_of(setting))
        needed = {f"{task} {share:g}" for task in draw.tasks for share in shares}
        needed |= {f"single {seed}" for seed in range(count)}
        complete = needed <= draw.runs.keys()
        if complete and (meta not in rules.values() or missing_of_meta(draw) is None):
            scored.setdefault(setting.name, {})[number] = score(draw, rules)
    return scored


def mean_cost(scored: Mapping[str, Mapping[int, Scored]], rule: str) -> float:
    return fmean(one[rule][1] for draws in scored.values() for one in draws.values())


def compared(scored: Mapping[str, Mapping[int, Scored]], pair: Point) -> tuple[float, Noise] | None:
    """Return the difference of two rules in points, the mean over data sets, and its noise;
    nothing where no data set has enough draws.
    """
    noises, means = [], []
    for data in dict.fromkeys(name.split()[0] for name in scored):
        own = [draws for name, draws in scored.items() if name.split()[0] == data]
        draws = sorted(set.intersection(*map(set, own)))
        if len(draws) < MINIMUM_SEEDS:
            continue
        places = {key: number for number, key in enumerate(product(pair, draws))}
        right = 100 * np.array([np.mean([o[d][r][0] for o in own], 0) for r, d in places])
        scores = {r: {d: right[places[r, d]].mean() for d in draws} for r in pair}
        column = Column(scores, places, np.cov(right) / right.shape[1], right.shape[1])
        noises.append(noise_of(column, dict(zip(pair, (1.0, -1.0), strict=True)), draws))
        means.append(fmean(scores[pair[0]][d] - scores[pair[1]][d] for d in draws))
    return (fmean(means), mean_noise(noises)) if means else None


#: Rules of the table in the README, with the shares and the number of seeds that a draw needs.
ON_REAL_SETS: dict[str, tuple[Rule, Sequence[float], int]] = {
    "a share of 0.5": (lambda draw: ((run := f"{draw.tasks[0]} 0.5", "best"), [run]), (0.5,), 1),
    "`meta`": (LINES["line, accuracy"], (0.5,), 1),
    "`meta` before: three runs": (meta, (0.3, 0.5), 1),
    "three restarts": (RESTARTS["3 restarts"], (0.5,), 3),
    "five restarts": (RESTARTS["5 restarts"], (0.5,), 5),
}

#: Rules of that table, and the restarts that cost about as much.
EQUAL_COST = (("`meta`", "three restarts"), ("`meta` before: three runs", "five restarts"))


def on_real_sets(records: Records) -> str:
    """Return the table of the README: the pretrained encoder with `random_mlm` on real sets. Rules
    that lack runs are left out.
    """
    settings = [one for one in MINILM.settings if "random_mlm, corpus" in one.name]
    single = {"single": VIEWS["single"]}

    def score_rules(*names: str) -> dict[str, dict[int, Scored]]:
        """Score rules and the single task; return nothing if a draw lacks a run of theirs."""
        rules, shares, counts = zip(*(ON_REAL_SETS[name] for name in names), strict=True)
        rules_by_name = {**single, **dict(zip(names, rules, strict=True))}
        needed = sorted(set().union(*shares))
        scored = score_all(records, MINILM, settings, rules_by_name, needed, max(counts))
        complete = sum(map(len, scored.values())) == len(MINILM.draws) * len(settings)
        return scored if complete else {}

    scored = score_all(records, MINILM, settings, single, (0.5,), 1)
    alone = [
        100 * fmean(one["single"][0].mean() for one in scored[s.name].values()) for s in settings
    ]
    cells = [f"{value:.1f}" for value in (*alone, fmean(alone), mean_cost(scored, "single"))]
    rows = [["the single task: accuracy", *cells]]
    for name in ON_REAL_SETS:
        if scored := score_rules(name):
            cells = differences(scored, (name, "single"))
            rows.append([name, *cells, f"{mean_cost(scored, name):.1f}"])
    for name, restarts in EQUAL_COST:
        if scored := score_rules(name, restarts):
            rows.append([f"{name}, minus {restarts}", *differences(scored, (name, restarts)), ""])
    return table(["", *(one.name.split()[0] for one in settings), "mean", "cost"], rows)


def differences(scored: Mapping[str, Mapping[int, Scored]], pair: Point) -> list[str]:
    """Return the difference of two rules, in points ± half of the 95% interval, by setting and in
    the mean.
    """
    tests = [compared({name: draws}, pair) for name, draws in scored.items()]
    tests.append(compared(scored, pair))
    return [f"{test[0]:+.1f} ± {test[1].half_width():.1f}" for test in tests if test]


def gain_by_setting(
    scored: Mapping[str, Mapping[int, Scored]], rule: str
) -> dict[str, tuple[float, float]]:
    """Return the gain over the single task in points, and its standard error over draws."""
    found = {}
    for name, draws in scored.items():
        gains = [100 * (one[rule][0].mean() - one["single"][0].mean()) for one in draws.values()]
        found[name] = fmean(gains), stdev(gains) / len(gains) ** 0.5
    return found


def decision(records: Records) -> str:
    """Return the table of what decides: the gains of each rule, its cost, and whether it can become
    the default of `meta`.
    """
    beds = (MINILM, TINY)
    every = [score_all(records, bed, bed.settings, SHARED, (0.3, 0.5), 1) for bed in beds]
    means: dict[str, list[float]] = {}
    rows = []
    for rule in ("meta", *LINES, *GUARDED):
        by_bed = [gain_by_setting(scored, rule) for scored in every]
        means[rule] = [fmean(mean for mean, _ in gains.values()) for gains in by_bed]
        cost = fmean(mean_cost(scored, rule) for scored in every)
        limits = {
            "gains less": any(a < b - 0.3 for a, b in zip(means[rule], means["meta"], strict=True)),
            "costs more": cost > 1.6,
            "loses": any(m < -max(e, 0.3) for gains in by_bed for m, e in gains.values()),
        }
        against = ", ".join(name for name, true in limits.items() if true) or "yes"
        gains = [f"{mean:.2f}" for mean in (*means[rule], fmean(means[rule]))]
        rows.append([f"`{rule}`", *gains, f"{cost:.2f}", "" if rule == "meta" else against])
    titles = [
        f"gain, {bed.name} ({sum(map(len, scored.values()))} draws of {len(scored)} settings)"
        for bed, scored in zip(beds, every, strict=True)
    ]
    return table(["rule", *titles, "mean", "cost", "can be the default"], rows)


def tables(records: Records) -> Iterator[str]:
    """Yield the tables of what has been recorded."""
    for bed, (title, rules, shares, count) in product(BEDS, TABLES):
        if scored := score_all(records, bed, bed.settings, rules, shares, count):
            yield f"**{title}, {bed.name}**: gain over the single task in points ± standard error."
            yield from _tables(scored, [name for name in rules if name != "single"])


def _tables(scored: Mapping[str, Mapping[int, Scored]], rules: Sequence[str]) -> Iterator[str]:
    rows, gains = [], {}
    for name, draws in scored.items():
        alone = [100 * one["single"][0].mean() for one in draws.values()]
        for rule in rules:
            found = [100 * one[rule][0].mean() for one in draws.values()]
            gains[rule, name] = [a - b for a, b in zip(found, alone, strict=True)]
        cells = [mean_and_error(gains[rule, name]) for rule in rules]
        rows.append([name, str(len(draws)), f"{fmean(alone):.1f}", *cells])
    yield table(["setting", "draws", "single", *rules], rows)
    known = next(iter(next(iter(scored.values())).values()))
    pairs = [(a, b) for a, b in product(rules, AGAINST) if b in known and a not in RESTARTS]
    pairs = [(a, b) for a, b in pairs if a != b and (a == "meta" or b != "5 restarts")]
    tests = {pair: test for pair in pairs if (test := compared(scored, pair))}
    p_values = [max(noise.test(mean)) for mean, noise in tests.values()]
    corrected = dict(zip(tests, holm(p_values), strict=True))
    rows = []
    for rule in rules:
        means = {name: fmean(gains[rule, name]) for name in scored}
        cost = mean_cost(scored, rule)
        worst = min(means, key=lambda name: means[name])
        least = f"{mean_and_error(gains[rule, worst])} ({worst})"
        cells = [
            f"{tests[rule, b][0]:+.1f} ({corrected[rule, b]:.2f})" if (rule, b) in corrected else ""
            for b in AGAINST
        ]
        rows.append([rule, f"{fmean(means.values()):+.2f}", f"{cost:.2f}", least, *cells])
    yield (
        "Mean gain over settings, cost in runs with the task, the setting with the least gain, and "
        "differences from other rules, means over data sets (p with Holm's correction):"
    )
    yield table(["rule", "gain", "cost", "least", *(f"minus {one}" for one in AGAINST)], rows)


def main() -> int:
    """Train and report; exit code 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_ends", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with the data sets")
    parser.add_argument("--encoder", type=Path, metavar="DIR", help="the pretrained encoder")
    parser.add_argument("--output", type=Path, default=Path("runs/two_ends"), metavar="DIR")
    parser.add_argument("--results", type=Path, default=RESULTS / "two_ends.jsonl", metavar="FILE")
    parser.add_argument("--slices", type=int, nargs="+", default=[*range(len(SLICES))])
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after this")
    parser.add_argument("--no-run", action="store_true", help="write the tables alone")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    try:
        if not options.no_run:
            torch.set_num_threads(1)
            load_plugin(str(PLUGIN))
            whole = "".join(json.dumps(one) + "\n" for one in read_jsonl(options.results))
            write_text(options.results, whole)  # without a line that was cut off
            write_sets(options.data, options.output / "sets")
            for bed, part, what in [SLICES[number] for number in options.slices]:
                settings = [one for one in bed.settings if part in one.name]
                for draw, one, setting in product(bed.draws, what, settings):
                    if time.monotonic() < end:
                        Case(options, bed, setting, draw).train_missing(one or SINGLE)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    records = read_all(options.results)
    write_section(README, "two_ends", [on_real_sets(records)])
    write_section(PAGE, "decision", [decision(records)])
    write_section(PAGE, "two_ends", [*tables(records)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
