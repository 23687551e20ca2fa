"""Plots of a comparison, in print size: scores, dev curves, best epochs, ranks, weights."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison.methods import Method
from auxlearn.comparison.result import Block, DatasetRuns, RankComparison
from auxlearn.comparison.statistics import cliques
from auxlearn.core.metric_names import Quantity
from auxlearn.kinds.metrics import metric_of, metric_title
from auxlearn.results.figures import (
    PRINT_DPI,
    PRINT_FONT,
    PRINT_WIDTH,
    colour,
    figure_of,
    figure_style,
    legend_below,
    legend_height,
    legend_name,
    line_marker,
    marker,
    save_figure,
    short,
)
from auxlearn.results.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: One curve of a run, ``(2, points)``: x ascending, then y.
Curve = np.ndarray


def plot_comparison(blocks: Sequence[Block], folder: Path) -> list[Path]:
    """Write the plots of a comparison as PDF for papers and as PNG for the screen. Curves are means
    over seeds, with their standard deviation; ``epochs`` is drawn as in Fig. 3 of L3Masking.
    """
    written = []
    taken: set[str] = set()
    with figure_style(PRINT_FONT):
        for names, figure in figures_of(blocks):
            # "C++" and "C#" give one name, and some file systems know no capitals.
            stem = re.sub(r"[^\w.-]+", "-", "-".join(filter(None, names)))[:100].strip("-.")
            free = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
            name = next(name for name in free if name.lower() not in taken)
            taken.add(name.lower())
            written += [
                save_figure(figure, folder / f"{name}.{form}", PRINT_DPI) for form in ("pdf", "png")
            ]
    return written


def figures_of(blocks: Sequence[Block]) -> Iterator[tuple[tuple[str, ...], Figure]]:
    """Yield what each plot is of, and the plot; within :func:`figure_style`."""
    for block in blocks:
        kinds = {"scores": _plot_scores, "curves": _plot_dev, "epochs": plot_epochs}
        for kind, draw in kinds.items():
            if (figure := draw(block)) is not None:
                yield (kind, block.title), figure
        for ranks in block.across:
            if not math.isnan(ranks.ranks.critical_difference):
                yield ("ranks", block.title, ranks.set, ranks.metric), plot_ranks(ranks)
        for data in block.datasets:
            if (figure := plot_weights(data)) is not None:
                alone = len(block.datasets) == 1
                yield ("weights", "" if alone else data.name, block.title), figure


def factor(metric: str) -> float:
    """Return 100 for a metric that is drawn in percent, 1 for an error."""
    return 1.0 if metric_of(metric).is_error else 100.0


def in_percent(metric: str) -> str:
    """Return what follows the title of a metric that is drawn in percent."""
    return "" if metric_of(metric).is_error else " (%)"


def _plot_scores(block: Block) -> Figure:
    """Draw a panel for each column: methods from top to bottom, intervals from left to right."""
    columns = block.columns
    names = [short(name, 20) for name in block.methods]
    line = 0.21 if any("\n" in name for name in names) else 0.15
    figure, panels = _panels(0.5 + line * max(3, len(names)), len(columns), sharey=True)
    for axes, column in zip(panels, columns, strict=True):
        scale = factor(column.metric)
        for number, name in enumerate(block.methods):
            if name in column.scores:
                mean, (low, high) = column.means[name], column.interval(name)
                errors = None if low == high else scale * np.abs([[mean - low], [high - mean]])
                axes.errorbar(scale * mean, number, xerr=errors, **_style(number))
        where = column.dataset if column.set == "test" else f"{column.dataset}, {column.set}"
        percent = in_percent(column.metric)
        axes.set_title(f"{short(where, 30)}\n{short(metric_title(column.metric), 30)}{percent}")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(False, axis="y")
    return figure


def _plot_dev(block: Block) -> Figure | None:
    """Draw a panel for each data set: the dev score by epoch."""
    drawn = []
    for data in block.datasets:
        metric = data.setting.get("metric", "accuracy")
        curves = {method.name: _dev_curves(method, metric) for method in data.methods}
        curves = {name: of_runs for name, of_runs in curves.items() if of_runs}
        if curves:
            drawn.append((data.name, metric, curves))
    if not drawn:
        return None
    names = [name for name in block.methods if any(name in curves for *_, curves in drawn)]
    figure, panels = _dataset_panels([name for name, *_ in drawn], names)
    for axes, (_, metric, curves) in zip(panels, drawn, strict=True):
        for name, of_runs in curves.items():
            _draw_mean(axes, of_runs, names.index(name), name, factor(metric))
        axes.set_xlabel("epoch")
        axes.set_ylabel(f"dev {metric_title(metric)}{in_percent(metric)}")
        axes.set_xlim(left=0)
    legend_below(figure, panels)
    return figure


def plot_weights(data: DatasetRuns) -> Figure | None:
    """Draw the weight of each objective by step, for methods whose weights change."""
    by_method = {method.name: _weight_curves(method) for method in data.methods}
    moving = {
        name: weights
        for name, weights in by_method.items()
        if any(np.ptp(curve[1]) for curves in weights.values() for curve in curves)
    }
    if not moving:
        return None
    objectives = list(dict.fromkeys(name for weights in moving.values() for name in weights))
    figure, panels = _panels(
        1.15, len(moving), 0.25 + legend_height(objectives), sharex=True, sharey=True
    )
    highest = 1.0
    for axes, (name, weights) in zip(panels, moving.items(), strict=True):
        for objective, curves in weights.items():
            means = _draw_mean(axes, curves, objectives.index(objective), objective)
            highest = max(highest, float(means.max()))
        axes.set_title(short(name, 28))
    panels[0].set_ylim(-0.03, 1.03 * highest)  # lines at 0 and 1 are not cut in half
    panels[0].set_xlim(left=0)
    _label_columns(panels, "optimizer step")
    figure.supylabel("weight", fontsize=PRINT_FONT)
    legend_below(figure, panels)
    return figure


def plot_epochs(block: Block) -> Figure | None:
    """Draw a panel for each data set: the score of each run by the epoch of its best checkpoint."""
    from matplotlib.ticker import MaxNLocator

    drawn = []
    for data in block.datasets:
        column = next((column for column in block.columns if column.dataset == data.name), None)
        methods = [method for method in data.methods if column and method.name in column.scores]
        if column is not None and methods:
            drawn.append((column, methods))
    if not drawn:
        return None
    names = list(block.methods)
    figure, panels = _dataset_panels([column.dataset for column, _ in drawn], names)
    for axes, (column, methods) in zip(panels, drawn, strict=True):
        for method in methods:
            style = _style(names.index(method.name))
            epochs = method.by_seed(lambda results: results.best_epoch)
            by_seed = column.scores[method.name]
            x = [epochs[seed] for seed in by_seed]
            y = [factor(column.metric) * value for value in by_seed.values()]
            axes.plot(x, y, style["marker"], color=style["color"], markersize=2.5, alpha=0.4)
            axes.errorbar(
                float(np.mean(x)),
                float(np.mean(y)),
                xerr=float(np.std(x, ddof=1)) if len(x) > 1 else 0.0,
                yerr=float(np.std(y, ddof=1)) if len(y) > 1 else 0.0,
                markersize=5,
                label=legend_name(method.name),
                **style,
            )
        # From 0: where all seeds agree, an automatic range would show fractions of an epoch.
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        title = f"{short(column.set)} {metric_title(column.metric)}"
        axes.set_ylabel(f"{title}{in_percent(column.metric)}")
    whole = "epoch of the best checkpoint (mean ± s.d.)"
    _label_columns(panels, whole if len(panels) == 1 else "best epoch")
    legend_below(figure, panels)
    return figure


def plot_ranks(comparison: RankComparison) -> Figure:
    """Draw a critical-difference diagram (Demšar, 2006, figure 1): methods at their average ranks,
    the best on the left; a bar joins those that do not differ significantly.
    """
    ranks, methods = comparison.ranks.ranks, len(comparison.ranks.ranks)
    order = sorted(ranks, key=lambda name: ranks[name])
    bars = cliques(comparison.ranks)
    left = order[: (methods + 1) // 2]
    labels = {name: f"{short(name, 18)}  {ranks[name]:.2f}" for name in order}
    height = 0.22 if any("\n" in label for label in labels.values()) else 0.16
    depth = height * (len(left) + 1) + 0.09 * len(bars)
    figure, (axes,) = _panels(0.75 + depth, 1)
    axes.set_axis_off()
    first, last = 1, methods
    if methods > 10:
        first, last = math.floor(ranks[order[0]]), math.ceil(ranks[order[-1]])
    span = max(1, last - first)
    axes.set_xlim(first - 0.62 * span, last + 0.62 * span)
    axes.set_ylim(-depth, 0.55)

    def line(x: Sequence[float], y: Sequence[float], width: float = 0.7) -> None:
        axes.plot(x, y, color="black", linewidth=width, clip_on=False, solid_capstyle="butt")

    line([first, last], [0, 0])
    for rank in range(first, last + 1):
        line([rank, rank], [0, 0.05])
        if (rank - first) % math.ceil((span + 1) / (10 if last <= 10 else 6)) == 0:  # none touch
            axes.text(rank, 0.07, str(rank), ha="center", va="bottom", fontsize=6)
    width = min(comparison.ranks.critical_difference, 2.1 * span)
    line([first, first + width], [0.3, 0.3])
    for end in (first, first + width):
        line([end, end], [0.27, 0.33])
    text = f"critical difference {comparison.ranks.critical_difference:.2f}"
    axes.text(first, 0.36, text, ha="left", va="bottom", fontsize=6)
    for number, name in enumerate(order):
        side, edge, row = (-1, first, number) if name in left else (1, last, methods - 1 - number)
        y = -0.09 * len(bars) - height * (row + 1)
        end = edge + side * 0.08 * span
        line([ranks[name], ranks[name], end], [0, y, y])
        axes.text(
            end + side * 0.02 * span,
            y,
            labels[name],
            ha="right" if side < 0 else "left",
            va="center",
            fontsize=6,
            linespacing=0.8,
        )
    for number, members in enumerate(bars):
        y = -0.06 - 0.09 * number
        ends = [ranks[members[0]] - 0.004 * span, ranks[members[-1]] + 0.004 * span]
        line(ends, [y, y], 2.2)
    return figure


def _panels(
    height: float, panels: int, beside: float = 0.0, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of one column of a paper, with at most two panels in a row."""
    columns = min(2, panels)
    rows = -(-panels // columns)
    return figure_of(PRINT_WIDTH, beside + rows * height, panels, columns, **options)


def _dataset_panels(datasets: Sequence[str], names: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each data set, and a legend of so many series below."""
    alone = len(datasets) == 1
    figure, panels = _panels(1.9 if alone else 1.5, len(datasets), legend_height(names))
    for axes, dataset in zip(panels, datasets, strict=True):
        axes.set_title(short(dataset, 70 if alone else 30))
    return figure, panels


def _label_columns(panels: Sequence[Axes], label: str) -> None:
    """Label the lowest x axis of each column; a label of the figure would overlap the legend."""
    for axes in panels[-min(2, len(panels)) :]:
        axes.set_xlabel(label)
        axes.tick_params(labelbottom=True)


def _style(number: int) -> dict[str, Any]:
    """Return how the point of a method with its error bars looks."""
    return {"color": colour(number), "marker": marker(number), "capsize": 1.5, "elinewidth": 0.8}


def mean_curve(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean and standard deviation over runs at each x that half of them reach."""
    values: dict[float, list[float]] = defaultdict(list)
    for curve in curves:
        for x, y in curve.T.tolist():
            values[x].append(y)
    points = sorted(x for x, known in values.items() if 2 * len(known) >= len(curves))
    spread = [np.std(values[x], ddof=1) if len(values[x]) > 1 else 0.0 for x in points]
    return np.array(points), np.array([np.mean(values[x]) for x in points]), np.array(spread)


def _draw_mean(
    axes: Axes, curves: Sequence[Curve], number: int, name: str, scale: float = 1.0
) -> np.ndarray:
    """Draw the mean of curves with its standard deviation as a band; return the means."""
    x, means, spread = mean_curve(curves)
    means, spread = scale * means, scale * spread
    # Beyond the palette, where colours repeat, lines are dashed.
    dashes = ("-", "--", ":")[number // 6 % 3]
    axes.plot(
        x,
        means,
        dashes,
        color=colour(number),
        marker=line_marker(x.tolist()),
        label=legend_name(name),
    )
    if spread.any():
        for edge in (means - spread, means + spread):  # tell bands apart that lie over each other
            axes.plot(x, edge, dashes, color=colour(number), linewidth=0.5, alpha=0.7)
        low, high = means - spread, means + spread
        axes.fill_between(x, low, high, color=colour(number), alpha=0.1, linewidth=0)
    return means


def _dev_curves(method: Method, metric: str) -> list[Curve]:
    key = Quantity.DEV.key(metric)
    by_run = [
        [(row["epoch"], row[key]) for row in rows if {key, "epoch"} <= row.keys()]
        for rows in (RunFolder(path).read_metrics() for path in method.runs.values())
    ]
    return [np.array(points, dtype=float).T for points in by_run if points]


def _weight_curves(method: Method) -> dict[str, list[Curve]]:
    curves: dict[str, list[Curve]] = defaultdict(list)
    for path in method.runs.values():
        points: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in RunFolder(path).read_metrics():
            for objective, value in Quantity.WEIGHT.read(row).items():
                points[objective].append((row["step"], value))
        for objective, values in points.items():
            curves[objective].append(np.array(values, dtype=float).T)
    return curves
