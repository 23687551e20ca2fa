"""Tables of regret and harm, in Markdown and JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from auxlearn.core.files import write_json, write_text
from benchmarks.regret.analysis import (
    Difference,
    Outcome,
    differences,
    is_rule,
    outcomes,
    standard_error,
    summaries,
)
from benchmarks.regret.plan import ALPHAS, SINGLE
from benchmarks.regret.plots import draw
from benchmarks.regret.records import Record
from benchmarks.tables import table

#: Groups of settings, by whether they were used for choosing.
CHOSEN_BY, HELD_OUT = "Settings that defaults were chosen by", "Held-out settings"


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
    rule = next((outcome.method for outcome in found if is_rule(outcome.method)), "")
    text = "\n\n".join(markdown(found, rule, differences(records, rule), held_out)) + "\n"
    write_text(folder / "regret.md", text)
    draw(records, found, rule, folder)
    return text


def grouped(found: Iterable[Outcome], held_out: Collection[str]) -> dict[str, list[Outcome]]:
    """Part the outcomes by whether defaults were chosen by their setting; empty parts go."""
    groups: dict[str, list[Outcome]] = {CHOSEN_BY: [], HELD_OUT: []}
    for outcome in found:
        groups[HELD_OUT if outcome.setting in held_out else CHOSEN_BY].append(outcome)
    return {title: members for title, members in groups.items() if members}


def markdown(
    found: Sequence[Outcome],
    rule: str,
    compared: Sequence[Difference],
    held_out: Collection[str],
) -> Iterable[str]:
    """Yield the paragraphs of the report.

    Args:
        found: Every method in every setting.
        rule: The rule that is shown setting by setting, normally ``meta``.
        compared: The other rules beside it.
        held_out: Settings that no default was chosen by.
    """
    groups = grouped(found, held_out)
    if len(groups) > 1:
        groups["All settings"] = list(found)
    for title, members in groups.items():
        yield f"**{title}**"
        yield summary_table(members)
    for task in dict.fromkeys(outcome.task for outcome in found):
        some = [outcome for outcome in found if outcome.task == task]
        if any(outcome.method == rule for outcome in some):
            yield f"**`{rule}`, {task}**"
            yield rule_table(some, rule, held_out)
        if any(outcome.alpha is not None for outcome in some):
            yield f"**Fixed shares, {task}**"
            yield fixed_table(some, rule, held_out)
        others = [difference for difference in compared if difference.task == task]
        if others:
            yield f"**Other rules minus `{rule}`, {task}**"
            yield difference_table(others, held_out)


def summary_table(found: Iterable[Outcome]) -> str:
    """Return one row for each rule and task, and for each fixed share."""
    return table(
        (
            "method",
            "task",
            "settings",
            "minus single task",
            "lowest, s.e.",
            "below by > 1 s.e.",
            "> 2 s.e.",
            "only it constant",
            "regret",
            "settled",
        ),
        [
            (
                s.method,
                s.task,
                str(s.settings),
                points(s.difference, "+") + plus_minus(s.difference_error),
                number(None if s.worst is None else -s.worst),
                f"{s.below_one} of {s.with_error}",
                f"{s.below_two} of {s.with_error}",
                f"{s.worsened} of {s.runs}",
                points(s.regret, "+") + plus_minus(s.regret_error),
                share(s.settled),
            )
            for s in summaries(found)
            if s.method != SINGLE
        ],
    )


def rule_table(found: Sequence[Outcome], rule: str, held_out: Collection[str]) -> str:
    """Return a rule beside the single task, one row for each setting."""
    rows = []
    for o in found:
        if o.method == rule:
            weights = [
                f"{weight:.2f}" for name, weight in o.weights.items() if name != "primary"
            ] or [number(o.share)]
            rows.append(
                (
                    name_of(o.setting, held_out),
                    str(o.seeds),
                    points(o.single) + plus_minus(o.single_deviation),
                    points(o.test) + plus_minus(o.deviation),
                    points(o.difference, "+") + plus_minus(o.error),
                    ", ".join(weights),
                    share(o.settled),
                )
            )
    head = ("setting", "seeds", "single task", f"`{rule}`", "difference ± s.e.")
    return table((*head, "weight at the end", "settled"), rows)


def fixed_table(found: Sequence[Outcome], rule: str, held_out: Collection[str]) -> str:
    """Return the test score of every fixed share, the best on dev, and a rule's regret."""
    by_name = {(outcome.setting, outcome.method): outcome for outcome in found}
    rows = []
    for setting in dict.fromkeys(outcome.setting for outcome in found):
        single, ruled = by_name.get((setting, SINGLE)), by_name.get((setting, rule))
        if single is None or single.alpha is None:
            continue
        rows.append(
            (
                name_of(setting, held_out),
                str(single.grid_seeds),
                *map(points, single.grid.values()),
                f"{single.alpha:g}",
                points(single.grid[single.alpha]),
                "" if ruled is None else points(ruled.regret, "+"),
            )
        )
    shares = ("single", *(f"{alpha:g}" for alpha in ALPHAS))
    best = ("best on dev", "its test score", f"regret of `{rule}`")
    return table(("setting", "seeds", *shares, *best), rows)


def difference_table(found: Sequence[Difference], held_out: Collection[str]) -> str:
    """Return the differences of rules from another, one row for each rule."""
    settings = list(dict.fromkeys(one.setting for one in found))
    rows = []
    for method in dict.fromkeys(one.method for one in found):
        by_setting = {one.setting: one for one in found if one.method == method}
        seeds = sorted({one.seeds for one in by_setting.values()})
        means = [one.mean for one in by_setting.values()]
        cells = []
        for setting in settings:
            one = by_setting.get(setting)
            cells.append("" if one is None else points(one.mean, "+") + plus_minus(one.error))
        mean = points(fmean(means), "+") + plus_minus(standard_error(means))
        rows.append((method, " to ".join(map(str, sorted({seeds[0], seeds[-1]}))), *cells, mean))
    names = (name_of(setting, held_out) for setting in settings)
    return table(("rule", "seeds", *names, "mean ± s.e. over settings"), rows)


def name_of(setting: str, held_out: Collection[str]) -> str:
    """Return the name of a setting, and whether it was held out."""
    return f"{setting} (held out)" if setting in held_out else setting


def points(value: float | None, sign: str = "") -> str:
    """Return a score in points."""
    return "" if value is None else f"{100 * value:{sign}.1f}"


def plus_minus(value: float | None) -> str:
    """Return a spread in points, to stand behind a score."""
    return "" if value is None else f" ± {100 * value:.1f}"


def number(value: float | None) -> str:
    """Return a number with two decimals."""
    return "" if value is None else f"{value:.2f}"


def share(value: float | None) -> str:
    """Return a share in per cent."""
    return "" if value is None else f"{value:.0%}"
