"""Plots of a comparison: scores, epochs to the best checkpoint, ranks over data sets, curves.

They are in print size: a column of 3.3 inches, as PDF for papers and as PNG for the screen.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from auxlearn.comparison.methods import Method
from auxlearn.comparison.result import Block, ComparisonData, DatasetRuns, RankComparison
from auxlearn.comparison.scores import metric_title
from auxlearn.comparison.statistics import cliques
from auxlearn.core.errors import RunError, printable
from auxlearn.core.files import write_bytes
from auxlearn.core.metric_names import ERRORS, Quantity, sign
from auxlearn.core.rng import ONE_THREAD
from auxlearn.results.folder import RunFolder
from auxlearn.results.plots import colour, line_marker, marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Width of a figure in inches, dots per inch of the image, and size of the letters in points.
WIDTH, DPI, FONT = 3.3, 300, 7

_STYLE = {
    "font.size": FONT,
    "axes.labelsize": FONT,
    "axes.titlesize": FONT,
    "xtick.labelsize": FONT - 1,
    "ytick.labelsize": FONT - 1,
    "legend.fontsize": FONT - 1,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
    "text.usetex": False,
    "text.parse_math": False,  # a name with two dollar signs is no formula
    "pdf.fonttype": 42,  # letters stay letters
}


@contextmanager
def print_style() -> Iterator[None]:
    import matplotlib as mpl

    with ONE_THREAD, mpl.rc_context(_STYLE):
        yield


def print_figure(
    height: float, panels: int = 1, beside: float = 0.0, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of one column width, and its panels row by row."""
    from matplotlib.figure import Figure

    columns = min(2, panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(WIDTH, beside + rows * height), layout="constrained")
    found = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for axes in found[panels:]:
        axes.set_visible(False)
    return figure, list(found[:panels])


def tidy(axes: Axes, grid: str = "both") -> None:
    """Add a light grid and remove the frame above and on the right."""
    axes.grid(color="0.9", linewidth=0.5, axis=grid)  # type: ignore[arg-type,unused-ignore]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(width=0.6, length=2)


def legend_below(figure: Figure, panels: Sequence[Axes]) -> None:
    """Put one legend for all panels below the figure, in as many columns as fit."""
    named: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            named.setdefault(label, handle)
    if named:
        ncols = legend_columns(list(named))
        figure.legend(
            named.values(), named.keys(), loc="outside lower center", ncols=ncols, frameon=False
        )


def legend_columns(names: Sequence[str]) -> int:
    """Return how many columns of names fit; one of two lines is as wide as the longer one."""
    longest = max((len(line) for name in names for line in name.splitlines()), default=0)
    return max(1, min(len(names), int(62 / (longest + 6))))


