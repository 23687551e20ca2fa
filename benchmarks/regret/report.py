"""Tables of regret and harm, in Markdown and JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from auxlearn.files import write_json, write_text
from benchmarks.regret.analysis import Outcome, is_rule, outcomes, summaries
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
    text = "\n\n".join(markdown(found, held_out)) + "\n"
    write_text(folder / "regret.md", text)
    draw(records, found, folder)
    return text


def grouped(found: Iterable[Outcome], held_out: Collection[str]) -> dict[str, list[Outcome]]:
    """Part the outcomes by whether defaults were chosen by their setting; empty parts go."""
    groups: dict[str, list[Outcome]] = {CHOSEN_BY: [], HELD_OUT: []}
    for outcome in found:
        groups[HELD_OUT if outcome.setting in held_out else CHOSEN_BY].append(outcome)
    return {title: members for title, members in groups.items() if members}


def markdown(found: Sequence[Outcome], held_out: Collection[str]) -> Iterable[str]:
    """Yield the paragraphs of the report."""
    groups = grouped(found, held_out)
    if len(groups) > 1:
        groups["All settings"] = list(found)
    for title, members in groups.items():
        yield f"**{title}**"
        yield summary_table(members)
    for task in dict.fromkeys(outcome.task for outcome in found):
        some = [outcome for outcome in found if outcome.task == task]
        rules = dict.fromkeys(outcome.method for outcome in some if is_rule(outcome.method))
        for rule in rules:
            yield f"**`{rule}`, {task}**"
            yield rule_table(some, rule, held_out)
        if any(outcome.alpha is not None for outcome in some):
            yield f"**Fixed shares, {task}**"
            yield fixed_table(some, list(rules), held_out)


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
    singles = {outcome.setting: outcome for outcome in found if outcome.method == SINGLE}
    rows = []
    for o in found:
        if o.method == rule:
            single = singles.get(o.setting)
            weights = [
                f"{weight:.2f}" for name, weight in o.weights.items() if name != "primary"
            ] or [number(o.share)]
            rows.append(
                (
                    name_of(o.setting, held_out),
                    str(o.seeds),
                    "" if single is None else points(single.test) + plus_minus(single.deviation),
                    points(o.test) + plus_minus(o.deviation),
                    points(o.difference, "+") + plus_minus(o.error),
                    ", ".join(weights),
                    share(o.settled),
                )
            )
    head = ("setting", "seeds", "single task", f"`{rule}`", "difference ± s.e.")
    return table((*head, "weight at the end", "settled"), rows)


def fixed_table(found: Sequence[Outcome], rules: Sequence[str], held_out: Collection[str]) -> str:
    """Return the test score of every fixed share, the best on dev, and each rule's regret."""
    by_name = {(outcome.setting, outcome.method): outcome for outcome in found}
    rows = []
    for setting in dict.fromkeys(outcome.setting for outcome in found):
        single = by_name.get((setting, SINGLE))
        if single is None or single.alpha is None:
            continue
        ruled = [by_name.get((setting, rule)) for rule in rules]
        rows.append(
            (
                name_of(setting, held_out),
                str(single.grid_seeds),
                *map(points, single.grid.values()),
                f"{single.alpha:g}",
                points(single.grid[single.alpha]),
                *(points(one.regret, "+") if one is not None else "" for one in ruled),
            )
        )
    shares = ("single", *(f"{alpha:g}" for alpha in ALPHAS))
    regrets = (f"regret of `{rule}`" for rule in rules)
    return table(("setting", "seeds", *shares, "best on dev", "its test score", *regrets), rows)


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
