"""Tables and plots of regret and harm, in Markdown and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from auxlearn.files import write_json, write_text
from benchmarks.regret.analysis import Outcome, Summary, is_rule, outcomes, summaries
from benchmarks.regret.records import Record
from benchmarks.tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write_report(
    records: Sequence[Record], held_out: Collection[str], folder: Path, about: dict[str, Any]
) -> str:
    """Write ``regret.json``, ``regret.md``, ``alpha.png`` and ``weights.png``; return the Markdown.

    Args:
        records: Finished trials.
        held_out: Settings that no default was chosen by.
        folder: Where to write.
        about: Machine and settings, for the JSON.
    """
    found = outcomes(records)
    groups = grouped(found, held_out)
    write_json(
        folder / "regret.json",
        {
            **about,
            "held out": sorted(held_out),
            "summaries": {title: [asdict(s) for s in summaries(m)] for title, m in groups.items()},
            "outcomes": [asdict(outcome) for outcome in found],
            "records": [asdict(record) for record in records],
        },
    )
    text = "\n\n".join(markdown(groups)) + "\n"
    write_text(folder / "regret.md", text)
    draw(records, found, folder)
    return text


def grouped(found: Iterable[Outcome], held_out: Collection[str]) -> dict[str, list[Outcome]]:
    """Part the outcomes by whether defaults were chosen by their setting; empty parts go."""
    groups: dict[str, list[Outcome]] = {
        "Settings that defaults were chosen by": [],
        "Held-out settings": [],
    }
    for outcome in found:
        groups[list(groups)[outcome.setting in held_out]].append(outcome)
    return {title: members for title, members in groups.items() if members}


def markdown(groups: dict[str, list[Outcome]]) -> Iterable[str]:
    """Yield the paragraphs of the report."""
    yield (
        "Scores, regret and harm are in points of the setting's metric on test. Regret is against "
        "the best fixed auxiliary share on dev, 0 included; harm is against the single task, also "
        "in its standard errors, paired by seed and unpaired. Time is that of training over fixed "
        "weights of the same seed. Weights have settled at the share of the steps after which they "
        "stay within .05 of where they end. `constant` counts the runs that predict one class."
    )
    for title, members in groups.items():
        yield f"## {title}"
        yield summary_table(summaries(members))
        for (setting, task), some in _by_place(members).items():
            first = next((o for o in some if o.alpha is not None), None)
            best = (
                "" if first is None else f": best alpha {first.alpha:g}, test {points(first.best)}"
            )
            yield f"**{setting}, {task}**{best}"
            yield outcome_table(some)


def summary_table(found: Iterable[Summary]) -> str:
    """Return one row for each method."""
    return table(
        (
            "method",
            "settings",
            "regret",
            "worst regret",
            "harm",
            "worst harm, s.e.",
            "harmed by > 2 s.e.",
            "constant",
            "time",
            "time of a step",
            "settled",
        ),
        [
            (
                s.method,
                str(s.settings),
                points(s.regret) + (f" ± {points(s.interval)}" if s.settings > 1 else ""),
                points(s.worst_regret),
                points(s.harm),
                number(s.worst_harm),
                f"{s.harmful} of {s.compared}",
                f"{s.constant} of {s.runs}",
                number(s.time),
                number(s.step_time),
                share(s.settled),
            )
            for s in found
        ],
    )


def outcome_table(found: Iterable[Outcome]) -> str:
    """Return one row for each method of a setting and task."""
    return table(
        (
            "method",
            "seeds",
            "test",
            "regret",
            "harm",
            "s.e. paired",
            "unpaired",
            "constant",
            "auxiliary share",
            "settled",
            "time",
        ),
        [
            (
                o.method,
                str(o.seeds),
                points(o.test),
                points(o.regret),
                points(o.harm),
                number(o.harm_paired),
                number(o.harm_unpaired),
                str(o.constant),
                number(o.share),
                share(o.settled),
                number(o.time),
            )
            for o in found
        ],
    )


def points(value: float | None) -> str:
    """Return a score in points."""
    return "" if value is None else f"{100 * value:.2f}"


def number(value: float | None) -> str:
    """Return a number with two decimals."""
    return "" if value is None else f"{value:.2f}"


def share(value: float | None) -> str:
    """Return a share in per cent."""
    return "" if value is None else f"{value:.0%}"


def _by_place(found: Iterable[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    places: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in found:
        places.setdefault((outcome.setting, outcome.task), []).append(outcome)
    return places


def draw(records: Sequence[Record], found: Sequence[Outcome], folder: Path) -> None:
    """Draw test score by alpha with the rules marked, and the rules' weights over time."""
    from matplotlib.figure import Figure

    places = _by_place(found)
    if not places:
        return
    settings = list(dict.fromkeys(setting for setting, _ in places))
    tasks = list(dict.fromkeys(task for _, task in places))
    names = list(dict.fromkeys(o.method for o in found if is_rule(o.method)))
    colours = {name: f"C{number}" for number, name in enumerate(names)}
    plots: dict[str, Callable[[Axes, list[Record], dict[str, str]], None]] = {
        "alpha": draw_alpha,
        "weights": draw_weights,
    }
    for title, plot in plots.items():
        panels = [(setting, task) for setting in settings for task in tasks]
        columns = len(tasks) if len(tasks) > 1 else min(3, len(panels))  # a row for each setting
        lines = math.ceil(len(panels) / columns)
        figure = Figure(figsize=(4.0 * columns, 3.0 * lines + 0.6), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False)
        for ax, (setting, task) in zip(axes.flat, panels, strict=False):
            some = [r for r in records if r.setting == setting and r.task in (task, "")]
            plot(ax, some, colours)
            ax.set_title(f"{setting}, {task}", fontsize=9)
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
        figure.savefig(folder / f"{title}.png", dpi=90)


def draw_alpha(axes: Axes, records: list[Record], colours: dict[str, str]) -> None:
    """Draw the test score of every fixed share, and each rule where its weights end."""
    fixed: dict[float, list[float]] = {}
    ruled: dict[str, list[Record]] = {}
    for record in records:
        if record.alpha is not None:
            fixed.setdefault(record.alpha, []).append(record.test)
        elif record.share is not None:
            ruled.setdefault(record.method, []).append(record)
    alphas = sorted(fixed)
    errors = [
        100 * stdev(fixed[a]) / len(fixed[a]) ** 0.5 if len(fixed[a]) > 1 else 0.0 for a in alphas
    ]
    means = [100 * fmean(fixed[a]) for a in alphas]
    axes.errorbar(alphas, means, yerr=errors, color="0.4", marker="o", markersize=3, capsize=2)
    for name, members in ruled.items():
        axes.plot(
            fmean(r.share or 0.0 for r in members),
            100 * fmean(r.test for r in members),
            marker="D",
            linestyle="",
            color=colours[name],
            label=name,
        )
    axes.set_xlabel("auxiliary share", fontsize=8)
    axes.set_ylabel("test", fontsize=8)


def draw_weights(axes: Axes, records: list[Record], colours: dict[str, str]) -> None:
    """Draw the auxiliary share of every rule's weights over its steps, a line for each seed."""
    drawn: set[str] = set()
    for record in records:
        if record.alpha is None and record.course:
            steps, shares = zip(*record.course, strict=True)
            axes.plot(
                steps,
                shares,
                color=colours[record.method],
                linewidth=0.8,
                label=None if record.method in drawn else record.method,
            )
            drawn.add(record.method)
    axes.set_ylim(0, 1)
    axes.set_xlabel("optimizer step", fontsize=8)
    axes.set_ylabel("auxiliary share", fontsize=8)