def legend_height(names: Sequence[str]) -> float:
    """Return the height in inches of the legend of so many series, with some room to spare."""
    found = [legend_name(name) for name in names]
    lines = max((name.count("\n") + 1 for name in found), default=1)
    return 0.1 + 0.12 * lines * -(-len(found) // legend_columns(found))


def label_columns(panels: Sequence[Axes], label: str) -> None:
    """Label the lowest x axis of each column; a label of the figure would overlap the legend."""
    for number, axes in enumerate(panels):
        spec = axes.get_subplotspec()
        if spec is None or number + spec.get_gridspec().ncols >= len(panels):
            axes.set_xlabel(label)
            axes.tick_params(labelbottom=True)


def short(name: str, width: int = 24) -> str:
    """Return a name for a plot: printable, in lines of bounded length, at most two."""
    lines = textwrap.wrap(printable(name), width) or [""]
    return "\n".join(lines[:2]) + ("..." if len(lines) > 2 else "")


def legend_name(name: str) -> str:
    """Return a name for a legend, so short that two stand side by side."""
    return short(name, 22)


def dataset_panels(datasets: Sequence[str], names: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each data set, and a legend of so many series below."""
    alone = len(datasets) == 1
    figure, panels = print_figure(1.9 if alone else 1.5, len(datasets), legend_height(names))
    for axes, dataset in zip(panels, datasets, strict=True):
        axes.set_title(short(dataset, 70 if alone else 30))
    return figure, panels


def save_print(figure: Figure, path: Path) -> list[Path]:
    written = []
    # Without dates, equal figures are equal files.
    for suffix, options in (("pdf", {"metadata": {"CreationDate": None}}), ("png", {"dpi": DPI})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix, **options)
        written.append(path.with_name(f"{path.name}.{suffix}"))
        write_bytes(written[-1], buffer.getvalue())
    return written


#: One curve of a run, ``(2, points)``: x ascending, then y.
Curve = np.ndarray


def factor(metric: str) -> float:
    """Return 100 for a metric that is drawn in percent, 1 for an error."""
    return 1.0 if metric in ERRORS else 100.0


def in_percent(metric: str) -> str:
    """Return what follows the title of a metric that is drawn in percent."""
    return "" if metric in ERRORS else " (%)"


def mean_curve(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean and standard deviation over runs at each x that half of them reach."""
    found: dict[float, list[float]] = defaultdict(list)
    for curve in curves:
        for x, y in curve.T.tolist():
            found[x].append(y)
    points = sorted(x for x, values in found.items() if 2 * len(values) >= len(curves))
    spread = [np.std(found[x], ddof=1) if len(found[x]) > 1 else 0.0 for x in points]
    return np.array(points), np.array([np.mean(found[x]) for x in points]), np.array(spread)


def best_so_far(curves: Sequence[Curve], better: int) -> list[Curve]:
    """Return the best value so far at common points; a run that has ended keeps its best."""
    begin = max(curve[0, 0] for curve in curves)
    points = np.unique(np.concatenate([curve[0] for curve in curves]))
    points = points[points >= begin]
    found = []
    for curve in curves:
        best = better * np.maximum.accumulate(better * curve[1])
        found.append(np.stack([points, best[np.searchsorted(curve[0], points, side="right") - 1]]))
    return found


def _plot_dev(block: Block, by: Literal["epoch", "time"]) -> Figure | None:
    """Draw a panel for each data set: the dev score by epoch, or the best so far by wall time."""
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
    figure, panels = dataset_panels([name for name, *_ in drawn], names)
    for axes, (_, metric, curves) in zip(panels, drawn, strict=True):
        scale, time, score = 1.0, "epoch", f"dev {metric_title(metric)}"
        if by == "time":
            longest = max(float(curve[0, -1]) for found in curves.values() for curve in found)
            scale, unit = (60.0, "min") if longest > 300 else (1.0, "s")
            scale, unit = (3600.0, "h") if longest > 18_000 else (scale, unit)
            curves = {name: best_so_far(found, sign(metric)) for name, found in curves.items()}
            time, score = f"training time ({unit})", f"best {score}\nso far"
        for name, found in curves.items():
            points, means, spread = mean_curve(found)
            # The best changes at evaluations only, and ends where the last run ended.
            number, step = names.index(name), by == "time"
            means, spread = factor(metric) * means, factor(metric) * spread
            _band(axes, points / scale, means, spread, number, legend_name(name), step)
        axes.set_xlabel(time)
        axes.set_ylabel(f"{score}{in_percent(metric)}")
        axes.set_xlim(left=0)
        tidy(axes)
    legend_below(figure, panels)
    return figure


def plot_weights(data: DatasetRuns) -> Figure | None:
    """Draw the weight of each objective by step, for methods whose weights change."""
    found = {one.name: _weight_curves(one) for one in data.methods}
    found = {
        name: weights
        for name, weights in found.items()
        if any(np.ptp(curve[1]) for curves in weights.values() for curve in curves)
    }
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
    drawstyle: Any = "steps-post" if step else "default"
    style: dict[str, Any] = {"color": colour(number)}
    dot = line_marker(x.tolist())
    axes.plot(x, means, dashes, marker=dot, label=name, drawstyle=drawstyle, **style)
    if spread.any():
        # Bands that lie over one another are told apart by their edges.
        for edge in (means - spread, means + spread):
            axes.plot(x, edge, dashes, linewidth=0.5, alpha=0.7, drawstyle=drawstyle, **style)
        style |= {"alpha": 0.1, "linewidth": 0, "step": "post" if step else None}
        axes.fill_between(x, means - spread, means + spread, **style)


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
    curves, key = [], Quantity.DEV.key(metric)
    for seed, results in method.results.items():
        # The time of an evaluation is its part of the optimizer steps times that of the training.
        second = results.seconds.get("training", 0.0) / max(1, results.steps)
        points = [
            (one["epoch"] if by == "epoch" else one["step"] * second, one[key])
            for one in _entries(method, seed)
            if key in one and "epoch" in one
        ]
        if points:
            curves.append(np.array(points, dtype=float).T)
    return curves


def _weight_curves(method: Method) -> dict[str, list[Curve]]:
    found: dict[str, list[Curve]] = defaultdict(list)
    for seed in method.runs:
        points: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for entry in _entries(method, seed):
            for objective, value in Quantity.WEIGHT.read(entry).items():
                points[objective].append((entry["step"], value))
        for objective, values in points.items():
            found[objective].append(np.array(values, dtype=float).T)
    return found


def plot_comparison(comparison: ComparisonData, folder: Path) -> list[Path]:
    """Write the plots of a comparison, each as PDF and PNG. Curves are means over seeds, with their
    standard deviation; ``epochs`` is drawn as in Fig. 3 of L3Masking.
    """
    written = []
    taken: set[str] = set()
    with print_style():
        for parts, figure in figures_of(comparison):
            # "C++" and "C#" give one name, and some file systems know no capitals.
            found = re.sub(r"[^\w.-]+", "-", "-".join(filter(None, parts)))[:100].strip("-.")
            names = itertools.chain([found], (f"{found}-{number}" for number in itertools.count(2)))
            name = next(one for one in names if one.lower() not in taken)
            taken.add(name.lower())
            written += save_print(figure, folder / name)
    return written


def figures_of(comparison: ComparisonData) -> Iterator[tuple[tuple[str, ...], Figure]]:
    """Yield what each plot is of, and the plot; within :func:`print_style`."""
    drawings: dict[str, Callable[[Block], Figure | None]] = {
        "scores": _plot_scores,
        "curves": partial(_plot_dev, by="epoch"),
        "time": partial(_plot_dev, by="time"),
        "epochs": _plot_epochs,
    }
    for block in comparison.blocks:
        for kind, draw in drawings.items():
            if (figure := draw(block)) is not None:
                yield (kind, block.title), figure
        for found in block.across:
            if not math.isnan(found.ranks.critical_difference):
                yield ("ranks", block.title, found.set, found.metric), plot_ranks(found)
        for data in block.datasets:
            if (figure := plot_weights(data)) is not None:
                alone = len(block.datasets) == 1
                yield ("weights", "" if alone else data.name, block.title), figure


def _plot_scores(block: Block) -> Figure:
    """Draw a panel for each column: methods from top to bottom, intervals from left to right."""
    columns = block.columns
    names = [short(name, 20) for name in block.methods]
    line = 0.15 if max(name.count("\n") for name in names) == 0 else 0.21
    figure, panels = print_figure(0.5 + line * max(3, len(names)), len(columns), sharey=True)
    for axes, column in zip(panels, columns, strict=True):
        for number, name in enumerate(block.methods):
            if name in column.scores:
                scale = factor(column.metric)
                half = scale * column.noises[name].half_width() or None
                axes.errorbar(
                    scale * column.means[name],
                    number,
                    xerr=half,
                    capsize=1.5,
                    elinewidth=0.8,
                    color=colour(number),
                    marker=marker(number),
                )
        where = column.dataset if column.set == "test" else f"{column.dataset}, {column.set}"
        percent = in_percent(column.metric)
        axes.set_title(f"{short(where, 30)}\n{short(metric_title(column.metric), 30)}{percent}")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        tidy(axes, "x")
    return figure


def plot_ranks(found: RankComparison) -> Figure:
    """Draw a critical-difference diagram (Demšar, 2006, figure 1): methods at their average ranks,
    the best on the left; a bar joins those that do not differ significantly. Of more than ten
    methods, the axis has only the ranks around the averages.
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
    first, last = 1, methods
    if methods > 10:
        first, last = math.floor(ranks[order[0]]), math.ceil(ranks[order[-1]])
    span = max(1, last - first)
    axes.set_xlim(first - 0.62 * span, last + 0.62 * span)
    axes.set_ylim(-depth, 0.55)
    thin: dict[str, Any] = {"color": "black", "linewidth": 0.7, "clip_on": False}
    axes.plot([first, last], [0, 0], **thin)
    for rank in range(first, last + 1):
        axes.plot([rank, rank], [0, 0.05], **thin)
        if (rank - first) % math.ceil((span + 1) / (10 if last <= 10 else 6)) == 0:  # none touch
            axes.text(rank, 0.07, str(rank), ha="center", va="bottom", fontsize=6)
    width = min(found.ranks.critical_difference, 2.1 * span)
    axes.plot([first, first + width], [0.3, 0.3], **thin)
    for end in (first, first + width):
        axes.plot([end, end], [0.27, 0.33], **thin)
    text = f"critical difference {found.ranks.critical_difference:.2f}"
    axes.text(first, 0.36, text, ha="left", va="bottom", fontsize=6)
    for number, name in enumerate(order):
        on_left = name in left
        line = number if on_left else methods - 1 - number
        y = -0.09 * len(bars) - height * (line + 1)
        end = first - 0.08 * span if on_left else last + 0.08 * span
        axes.plot([ranks[name], ranks[name], end], [0, y, y], **thin)
        shift = -0.02 * span if on_left else 0.02 * span
        side = "right" if on_left else "left"
        axes.text(end + shift, y, labels[name], ha=side, va="center", fontsize=6, linespacing=0.8)
    for number, members in enumerate(bars):
        y = -0.06 - 0.09 * number
        ends = [ranks[members[0]] - 0.004 * span, ranks[members[-1]] + 0.004 * span]
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
    figure, panels = dataset_panels([column.dataset for column, _ in drawn], names)
    for axes, (column, methods) in zip(panels, drawn, strict=True):
        for method in methods:
            number = names.index(method.name)
            epochs = method.by_seed("epochs")
            by_seed = column.scores[method.name]
            x = [epochs[seed] for seed in by_seed]
            y = [factor(column.metric) * value for value in by_seed.values()]
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
        percent = in_percent(column.metric)
        axes.set_ylabel(f"{short(column.set)} {metric_title(column.metric)}{percent}")
        tidy(axes)
    label = "epoch of the best checkpoint"
    label_columns(panels, f"{label} (mean ± s.d.)" if len(panels) == 1 else "best epoch")
    legend_below(figure, panels)
    return figure
