"""A comparison as pictures."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison.collect import Block, Comparison
from auxlearn.comparison.statistics import mean_interval
from auxlearn.files import write_bytes
from auxlearn.metric_keys import Quantity
from auxlearn.reporting.plots import COLOURS, DPI, MARKERS, METRICS
from auxlearn.results.folder import read_jsonl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Key = tuple[str, Any]


def plot_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Draw three pictures for each block: ``scores-``, ``epochs-`` and ``weights-``.

    Scores are bars with 95% intervals of the mean over seeds. Epochs are the epoch of the best
    checkpoint against the score, one mark for each seed and a larger one for the mean (as Fig. 3
    of L3Masking). Weights are the mean over seeds of each objective's weight, where methods have
    more than one objective.

    Args:
        comparison: What to draw.
        folder: Where the pictures go; made if need be.

    Returns:
        The files written.
    """
    written = []
    for block in comparison.blocks:
        place = re.sub(r"[^\w.-]+", "-", block.title)
        drawings = {"scores": _scores(block), "epochs": _epochs(block), "weights": _weights(block)}
        for name, figure in drawings.items():
            if figure is not None:
                written.append(_write(folder / f"{name}-{place}.png", figure))
    return written


def _scores(block: Block) -> Figure:
    sets = list(dict.fromkeys(column.key[0] for column in block.columns))
    metrics = list(dict.fromkeys(column.key[1] for column in block.columns))
    rows = [row for row in block.rows if row.runs]
    figure = _figure(block, len(metrics))
    width = 0.8 / len(rows)
    for axes, metric in zip(figure.axes, metrics, strict=True):
        for number, row in enumerate(rows):
            having = [i for i, name in enumerate(sets) if row.figures.get((name, metric))]
            values = [list(row.figures[sets[i], metric].values()) for i in having]
            axes.bar(
                np.array(having) + (number - (len(rows) - 1) / 2) * width,
                [100 * float(np.mean(value)) for value in values],
                width=0.9 * width,
                yerr=[100 * mean_interval(value) for value in values],
                capsize=3,
                error_kw={"elinewidth": 1},
                color=COLOURS[number % len(COLOURS)],
                label=row.name,
            )
        axes.set_xticks(range(len(sets)), sets)
        axes.set_ylabel(f"{METRICS[metric]} (%)\nmean, 95% interval")
        # The interval of few seeds can reach where no percentage is.
        axes.set_ylim(0, min(100.0, axes.get_ylim()[1]))
    figure = _finish(figure)
    for axes in figure.axes:
        axes.grid(visible=False, axis="x")
        if axes is not figure.axes[0]:  # the same methods in the same colours
            axes.legend_ = None
    return figure


def _epochs(block: Block) -> Figure:
    from matplotlib.ticker import MaxNLocator

    metric = block.setting.get("metric", "accuracy")
    key: Key = ("test" if any(c.key[0] == "test" for c in block.columns) else "dev", metric)
    figure = _figure(block, 1)
    (axes,) = figure.axes
    for number, row in enumerate(row for row in block.rows if row.figures.get(key)):
        figures = row.figures[key]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        epochs = [row.epochs[seed] for seed in figures]
        scores = [100 * value for value in figures.values()]
        axes.scatter(epochs, scores, s=18, alpha=0.5, color=colour, marker=marker)
        axes.errorbar(
            float(np.mean(epochs)),
            float(np.mean(scores)),
            xerr=float(np.std(epochs, ddof=1)) if len(epochs) > 1 else 0.0,
            yerr=float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0,
            capsize=3,
            markersize=9,
            label=row.name,
            color=colour,
            marker=marker,
        )
    # From 0: where all seeds agree, an automatic range would show fractions of an epoch.
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch of the best checkpoint (mean ± standard deviation)")
    axes.set_ylabel(f"{key[0]} {METRICS[metric]} (%)")
    return _finish(figure)


def _weights(block: Block) -> Figure | None:
    series = {row.name: _weight_series(list(row.runs.values())) for row in block.rows}
    series = {name: found for name, found in series.items() if len(found) > 1}
    if not series:
        return None
    figure = _figure(block, len(series))
    for axes, (name, objectives) in zip(figure.axes, series.items(), strict=True):
        for number, (objective, (steps, means)) in enumerate(objectives.items()):
            marker = "." if len(steps) == 1 else None
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(steps, means, color=colour, marker=marker, label=objective)
        axes.set_title(name, fontsize=9)
        axes.set_ylabel("weight (mean)")
        axes.set_ylim(-0.03, 1.03)  # a weight of 0 or 1 is seen whole
    figure.axes[-1].set_xlabel("step")
    return _finish(figure)


def _weight_series(runs: list[Path]) -> dict[str, tuple[list[int], list[float]]]:
    """Return steps and mean weight over the runs that got so far, by objective."""
    found: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        for row in read_jsonl(run / "metrics.jsonl"):
            for objective, value in Quantity.WEIGHT.read(row).items():
                found.setdefault(objective, {}).setdefault(row["step"], []).append(value)
    return {
        name: (sorted(steps), [float(np.mean(steps[step])) for step in sorted(steps)])
        for name, steps in found.items()
    }


def _figure(block: Block, panels: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 0.6 + 2.7 * panels), layout="constrained")
    figure.suptitle(block.title, fontsize=10)
    figure.subplots(panels, 1)
    return figure


def _finish(figure: Figure) -> Figure:
    for axes in figure.axes:
        _tidy(axes)
    return figure


def _tidy(axes: Axes) -> None:
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _write(path: Path, figure: Figure) -> Path:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    write_bytes(path, buffer.getvalue())
    return path
