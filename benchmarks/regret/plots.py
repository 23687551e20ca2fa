"""Plots of the regret benchmark: score against alpha with the rules marked, weights by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.regret.analysis import Outcome, standard_error
from benchmarks.regret.plan import FIXED
from benchmarks.regret.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(records: Sequence[Record], found: Sequence[Outcome], rule: str, folder: Path) -> None:
    """Draw test score by alpha with a rule marked, and the rule's weights over time.

    Args:
        records: Finished trials.
        found: Their outcomes; the first plot shows tasks that were trained with fixed shares.
        rule: The rule; with several ones no plot could be read.
        folder: Where to write ``alpha.png`` and ``weights.png``.
    """
    from matplotlib.figure import Figure

    plots: dict[str, tuple[Callable[[Axes, list[Record], str], None], Any]] = {
        "alpha": (draw_alpha, lambda outcome: outcome.method.startswith(FIXED)),
        "weights": (draw_weights, lambda outcome: outcome.method == rule),
    }
    for title, (plot, belongs) in plots.items():
        shown = [outcome for outcome in found if belongs(outcome)]
        tasks = list(dict.fromkeys(outcome.task for outcome in shown))
        settings = list(dict.fromkeys(outcome.setting for outcome in shown))
        panels = [(setting, task) for setting in settings for task in tasks]
        if not panels:
            continue
        columns = len(tasks) if len(tasks) > 1 else min(4, len(panels))  # a row for each setting
        lines = math.ceil(len(panels) / columns)
        figure = Figure(figsize=(2.8 * columns, 2.1 * lines + 0.5), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False)
        for ax, (setting, task) in zip(axes.flat, panels, strict=False):
            some = [r for r in records if r.setting == setting and r.task in (task, "")]
            plot(ax, some, rule)
            ax.set_title(f"{setting}\n{task}", fontsize=8)
            ax.tick_params(labelsize=7)
        for ax in axes.flat[len(panels) :]:
            ax.axis("off")
        handles = {
            name: handle
            for ax in axes.flat
            for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        if handles:
            figure.legend(
                list(handles.values()),
                list(handles),
                loc="outside lower center",
                ncols=6,
                fontsize=7,
            )
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{title}.png", dpi=120)


def draw_alpha(axes: Axes, records: list[Record], rule: str) -> None:
    """Draw the test score of every fixed share, and the rule where its weights end.

    Only seeds that all of them have are in the means.
    """
    fixed: dict[float, dict[int, float]] = {}
    ruled: dict[int, Record] = {}
    for record in records:
        if record.alpha is not None:
            fixed.setdefault(record.alpha, {})[record.seed] = record.test
        elif record.method == rule and record.share is not None:
            ruled[record.seed] = record
    series: list[Collection[int]] = [*fixed.values(), *([ruled] if ruled else [])]
    seeds = sorted(set.intersection(*map(set, series))) if series else []
    if not seeds:
        return
    alphas = sorted(fixed)
    tests = [[fixed[alpha][seed] for seed in seeds] for alpha in alphas]
    errors = [100 * (standard_error(some) or 0.0) for some in tests]
    means = [100 * fmean(some) for some in tests]
    axes.errorbar(alphas, means, yerr=errors, color="0.4", marker="o", markersize=3, capsize=2)
    if ruled:
        axes.plot(
            fmean(ruled[seed].share or 0.0 for seed in seeds),
            100 * fmean(ruled[seed].test for seed in seeds),
            marker="D",
            linestyle="",
            color="C0",
            label=rule,
        )
    axes.set_xlabel("auxiliary share", fontsize=8)
    axes.set_ylabel("test", fontsize=8)


def draw_weights(axes: Axes, records: list[Record], rule: str) -> None:
    """Draw the auxiliary share of the rule's weights over its steps, a line for each seed."""
    for record in records:
        if record.method == rule and record.course:
            steps, shares = zip(*record.course, strict=True)
            axes.plot(steps, shares, color="C0", linewidth=0.8)
    axes.set_ylim(0, 1)
    axes.set_xlabel("optimizer step", fontsize=8)
    axes.set_ylabel("auxiliary share", fontsize=8)
