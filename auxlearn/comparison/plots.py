"""Plots of a comparison: scores, epochs to the best checkpoint, ranks over data sets, curves."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison.across import cliques
from auxlearn.comparison.curves import plot_curves, plot_wall_time, plot_weights
from auxlearn.comparison.figures import (
    label_columns,
    legend_below,
    legend_height,
    legend_name,
    print_figure,
    print_style,
    save_print,
    short,
    tidy,
)
from auxlearn.comparison.result import Block, ComparisonData, RankComparison
from auxlearn.comparison.scores import metric_title
from auxlearn.reporting.style import colour, marker

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_comparison(comparison: ComparisonData, folder: Path) -> list[Path]:
    """Write the plots of a comparison, each as PDF and PNG.

    ``scores``: mean and 95% interval over seeds and examples. ``ranks``: average ranks over data
    sets with Nemenyi's critical difference, with at least three methods on two data sets. With a
    panel for each data set, ``curves``: dev score by epoch; ``time``: best dev score so far by wall
    time of training; ``epochs``: epoch of the best checkpoint against the score (as in Fig. 3 of
    L3Masking). For each data set, ``weights``: weight of each objective by step. Curves are means
    over seeds, with their standard deviation.

    Args:
        comparison: What to draw.
        folder: Where the plots are written; created where it is missing.

    Returns:
        The files written.

    Raises:
        UserError: They cannot be written, or the record of a run is damaged.
    """
    drawings: dict[str, Callable[[Block], Figure | None]] = {
        "scores": _plot_scores,
        "curves": plot_curves,
        "time": plot_wall_time,
        "epochs": _plot_epochs,
    }
    written = []
    taken: set[str] = set()

    def save(figure: Figure, *parts: str) -> None:
        # "C++" and "C#" give one name, and some file systems know no capitals.
        found = _name(*parts)
        names = itertools.chain([found], (f"{found}-{number}" for number in itertools.count(2)))
        name = next(one for one in names if one.lower() not in taken)
        taken.add(name.lower())
        written.extend(save_print(figure, folder / name))

    with print_style():
        for block in comparison.blocks:
            for kind, draw in drawings.items():
                if (figure := draw(block)) is not None:
                    save(figure, kind, block.title)
            for found in block.across:
                if not math.isnan(found.ranks.critical_difference):
                    save(plot_ranks(found), "ranks", block.title, found.set, found.metric)
            for data in block.datasets:
                if (figure := plot_weights(data)) is not None:
                    alone = len(block.datasets) == 1
                    save(figure, "weights", "" if alone else data.name, block.title)
    return written


def _name(*parts: str) -> str:
    return re.sub(r"[^\w.-]+", "-", "-".join(filter(None, parts)))[:100].strip("-.")


def _plot_scores(block: Block) -> Figure:
    """Draw a panel for each column: methods from top to bottom, intervals from left to right."""
    columns = block.columns
    names = [short(name, 20) for name in block.methods]
    line = 0.15 if max(name.count("\n") for name in names) == 0 else 0.21
    figure, panels = print_figure(0.5 + line * max(3, len(names)), len(columns), sharey=True)
    for axes, column in zip(panels, columns, strict=True):
        for number, name in enumerate(block.methods):
            if name in column.scores:
                half = 100 * column.noises[name].half_width() or None
                axes.errorbar(
                    100 * column.means[name],
                    number,
                    xerr=half,
                    capsize=1.5,
                    elinewidth=0.8,
                    color=colour(number),
                    marker=marker(number),
                )
        where = column.dataset if column.set == "test" else f"{column.dataset}, {column.set}"
        axes.set_title(f"{short(where, 30)}\n{short(metric_title(column.metric), 30)} (%)")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        tidy(axes, "x")
    return figure


def plot_ranks(found: RankComparison) -> Figure:
    """Draw a critical-difference diagram (Demšar, 2006, figure 1).

    Methods stand at their average ranks, the best on the left; a bar joins those that do not differ
    significantly.
    """
    ranks, methods = found.ranks.ranks, len(found.ranks.ranks)
    order = sorted(ranks, key=lambda name: ranks[name])
    bars = cliques(found.ranks)
    left = order[: (methods + 1) // 2]
    labels = {name: f"{short(name, 18)}  {ranks[name]:.2f}" for name in order}
    height = 0.16 if not any("\n" in label for label in labels.values()) else 0.22
    depth = height * (len(left) + 1) + 0.09 * len(bars)
    figure, (axes,) = print_figure(0.75 + depth)
    axes.set_axis_off()
    span = methods - 1
    axes.set_xlim(1 - 0.62 * span, methods + 0.62 * span)
    axes.set_ylim(-depth, 0.55)
    thin: dict[str, Any] = {"color": "black", "linewidth": 0.7, "clip_on": False}
    axes.plot([1, methods], [0, 0], **thin)
    for rank in range(1, methods + 1):
        axes.plot([rank, rank], [0, 0.05], **thin)
        axes.text(rank, 0.07, str(rank), ha="center", va="bottom", fontsize=6)
    width = min(found.ranks.critical_difference, 2.1 * span)
    axes.plot([1, 1 + width], [0.3, 0.3], **thin)
    for end in (1, 1 + width):
        axes.plot([end, end], [0.27, 0.33], **thin)
    text = f"critical difference {found.ranks.critical_difference:.2f}"
    axes.text(1, 0.36, text, ha="left", va="bottom", fontsize=6)
    for number, name in enumerate(order):
        on_left = name in left
        line = number if on_left else methods - 1 - number
        y = -0.09 * len(bars) - height * (line + 1)
        end = 1 - 0.08 * span if on_left else methods + 0.08 * span
        axes.plot([ranks[name], ranks[name], end], [0, y, y], **thin)
        shift = -0.02 * span if on_left else 0.02 * span
        side = "right" if on_left else "left"
        axes.text(end + shift, y, labels[name], ha=side, va="center", fontsize=6, linespacing=0.8)
    for number, members in enumerate(bars):
        y = -0.06 - 0.09 * number
        ends = [ranks[members[0]] - 0.03, ranks[members[-1]] + 0.03]
        axes.plot(ends, [y, y], color="black", linewidth=2.2, solid_capstyle="butt")
    return figure


def _plot_epochs(block: Block) -> Figure | None:
    from matplotlib.ticker import MaxNLocator

    drawn = []
    for data in block.datasets:
        column = next((one for one in block.columns if one.dataset == data.name), None)
        methods = [one for one in data.methods if column and one.name in column.scores]
        if column is not None and methods:
            drawn.append((column, methods))
    if not drawn:
        return None
    names = list(block.methods)
    height = 1.9 if len(drawn) == 1 else 1.5
    figure, panels = print_figure(
        height, len(drawn), legend_height([legend_name(name) for name in names])
    )
    for axes, (column, methods) in zip(panels, drawn, strict=True):
        for method in methods:
            number = names.index(method.name)
            epochs = method.by_seed("epochs")
            by_seed = column.scores[method.name]
            x = [epochs[seed] for seed in by_seed]
            y = [100 * value for value in by_seed.values()]
            style: dict[str, Any] = {"color": colour(number), "marker": marker(number)}
            axes.scatter(x, y, s=6, alpha=0.4, linewidths=0, **style)
            axes.errorbar(
                float(np.mean(x)),
                float(np.mean(y)),
                xerr=float(np.std(x, ddof=1)) if len(x) > 1 else 0.0,
                yerr=float(np.std(y, ddof=1)) if len(y) > 1 else 0.0,
                capsize=1.5,
                elinewidth=0.8,
                markersize=5,
                label=legend_name(method.name),
                **style,
            )
        # From 0: where all seeds agree, an automatic range would show fractions of an epoch.
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel(f"{short(column.set)} {metric_title(column.metric)} (%)")
        axes.set_title(short(column.dataset, 70 if len(panels) == 1 else 30))
        tidy(axes)
    label = "epoch of the best checkpoint"
    label_columns(panels, f"{label} (mean ± s.d.)" if len(panels) == 1 else "best epoch")
    legend_below(figure, panels)
    return figure
