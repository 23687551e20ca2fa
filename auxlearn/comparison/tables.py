"""A comparison as tables: for the console, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison.compare import (
    Comparison,
    Key,
    MethodResults,
    MetricComparison,
    SettingComparison,
)
from auxlearn.comparison.power import POWER
from auxlearn.comparison.published import PublishedResult
from auxlearn.comparison.statistics import ALPHA, MINIMUM_SEEDS, seeds_for_permutation_test
from auxlearn.reporting.style import METRIC_TITLES
from auxlearn.reporting.tables import console_table, markdown_table

if TYPE_CHECKING:
    from rich.table import Table

#: Marks a score that may be as good as the best.
MARK = "≈"
#: Marks the best score where bold print may not show.
BEST = "*"

#: Returns a cell from a mean, a standard deviation, whether it is the best, whether it is marked.
Style = Callable[[str, str, bool, bool], str]


def legend(comparison: Comparison) -> list[str]:
    """Return how to read the tables, one sentence each."""
    lines = [
        "Scores are percentages, mean ± standard deviation over seeds; the best is bold.",
        f"{MARK}: the difference from the best may be due to chance "
        f"({_seed_tests(comparison)} over seeds, bootstrap over examples, t-test over both, "
        f"Holm's correction over all pairs of a column, level {ALPHA:g}).",
        "Detectable: if one method is truly better than all others by this much, its difference "
        f"from another is significant with probability {POWER:g}.",
    ]
    if comparison.chosen:
        lines.append(
            f"{', '.join(comparison.chosen)}: chosen on dev by the mean over seeds. Scores on "
            "other sets were read for the chosen value only."
        )
    else:
        lines.append("Nothing was chosen between trials; every checkpoint was chosen on dev.")
    return lines


def setting_notes(setting: SettingComparison) -> list[str]:
    """Return the notes under the table of a setting: chosen values, missing seeds, tests."""
    notes = []
    for method in setting.methods:
        if method.chosen:
            values = ", ".join(f"{axis} {value}" for axis, value in method.chosen.items())
            notes.append(f"{method.name}: {values} (chosen on dev)")
        for seed, state in sorted(method.missing.items()):
            notes.append(f"{method.name}: no scores for seed {seed} ({state})")
        if method.degenerate:
            notes.append(
                f"{method.name}: degenerate for {len(method.degenerate)} of {len(method.runs)} "
                "seeds (one class is predicted for every dev example)"
            )
    finished = [method for method in setting.methods if method.runs]
    seeds = min(len(method.runs) for method in finished)
    if len(finished) == 1:
        return notes
    if seeds < MINIMUM_SEEDS:
        notes.append(
            f"with {seeds} {'seed' if seeds == 1 else 'seeds'} no difference is significant, "
            f"however large: at least {MINIMUM_SEEDS} are needed"
        )
    elif any("t" in metric.seed_tests for metric in setting.metrics):
        needed = seeds_for_permutation_test(max(len(metric.pairs) for metric in setting.metrics))
        why = f" with fewer than {needed} seeds" if needed else ", however many seeds"
        notes.append(
            "test over seeds: paired t-test, which assumes that differences between seeds are "
            f"normal; the permutation test cannot reject here{why}"
        )
    return notes


def _seed_tests(comparison: Comparison) -> str:
    """Name the tests over seeds that were made."""
    found = {
        test for setting in comparison.settings for m in setting.metrics for test in m.seed_tests
    }
    names = {"permutation": "paired permutation test", "t": "paired t-test"}
    return " or ".join(names[test] for test in sorted(found)) or names["permutation"]


def setting_grid(setting: SettingComparison, style: Style) -> tuple[list[str], list[list[str]]]:
    """Lay out a setting: one line for each method, one column for each set and metric.

    Returns:
        The column heads, and the cells of each line.
    """
    heads = ["method", "seeds", *(_metric_head(metric.key) for metric in setting.metrics)]
    heads += ["epochs to best", "minutes"]
    lines = []
    for method in setting.methods:
        cells = [method.name, str(len(method.runs))]
        cells += [_score_cell(method, metric, style) for metric in setting.metrics]
        cells += [_mean_and_sd(list(method.epochs.values()), 1), _mean_and_sd(_minutes(method), 2)]
        lines.append(cells)
    if sum(bool(method.runs) for method in setting.methods) > 1:
        detectable = [_detectable(metric) for metric in setting.metrics]
        lines.append(["detectable", "", *detectable, "", ""])
    return heads, lines


def console_tables(comparison: Comparison) -> list[Table | str]:
    """Return titles, tables and notes for the console, in order."""
    from rich.text import Text

    items: list[Table | str] = []
    for setting in comparison.settings:
        heads, lines = setting_grid(setting, _console_style)
        table = console_table([head.replace(" ", "\n", 1) for head in heads], [])
        for line in lines:
            table.add_row(*(Text(cell, style="bold" if cell[-1:] == BEST else "") for cell in line))
        items += [f"\n{setting.title}", table, *setting_notes(setting)]
    if comparison.published:
        items += [f"\nCompared with the published results of {comparison.source}"]
        items += [console_table(*published_grid(comparison)), *published_notes(comparison)]
    return [*items, "", *legend(comparison), f"{BEST}: the best, where bold print is not shown."]


def _console_style(mean: str, spread: str, best: bool, mark: bool) -> str:
    return mean + spread + (f" {BEST}" if best else f" {MARK}" if mark else "  ")


def markdown(comparison: Comparison) -> str:
    """Return the whole comparison in Markdown."""

    def style(mean: str, spread: str, best: bool, mark: bool) -> str:
        return (f"**{mean}**" if best else mean) + spread + (f" {MARK}" if mark else "")

    parts = [f"# {', '.join(comparison.names)}", _bullets(legend(comparison))]
    for setting in comparison.settings:
        parts += [f"## {setting.title}", markdown_table(*setting_grid(setting, style))]
        if notes := setting_notes(setting):
            parts.append(_bullets(notes))
    if comparison.published:
        parts += ["## Compared with published results", f"Published: {comparison.source}"]
        parts.append(markdown_table(*published_grid(comparison)))
        parts += published_notes(comparison)
    return "\n\n".join(parts) + "\n"


def latex(comparison: Comparison) -> str:
    """Return one table environment for each setting, for booktabs, no wider than the text."""

    def style(mean: str, spread: str, best: bool, mark: bool) -> str:
        mean = rf"\textbf{{{mean}}}" if best else mean
        return mean + spread.replace("±", r"$\pm$") + (r"$^{\approx}$" if mark else "")

    parts = [r"% \usepackage{booktabs,graphicx}"]
    for setting in comparison.settings:
        heads, lines = setting_grid(setting, style)
        caption = " ".join([f"{setting.title}.", *legend(comparison), *setting_notes(setting)])
        body = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(caption)}}}",
            r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
            r"\toprule",
            " & ".join(escape_latex(head) for head in heads) + r" \\",
            r"\midrule",
        ]
        for line in lines:
            if line[0] == "detectable":
                body.append(r"\midrule")
            cells = [escape_latex(line[0]), *(cell.replace("±", r"$\pm$") for cell in line[1:])]
            body.append(" & ".join(cells) + r" \\")
        body += [r"\bottomrule", r"\end{tabular}}", r"\end{table}"]
        parts.append("\n".join(body))
    return "\n\n".join(parts) + "\n"


def metrics_csv(comparison: Comparison) -> str:
    """Return one line for each method, set and metric, with scores (0 to 1) in full precision."""
    axes = _setting_axes(comparison)
    heads = [*axes, "method", *comparison.chosen, "set", "metric", "seeds", "mean", "sd"]
    heads += ["best", "may_equal_best", "seed_test", "detectable", "epochs_to_best", "minutes"]
    lines: list[list[Any]] = []
    for setting in comparison.settings:
        for method in setting.methods:
            for metric in setting.metrics:
                values = list(method.scores.get(metric.key, {}).values())
                if not values:
                    continue
                lines.append(
                    [
                        *(setting.setting.get(axis, "") for axis in axes),
                        method.name,
                        *(method.chosen.get(axis, "") for axis in comparison.chosen),
                        *metric.key,
                        len(values),
                        float(np.mean(values)),
                        _sd(values),
                        _is_best(method, metric),
                        method.name in metric.ties,
                        "+".join(metric.seed_tests),
                        metric.detectable,
                        float(np.mean(list(method.epochs.values()))),
                        float(np.mean(_minutes(method))),
                    ]
                )
    return _csv(heads, lines)


def pairs_csv(comparison: Comparison) -> str:
    """Return one line for every two methods by set and metric, with their p-values.

    ``seed_test`` is "permutation", or "t" where there are too few seeds for it to reject: the
    t-test assumes that differences between seeds are normal.
    """
    axes = _setting_axes(comparison)
    heads = [*axes, "set", "metric", "first", "second", "difference"]
    heads += ["seed_test", "p_seeds", "p_examples", "p_both", "p_holm"]
    lines: list[list[Any]] = []
    for setting in comparison.settings:
        for metric in setting.metrics:
            for pair in metric.pairs:
                values = [pair.first, pair.second, pair.difference, pair.seed_test]
                values += [pair.p_seeds, pair.p_examples, pair.p_both, pair.p]
                labels = [setting.setting.get(axis, "") for axis in axes]
                lines.append([*labels, *metric.key, *values])
    return _csv(heads, lines)


def published_grid(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Lay out every published result with the result here and the difference, if there is one."""
    axes = list(dict.fromkeys(axis for result in comparison.published for axis in result.labels))
    heads = [*axes, "set", "metric", "published", "here", "difference"]
    lines = []
    for result in comparison.published:
        spread = "" if result.sd is None else f" ± {result.sd:.2f}"
        values = _scores_here(comparison, result)
        here = _mean_and_sd([100 * value for value in values], 2)
        mean = 100 * float(np.mean(values)) if values else math.nan
        lines.append(
            [
                *(result.labels.get(axis, "") for axis in axes),
                result.set,
                METRIC_TITLES[result.metric],
                f"{result.mean:.2f}{spread}",
                here,
                f"{mean - result.mean:+.2f}" if values else "-",
            ]
        )
    return heads, lines


