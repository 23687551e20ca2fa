"""Curves of training over seeds: dev score by epoch and by wall time, weights by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison.figures import (
    label_columns,
    legend_below,
    legend_height,
    legend_name,
    print_figure,
    short,
    tidy,
)
from auxlearn.comparison.result import Block, DatasetRuns
from auxlearn.comparison.runs import Method
from auxlearn.comparison.scores import metric_title
from auxlearn.errors import RunError
from auxlearn.metric_keys import Quantity
from auxlearn.reporting.style import colour, line_marker
from auxlearn.results.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: One curve of a run, ``(2, points)``: x ascending, then y.
Curve = np.ndarray


def mean_curve(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean and standard deviation over runs at every x that at least half of them reach.

    Args:
        curves: One of each run.

    Returns:
        x, mean and standard deviation, ``(points,)`` each.
    """
    found: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in curve.T:
            found.setdefault(float(x), []).append(float(y))
    points = sorted(x for x, values in found.items() if 2 * len(values) >= len(curves))
    spread = [np.std(found[x], ddof=1) if len(found[x]) > 1 else 0.0 for x in points]
    return np.array(points), np.array([np.mean(found[x]) for x in points]), np.array(spread)


def best_so_far(curves: Sequence[Curve]) -> list[Curve]:
    """Return the best value so far at common points; a run that has ended keeps its best.

    Args:
        curves: One of each run; the points begin where every run has a value.
    """
    begin = max(curve[0, 0] for curve in curves)
    points = np.unique(np.concatenate([curve[0] for curve in curves]))
    points = points[points >= begin]
    found = []
    for curve in curves:
        best = np.maximum.accumulate(curve[1])
        found.append(np.stack([points, best[np.searchsorted(curve[0], points, side="right") - 1]]))
    return found


def plot_curves(block: Block) -> Figure | None:
    """Draw the dev score of every method by epoch, a panel for each data set."""
    return _plot_dev(block, "epoch")


def plot_wall_time(block: Block) -> Figure | None:
    """Draw the best dev score so far of every method by wall time of training.

    The time of an evaluation is its part of the optimizer steps times the time of the training.
    """
    return _plot_dev(block, "time")


def _plot_dev(block: Block, by: str) -> Figure | None:
    drawn = []
    for data in block.datasets:
        metric = data.setting.get("metric", "accuracy")
        curves = {one.name: _dev_curves(one, metric, by) for one in data.methods}
        curves = {name: found for name, found in curves.items() if found}
        if curves:
            drawn.append((data.name, metric, curves))
    if not drawn:
        return None
    names = [name for name in block.methods if any(name in curves for *_, curves in drawn)]
    height = 1.9 if len(drawn) == 1 else 1.5
    figure, panels = print_figure(
        height, len(drawn), legend_height([legend_name(name) for name in names])
    )
    for axes, (dataset, metric, curves) in zip(panels, drawn, strict=True):
        scale, unit = 1.0, "s"
        if by == "time":
            longest = max(float(curve[0, -1]) for found in curves.values() for curve in found)
            scale, unit = (60.0, "min") if longest > 300 else (1.0, "s")
            scale, unit = (3600.0, "h") if longest > 18_000 else (scale, unit)
            curves = {name: best_so_far(found) for name, found in curves.items()}
        for name, found in curves.items():
            points, means, spread = mean_curve(found)
            # The best changes at evaluations only, and ends where the last run ended.
            number, step = names.index(name), by == "time"
            _band(axes, points / scale, 100 * means, 100 * spread, number, legend_name(name), step)
        title = metric_title(metric)
        axes.set_xlabel("epoch" if by == "epoch" else f"training time ({unit})")
        axes.set_ylabel(f"dev {title} (%)" if by == "epoch" else f"best dev {title}\nso far (%)")
        axes.set_xlim(left=0)
        axes.set_title(short(dataset, 70 if len(panels) == 1 else 30))
        tidy(axes)
    legend_below(figure, panels)
    return figure


def plot_weights(data: DatasetRuns) -> Figure | None:
    """Draw the weight of each objective by step, for methods with more than one objective."""
    found = {one.name: _weight_curves(one) for one in data.methods}
    found = {name: weights for name, weights in found.items() if len(weights) > 1}
    if not found:
        return None
    objectives = list(dict.fromkeys(name for weights in found.values() for name in weights))
    beside = 0.25 + legend_height(objectives)
    figure, panels = print_figure(1.15, len(found), beside, sharex=True, sharey=True)
    highest = 1.0
    for axes, (name, weights) in zip(panels, found.items(), strict=True):
        for objective, curves in weights.items():
            points, means, spread = mean_curve(curves)
            number = objectives.index(objective)
            _band(axes, points, means, spread, number, legend_name(objective))
            highest = max(highest, float(means.max()))
        axes.set_title(short(name, 28))
        tidy(axes)
    panels[0].set_ylim(-0.03, 1.03 * highest)  # lines at 0 and 1 are not cut in half
    panels[0].set_xlim(left=0)
    label_columns(panels, "optimizer step")
    figure.supylabel("weight", fontsize=7)
    legend_below(figure, panels)
    return figure


def _band(
    axes: Axes,
    x: np.ndarray,
    means: np.ndarray,
    spread: np.ndarray,
    number: int,
    name: str,
    step: bool = False,
) -> None:
    """Draw a mean with its standard deviation as a band."""
    # Beyond the palette, where colours repeat, lines are dashed.
    dashes: Any = ("-", "--", ":")[number // 6 % 3]
    style: dict[str, Any] = {"drawstyle": "steps-post"} if step else {}
    axes.plot(
        x, means, dashes, color=colour(number), marker=line_marker(x.tolist()), label=name, **style
    )
    if spread.any():
        kind: dict[str, Any] = {"step": "post"} if step else {}
        axes.fill_between(
            x, means - spread, means + spread, color=colour(number), alpha=0.15, linewidth=0, **kind
        )


def _entries(method: Method, seed: int) -> list[dict[str, Any]]:
    """Return the rows of ``metrics.jsonl`` of a run."""
    run = RunFolder(method.runs[seed])
    entries = run.read_metrics()
    for number, entry in enumerate(entries, 1):
        values = [v for key, v in entry.items() if key in ("step", "epoch") or "/" in key]
        if "step" not in entry or not all(isinstance(v, int | float) for v in values):
            raise RunError(f"{run.metrics_path} is damaged: line {number} has no numbers")
    return entries


def _dev_curves(method: Method, metric: str, by: str) -> list[Curve]:
    curves = []
    for seed, results in method.results.items():
        key = Quantity.DEV.key(metric)
        entries = [one for one in _entries(method, seed) if key in one and "epoch" in one]
        if not entries:
            continue
        second = results.seconds.get("training", 0.0) / max(1, results.steps)
        x = [one["epoch"] if by == "epoch" else one["step"] * second for one in entries]
        curves.append(np.array([x, [one[key] for one in entries]], dtype=float))
    return curves


def _weight_curves(method: Method) -> dict[str, list[Curve]]:
    found: dict[str, list[Curve]] = {}
    for seed in method.runs:
        points: dict[str, list[tuple[float, float]]] = {}
        for entry in _entries(method, seed):
            for objective, value in Quantity.WEIGHT.read(entry).items():
                points.setdefault(objective, []).append((entry["step"], value))
        for objective, values in points.items():
            found.setdefault(objective, []).append(np.array(values, dtype=float).T)
    return found
