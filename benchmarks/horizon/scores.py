"""What a rule that compares runs on dev can know of a run, and what it would choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from auxlearn.training.whole_runs.paired import (
    calibrated_log_losses,
    example_weights,
    log_losses,
    paired_difference,
)
from benchmarks.horizon.bed import FOR_KIND, SETTINGS

#: Which parameters or predictions of a run are used: those of the best evaluation on dev, of the
#: last one, the mean of the parameters over the last quarter of the steps, the mean of the
#: predictions over it, or the mean of the parameters with those of the single task. The others than
#: the best were computed at the revision that the page names.
VIEWS = ("best", "last", "average", "ensemble", "midpoint")
#: Loss of an example by which two runs are compared.
SCORES = ("calibrated", "log loss", "expected accuracy", "accuracy")


@dataclass(frozen=True)
class Summary:
    """A trained run, as far as rules need it."""

    encoder: str
    setting: str
    draw: int
    variant: str
    seconds: float  # of training
    dev: Mapping[str, float]  # accuracy by view
    test: Mapping[str, float]
    #: By view and score, mean and standard error of the single task's loss minus this run's on dev;
    #: empty for the single task itself.
    gains: Mapping[str, Mapping[str, Sequence[float]]]


def losses(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the loss of each example by score."""
    return {
        "calibrated": calibrated_log_losses(probabilities, labels),
        "log loss": log_losses(probabilities, labels, 1.0),
        "expected accuracy": 1 - probabilities[np.arange(len(labels)), labels],
        "accuracy": (probabilities.argmax(1) != labels).astype(float),
    }


def summarise(folder: Path, encoder: str, setting: str, draw: int) -> list[Summary]:
    """Return the summaries of the runs of a draw; nothing without its single task."""
    runs = {path.stem.replace("_", " "): dict(np.load(path)) for path in folder.glob("*.npz")}
    if "single 0" not in runs:
        return []
    labels = runs["single 0"]["labels_dev"]
    base = losses(runs["single 0"]["dev"], labels)
    weights = example_weights(labels, balanced=False)
    summaries = []
    for name, run in sorted(runs.items()):
        gains: dict[str, dict[str, list[float]]] = {}
        if not name.startswith("single"):
            by_score = losses(run["dev"], labels)
            differences = {s: paired_difference(base[s], by_score[s], weights) for s in SCORES}
            gains["best"] = {
                score: [round(found.mean, 8), round(found.error, 8)]
                for score, found in differences.items()
            }
        dev, test = (
            {"best": round(float((run[split].argmax(1) == run[f"labels_{split}"]).mean()), 6)}
            for split in ("dev", "test")
        )
        seconds = round(float(run["seconds"]), 1)
        summaries.append(Summary(encoder, setting, draw, name, seconds, dev, test, gains))
    return summaries


#: Runs of one draw by variant.
Draw = Mapping[str, Summary]

#: Orders in which shares are tried: all of them, or a second one that depends on the first.
ORDERS: dict[str, Sequence[str]] = {
    "0.3, then 0.1 or 0.5": (),
    "0.1, 0.3": ("steps 0.1", "steps 0.3"),
    "0.3, 0.5": ("steps 0.3", "steps 0.5"),
    "0.1, 0.3, 0.5": ("steps 0.1", "steps 0.3", "steps 0.5"),
}
DEFAULT_ORDER = next(iter(ORDERS))


def tried(draw: Draw, order: str, score: str, view: str) -> list[str]:
    """Return the runs that a rule trains beside the single task."""
    if ORDERS[order]:
        return list(ORDERS[order])
    better = draw["steps 0.3"].gains[view][score][0] > 0
    return ["steps 0.3", "steps 0.5" if better else "steps 0.1"]


def taken(draw: Draw, order: str, score: str, view: str, evidence: float) -> str:
    """Return the run that a rule takes."""
    found = {}
    for name in tried(draw, order, score, view):
        mean, error = draw[name].gains[view][score]
        correct, correct_error = draw[name].gains[view]["accuracy"]
        if mean > evidence * error and correct >= -correct_error:
            found[name] = mean
    return max(found, key=lambda name: found[name]) if found else "single 0"


def gain(draw: Draw, name: str, view: str) -> float:
    """Return by how many points a run is above the single task on test."""
    return 100 * (draw[name].test[view] - draw["single 0"].test[view])


def by_draw(
    summaries: Sequence[Summary], encoder: str, needed: Sequence[str]
) -> dict[str, dict[int, Draw]]:
    """Return the draws that have all the variants that are needed, by setting.

    Settings of the same labelled examples share the runs of the single task.
    """
    found: dict[str, dict[int, dict[str, Summary]]] = {}
    labelled = {setting.name: (setting.data, setting.train) for setting in SETTINGS}
    for one in summaries:
        if one.encoder == encoder:
            found.setdefault(one.setting, {}).setdefault(one.draw, {})[one.variant] = one
    for setting, draws in found.items():
        for other in (n for n in found if labelled.get(n, n) == labelled.get(setting, setting)):
            for number, draw in draws.items():
                single = found[other].get(number, {}).items()
                draw.update(
                    {n: one for n, one in single if n.startswith("single") and n not in draw}
                )
    return {
        setting: whole
        for setting, draws in found.items()
        if (whole := {n: d for n, d in sorted(draws.items()) if set(needed) <= set(d)})
    }


def is_positive(draws: Mapping[int, Draw], view: str, shares: Sequence[str]) -> bool | None:
    """Whether there is a gain to find: of the best share, above two standard errors.

    Only draws that no rule is scored on count; ``None`` without at least three.
    """
    own = [draw for number, draw in draws.items() if number in FOR_KIND]
    if len(own) < 3:
        return None
    gains = [[gain(draw, share, view) for draw in own] for share in shares]
    best = max(gains, key=fmean)
    return fmean(best) > 2 * stdev(best) / math.sqrt(len(best))


def restarts(draw: Draw, view: str, count: int) -> float:
    """Return the gain of the best by dev of some seeds of the single task over their mean.

    The mean is over all choices of ``count`` of the seeds that were trained.
    """
    single = [one for name, one in draw.items() if name.startswith("single")]
    best = [max(some, key=lambda one: one.dev[view]) for some in combinations(single, count)]
    return 100 * fmean(one.test[view] for one in best) - 100 * fmean(o.test[view] for o in single)