def published_notes(comparison: Comparison) -> list[str]:
    """Return a note if none of the published results has a counterpart here."""
    if any(_scores_here(comparison, result) for result in comparison.published):
        return []
    return ["None of the published results is for a data set, encoder and method that were run."]


def _scores_here(comparison: Comparison, result: PublishedResult) -> list[float]:
    """Return the scores, one for each seed, of the method that a published result is for."""
    for setting in comparison.settings:
        for method in setting.methods:
            if all(method.labels.get(axis) == label for axis, label in result.labels.items()):
                return list(method.scores.get((result.set, result.metric), {}).values())
    return []


def escape_latex(text: str) -> str:
    """Return text with the special characters of LaTeX escaped."""
    return "".join(_LATEX.get(character, character) for character in text)


_LATEX = {character: "\\" + character for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    MARK: r"$\approx$",
}


def _setting_axes(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(axis for one in comparison.settings for axis in one.setting))


def _metric_head(key: Key) -> str:
    name, metric = key
    return f"{name} {METRIC_TITLES[metric]}"


def _score_cell(method: MethodResults, metric: MetricComparison, style: Style) -> str:
    values = list(method.scores.get(metric.key, {}).values())
    if not values:
        return "-"
    spread = f" ± {100 * _sd(values):.2f}" if len(values) > 1 else ""
    best, mark = _is_best(method, metric), method.name in metric.ties
    return style(f"{100 * float(np.mean(values)):.2f}", spread, best, mark)


def _is_best(method: MethodResults, metric: MetricComparison) -> bool:
    """Return whether a method is the best of several; a single method is not."""
    return bool(metric.pairs) and method.name == metric.best


def _detectable(metric: MetricComparison) -> str:
    return "none" if math.isinf(metric.detectable) else f"{100 * metric.detectable:.2f}"


def _mean_and_sd(values: Sequence[float], digits: int) -> str:
    if not values:
        return "-"
    spread = f" ± {_sd(values):.{digits}f}" if len(values) > 1 else ""
    return f"{float(np.mean(values)):.{digits}f}{spread}"


def _sd(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _minutes(method: MethodResults) -> list[float]:
    return [seconds / 60 for seconds in method.seconds.values()]


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _csv(heads: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(lines)
    return buffer.getvalue()
