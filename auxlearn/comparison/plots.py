"""Plots of a comparison: scores, epochs to the best checkpoint, ranks over data sets, curves."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison.across import cliques
from auxlearn.comparison.curves import plot_curves, plot_wall_time, plot_weights
from auxlearn.comparison.figures import (
    common_title,
    legend_below,
    print_figure,
    print_style,
    save_print,
    short,
    tidy,
)
from auxlearn.comparison.result import AVERAGE, Block, ComparisonData, DatasetRuns, RankComparison
from auxlearn.comparison.scores import metric_title
from auxlearn.reporting.style import colour, marker

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_comparison(comparison: ComparisonData, folder: Path) -> list[Path]:
    """Write the plots of a comparison, each as PDF and PNG.

    ``scores``: mean and 95% interval over seeds and examples. ``ranks``: average ranks over data
    sets with Nemenyi's critical difference, with at least three methods on two data sets. For each
    data set, ``curves``: dev score by epoch; ``time``: best dev score so far by wall time of
    training; ``weights``: weight of each objective by step; ``epochs``: epoch of the best
    checkpoint against the score (as in Fig. 3 of L3Masking). Curves are means over seeds, with
    their standard deviation.

    Args:
        comparison: What to draw.
        folder: Where the plots are written; created where it is missing.

    Returns:
        The files written.

    Raises:
        UserError: They cannot be written, or the record of a run is damaged.
    """
    drawings: dict[str, Callable[[DatasetRuns], Figure | None]] = {
        "curves": plot_curves,
        "time": plot_wall_time,
        "weights": plot_weights,
    }
    written = []
    with print_style():
        for block in comparison.blocks:
            written += save_print(_plot_scores(block), folder / _name("scores", block.title))
            for found in block.across:
                if not math.isnan(found.ranks.critical_difference):
                    name = _name("ranks", block.title, found.set, found.metric)
                    written += save_print(plot_ranks(found), folder / name)
            for data in block.datasets:
                place = (data.name if len(block.datasets) > 1 else "", block.title)
                for kind, draw in drawings.items():
                    if (figure := draw(data)) is not None:
                        written += save_print(figure, folder / _name(kind, *place))
                if (figure := _plot_epochs(block, data)) is not None:
                    written += save_print(figure, folder / _name("epochs", *place))
    return written


def _name(*parts: str) -> str:
    return re.sub(r"[^\w.-]+", "-", "-".join(filter(None, parts)))[:100].strip("-.")


def _plot_scores(block: Block) -> Figure:
    """Draw a panel for each column: methods from top to bottom, intervals from left to right."""
    columns = block.columns
    across = min(2, len(columns))
    rows = -(-len(columns) // across)
    names = [short(name, 20) for name in block.methods]
    height = 0.3 + rows * (0.45 + 0.15 * max(3, len(names)))
    figure, panels = print_figure(height, rows, across, sharey=True)
    for axes, column in zip(panels, columns, strict=False):
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
    for axes in panels[len(columns) :]:
        axes.set_visible(False)
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
    depth = 0.16 * (len(left) + 1) + 0.09 * len(bars)
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
        y = -0.09 * len(bars) - 0.16 * (line + 1)
        end = 1 - 0.08 * span if on_left else methods + 0.08 * span
        axes.plot([ranks[name], ranks[name], end], [0, y, y], **thin)
        label = f"{short(name, 18)}  {ranks[name]:.2f}"
        shift = -0.02 * span if on_left else 0.02 * span
        side = "right" if on_left else "left"
        axes.text(end + shift, y, label, ha=side, va="center", fontsize=6, linespacing=0.8)
    for number, members in enumerate(bars):
        y = -0.06 - 0.09 * number
        ends = [ranks[members[0]] - 0.03, ranks[members[-1]] + 0.03]
        axes.plot(ends, [y, y], color="black", linewidth=2.2, solid_capstyle="butt")
    return figure


def _plot_epochs(block: Block, data: DatasetRuns) -> Figure | None:
    from matplotlib.ticker import MaxNLocator

    column = next(
        (one for one in block.columns if one.dataset == data.name and one.dataset != AVERAGE), None
    )
    methods = [one for one in data.methods if column and one.name in column.scores]
    if column is None or not methods:
        return None
    figure, (axes,) = print_figure(2.2 + 0.1 * len(methods))
    for number, method in enumerate(methods):
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
            label=short(method.name),
            **style,
        )
    # From 0: where all seeds agree, an automatic range would show fractions of an epoch.
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch of the best checkpoint (mean ± s.d.)")
    axes.set_ylabel(f"{short(column.set)} {metric_title(column.metric)} (%)")
    axes.set_title(common_title([data.name]))
    tidy(axes)
    legend_below(figure, axes)
    return figure
