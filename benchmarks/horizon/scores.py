"""What a rule that compares runs on dev can know of a run, and what it would choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

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
#: predictions over it, or the mean of the parameters with those of the single task.
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


def predictions(run: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return class probabilities on dev and test by view."""
    dev, test = run["dev"], run["test"]
    right = [(one.argmax(1) == run["labels_dev"]).mean() for one in dev]
    best = int(np.argmax(np.where(np.isnan(test).any((1, 2)), -1, right)))
    last = max(1, math.ceil(len(dev) / 4))
    found = {
        "best": (dev[best], test[best]),
        "last": (dev[-1], test[-1]),
        "ensemble": (dev[-last:].mean(0), test[-last:].mean(0)),
    }
    for view in ("average", "midpoint"):
        if f"{view}_dev" in run:
            found[view] = (run[f"{view}_dev"], run[f"{view}_test"])
    return {view: pair for view, pair in found.items() if not np.isnan(pair[1]).any()}


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
    base = {v: losses(dev, labels) for v, (dev, _) in predictions(runs["single 0"]).items()}
    weights = example_weights(labels, balanced=False)
    found = []
    for name, run in sorted(runs.items()):
        views = predictions(run)
        truth = run["labels_dev"], run["labels_test"]
        gains: dict[str, dict[str, list[float]]] = {}
        for view, (dev, _) in views.items():
            if name.startswith("single") or view not in base:
                continue
            own = losses(dev, labels)
            gains[view] = {
                score: _rounded(paired_difference(base[view][score], own[score], weights))
                for score in SCORES
            }
        scores = [
            {
                v: round(float((pair[at].argmax(1) == truth[at]).mean()), 6)
                for v, pair in views.items()
            }
            for at in (0, 1)
        ]
        seconds = round(float(run["seconds"]), 1)
        found.append(Summary(encoder, setting, draw, name, seconds, *scores, gains))
    return found


def _rounded(difference: Any) -> list[float]:
    return [round(difference.mean, 8), round(difference.error, 8)]


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
