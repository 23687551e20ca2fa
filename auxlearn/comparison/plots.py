"""Plots of a comparison: scores, epochs to the best checkpoint, and weights of the objectives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison.compare import Comparison, SettingComparison
from auxlearn.comparison.statistics import mean_interval
from auxlearn.metric_keys import Quantity
from auxlearn.reporting.style import (
    METRIC_TITLES,
    colour,
    line_marker,
    marker,
    new_figure,
    save_figure,
    style_axes,
)
from auxlearn.results.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write three plots for each setting: ``scores-``, ``epochs-`` and ``weights-``.

    Scores are bars with 95% intervals of the mean over seeds. Epochs are the epoch of the best
    checkpoint against the score, one small marker for each seed and a larger one for the mean (as
    in Fig. 3 of L3Masking). Weights are the mean over seeds of each objective's weight, for methods
    with more than one objective.

    Args:
        comparison: What to draw.
        folder: Where the plots are written; created where it is missing.

    Returns:
        The files written.

    Raises:
        UserError: They cannot be written.
    """
    written = []
    for setting in comparison.settings:
        title = re.sub(r"[^\w.-]+", "-", setting.title)
        figures = {
            "scores": _plot_scores(setting),
            "epochs": _plot_epochs(setting),
            "weights": _plot_weights(setting),
        }
        written += [
            save_figure(figure, folder / f"{name}-{title}.png")
            for name, figure in figures.items()
            if figure is not None
        ]
    return written


def _plot_scores(setting: SettingComparison) -> Figure:
    sets = list(dict.fromkeys(metric.key[0] for metric in setting.metrics))
    metrics = list(dict.fromkeys(metric.key[1] for metric in setting.metrics))
    methods = [method for method in setting.methods if method.runs]
    figure, panels = new_figure(setting.title, len(metrics))
    width = 0.8 / len(methods)
    for axes, metric in zip(panels, metrics, strict=True):
        for number, method in enumerate(methods):
            scored = [i for i, name in enumerate(sets) if method.scores.get((name, metric))]
            values = [list(method.scores[sets[i], metric].values()) for i in scored]
            axes.bar(
                np.array(scored) + (number - (len(methods) - 1) / 2) * width,
                [100 * float(np.mean(value)) for value in values],
                width=0.9 * width,
                yerr=[100 * mean_interval(value) for value in values],
                capsize=3,
                error_kw={"elinewidth": 1},
                color=colour(number),
                label=method.name,
            )
        axes.set_xticks(range(len(sets)), sets)
        axes.set_ylabel(f"{METRIC_TITLES[metric]} (%)\nmean, 95% interval")
        # The interval of few seeds can extend beyond the range of a percentage.
        axes.set_ylim(0, min(100.0, axes.get_ylim()[1]))
        style_axes(axes)
        axes.grid(visible=False, axis="x")
        if axes is not panels[0]:  # all panels have the same methods in the same colours
            axes.legend_ = None
    return figure


def _plot_epochs(setting: SettingComparison) -> Figure:
    from matplotlib.ticker import MaxNLocator

    metric: Any = setting.setting.get("metric", "accuracy")
    name = "test" if any(one.key[0] == "test" for one in setting.metrics) else "dev"
    figure, (axes,) = new_figure(setting.title, 1)
    methods = [method for method in setting.methods if method.scores.get((name, metric))]
    for number, method in enumerate(methods):
        by_seed = method.scores[name, metric]
        epochs = [method.epochs[seed] for seed in by_seed]
        scores = [100 * value for value in by_seed.values()]
        style: dict[str, Any] = {"color": colour(number), "marker": marker(number)}
        axes.scatter(epochs, scores, s=18, alpha=0.5, **style)
        axes.errorbar(
            float(np.mean(epochs)),
            float(np.mean(scores)),
            xerr=float(np.std(epochs, ddof=1)) if len(epochs) > 1 else 0.0,
            yerr=float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0,
            capsize=3,
            markersize=9,
            label=method.name,
            **style,
        )
    # From 0: where all seeds agree, an automatic range would show fractions of an epoch.
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch of the best checkpoint (mean ± standard deviation)")
    axes.set_ylabel(f"{name} {METRIC_TITLES[metric]} (%)")
    style_axes(axes)
    return figure


def _plot_weights(setting: SettingComparison) -> Figure | None:
    by_method = {one.name: _mean_weights(list(one.runs.values())) for one in setting.methods}
    by_method = {name: weights for name, weights in by_method.items() if len(weights) > 1}
    if not by_method:
        return None
    figure, panels = new_figure(setting.title, len(by_method))
    for axes, (name, weights) in zip(panels, by_method.items(), strict=True):
        for number, (objective, (steps, means)) in enumerate(weights.items()):
            axes.plot(
                steps, means, color=colour(number), marker=line_marker(steps), label=objective
            )
        axes.set_title(name, fontsize=9)
        axes.set_ylabel("weight (mean)")
        axes.set_ylim(-0.03, 1.03)  # lines at 0 and 1 are not cut in half
        style_axes(axes)
    panels[-1].set_xlabel("step")
    return figure


def _mean_weights(runs: Sequence[Path]) -> dict[str, tuple[list[int], list[float]]]:
    """Return by objective the steps and the mean weight over the runs that reached each step."""
    found: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        for entry in RunFolder(run).read_metrics():
            for objective, value in Quantity.WEIGHT.read(entry).items():
                found.setdefault(objective, {}).setdefault(entry["step"], []).append(value)
    return {
        name: (sorted(steps), [float(np.mean(steps[step])) for step in sorted(steps)])
        for name, steps in found.items()
    }
