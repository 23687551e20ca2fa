"""A comparison as tables: for the console, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison.collect import Block, Column, Comparison, Row
from auxlearn.comparison.power import POWER
from auxlearn.comparison.statistics import ALPHA, MINIMUM_SEEDS, seeds_for_permutation_test
from auxlearn.reporting.tables import console_table, markdown_table

if TYPE_CHECKING:
    from rich.table import Table

TITLES = {"accuracy": "accuracy", "macro_f1": "macro-F1"}
#: After a figure that may be as good as the best.
MARK = "≈"
#: After the best figure, where bold print may not show.
BEST = "*"

#: Makes a cell of a mean, a standard deviation, whether it is best, and whether it is marked.
Style = Callable[[str, str, bool, bool], str]


def legend(comparison: Comparison) -> list[str]:
    """Say how the tables are to be read."""
    lines = [
        "Figures are percentages, mean ± standard deviation over seeds; the best is bold.",
        f"{MARK}: the difference to the best may be chance ({_seed_tests(comparison)} over seeds, "
        "bootstrap over examples, t-test over both, Holm's correction over all pairs of a column, "
        f"level {ALPHA:g}).",
        "Detectable: if one method is truly better than all others by this much, these tests tell "
        f"it from another {POWER:.0%} of the time.",
    ]
    if comparison.chosen:
        lines.append(
            f"{', '.join(comparison.chosen)}: chosen on dev by the mean over seeds. Figures on "
            "other sets were read for the chosen value only."
        )
    else:
        lines.append("Nothing was chosen between trials; every checkpoint was chosen on dev.")
    return lines


def block_notes(block: Block) -> list[str]:
    """Say what a reader of one table must know."""
    notes = []
    for row in block.rows:
        if row.chosen:
            values = ", ".join(f"{axis} {value}" for axis, value in row.chosen.items())
            notes.append(f"{row.name}: {values} (chosen on dev)")
        for seed, state in sorted(row.missing.items()):
            notes.append(f"{row.name}: no figures for seed {seed} ({state})")
        if row.degenerate:
            notes.append(
                f"{row.name}: degenerate for {len(row.degenerate)} of {len(row.runs)} seeds "
                "(one class is predicted for every dev example)"
            )
    finished = [row for row in block.rows if row.runs]
    seeds = min(len(row.runs) for row in finished)
    if len(finished) == 1:
        return notes
    if seeds < MINIMUM_SEEDS:
        notes.append(
            f"{seeds} {'seed' if seeds == 1 else 'seeds'} can tell nothing apart, however large "
            f"the difference: at least {MINIMUM_SEEDS} are needed"
        )
    elif any("t" in column.seed_tests for column in block.columns):
        needed = seeds_for_permutation_test(max(len(column.pairs) for column in block.columns))
        why = f" with fewer than {needed} seeds" if needed else ", however many seeds"
        notes.append(
            "test over seeds: paired t-test, which assumes that differences between seeds are "
            f"normal; the permutation test cannot reject here{why}"
        )
    return notes


def _seed_tests(comparison: Comparison) -> str:
    """Name the tests over seeds that the columns have."""
    found = {test for block in comparison.blocks for c in block.columns for test in c.seed_tests}
    names = {"permutation": "paired permutation test", "t": "paired t-test"}
    return " or ".join(names[test] for test in sorted(found)) or names["permutation"]


def block_grid(block: Block, style: Style) -> tuple[list[str], list[list[str]]]:
    """Lay out a block: one row for each method, one column for each set and metric.

    Returns:
        The heads of the columns, and the cells.
    """
    heads = ["method", "seeds", *(f"{name} {TITLES[metric]}" for name, metric in _keys(block))]
    heads += ["epochs to best", "minutes"]
    rows = []
    for row in block.rows:
        cells = [row.name, str(len(row.runs))]
        for column in block.columns:
            values = list(row.figures.get(column.key, {}).values())
            cells.append(_figure(values, row, column, style))
        cells += [_plain(list(row.epochs.values()), 1), _plain(_minutes(row), 2)]
        rows.append(cells)
    if sum(bool(row.runs) for row in block.rows) > 1:
        detectable = [_detectable(column) for column in block.columns]
        rows.append(["detectable", "", *detectable, "", ""])
    return heads, rows


def console_tables(comparison: Comparison) -> list[Table | str]:
    """Return titles, tables and notes for the console, in order."""
    from rich.text import Text

    items: list[Table | str] = []
    for block in comparison.blocks:
        heads, rows = block_grid(block, _console_style)
        table = console_table([head.replace(" ", "\n", 1) for head in heads], [])
        for row in rows:
            table.add_row(*(Text(cell, style="bold" if cell[-1:] == BEST else "") for cell in row))
        items += [f"\n{block.title}", table, *block_notes(block)]
    if comparison.published:
        items += [f"\nBeside the published figures of {comparison.source}"]
        items += [console_table(*published_grid(comparison)), *published_notes(comparison)]
    return [*items, "", *legend(comparison), f"{BEST}: the best, where bold does not show."]


def _console_style(mean: str, spread: str, best: bool, mark: bool) -> str:
    return mean + spread + (f" {BEST}" if best else f" {MARK}" if mark else "  ")


def markdown(comparison: Comparison) -> str:
    """Return the whole comparison in Markdown."""

    def style(mean: str, spread: str, best: bool, mark: bool) -> str:
        return (f"**{mean}**" if best else mean) + spread + (f" {MARK}" if mark else "")

    parts = [f"# {', '.join(comparison.names)}", _bullets(legend(comparison))]
    for block in comparison.blocks:
        parts += [f"## {block.title}", markdown_table(*block_grid(block, style))]
        if block_notes(block):
            parts.append(_bullets(block_notes(block)))
    if comparison.published:
        parts += ["## Beside the published figures", f"Published: {comparison.source}"]
        parts.append(markdown_table(*published_grid(comparison)))
        parts += published_notes(comparison)
    return "\n\n".join(parts) + "\n"


def latex(comparison: Comparison) -> str:
    """Return one table environment for each block, set with booktabs, no wider than the text."""

    def style(mean: str, spread: str, best: bool, mark: bool) -> str:
        mean = rf"\textbf{{{mean}}}" if best else mean
        return mean + spread.replace("±", r"$\pm$") + (r"$^{\approx}$" if mark else "")

    parts = [r"% \usepackage{booktabs,graphicx}"]
    for block in comparison.blocks:
        heads, rows = block_grid(block, style)
        caption = " ".join([f"{block.title}.", *legend(comparison), *block_notes(block)])
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
        for row in rows:
            if row[0] == "detectable":
                body.append(r"\midrule")
            cells = [escape_latex(row[0]), *(cell.replace("±", r"$\pm$") for cell in row[1:])]
            body.append(" & ".join(cells) + r" \\")
        body += [r"\bottomrule", r"\end{tabular}}", r"\end{table}"]
        parts.append("\n".join(body))
    return "\n\n".join(parts) + "\n"


def figures_csv(comparison: Comparison) -> str:
    """Return one line for each method, set and metric, with shares (0 to 1) in full precision."""
    axes = list(dict.fromkeys(a for block in comparison.blocks for a in block.setting))
    heads = [*axes, "method", *comparison.chosen, "set", "figure", "seeds", "mean", "sd"]
    heads += ["best", "may_equal_best", "seed_test", "detectable", "epochs_to_best", "minutes"]
    lines: list[list[Any]] = []
    for block in comparison.blocks:
        for row in block.rows:
            for column in block.columns:
                values = list(row.figures.get(column.key, {}).values())
                if not values:
                    continue
                lines.append(
                    [
                        *(block.setting.get(axis, "") for axis in axes),
                        row.name,
                        *(row.chosen.get(axis, "") for axis in comparison.chosen),
                        *column.key,
                        len(values),
                        float(np.mean(values)),
                        _sd(values),
                        _is_best(row, column),
                        row.name in column.ties,
                        "+".join(column.seed_tests),
                        column.detectable,
                        float(np.mean(list(row.epochs.values()))),
                        float(np.mean(_minutes(row))),
                    ]
                )
    return _csv(heads, lines)


def pairs_csv(comparison: Comparison) -> str:
    """Return one line for every two methods of each column, with their p-values.

    ``seed_test`` is "permutation", or "t" where there are too few seeds for it to reject: the
    t-test assumes that differences between seeds are normal.
    """
    axes = list(dict.fromkeys(a for block in comparison.blocks for a in block.setting))
    heads = [*axes, "set", "figure", "first", "second", "difference"]
    heads += ["seed_test", "p_seeds", "p_rows", "p_both", "p_holm"]
    lines: list[list[Any]] = []
    for block in comparison.blocks:
        for column in block.columns:
            for pair in column.pairs:
                values = [pair.first, pair.second, pair.difference, pair.seed_test]
                values += [pair.p_seeds, pair.p_rows, pair.p_both, pair.p]
                setting = [block.setting.get(axis, "") for axis in axes]
                lines.append([*setting, *column.key, *values])
    return _csv(heads, lines)


def published_grid(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Lay out every published figure with the new one and the difference, where there is one."""
    axes = list(dict.fromkeys(a for figure in comparison.published for a in figure.cell))
    heads = [*axes, "set", "figure", "published", "here", "difference"]
    rows = []
    for figure in comparison.published:
        spread = "" if figure.sd is None else f" ± {figure.sd:.2f}"
        values = _here(comparison, figure)
        here = _plain([100 * value for value in values], 2)
        mean = 100 * float(np.mean(values)) if values else math.nan
        rows.append(
            [
                *(figure.cell.get(axis, "") for axis in axes),
                figure.set,
                TITLES[figure.metric],
                f"{figure.mean:.2f}{spread}",
                here,
                f"{mean - figure.mean:+.2f}" if values else "-",
            ]
        )
    return heads, rows


def published_notes(comparison: Comparison) -> list[str]:
    """Say so if no published figure belongs to anything that was run."""
    if any(_here(comparison, figure) for figure in comparison.published):
        return []
    return ["None of the published figures is for data, encoder and method that were run here."]


def _here(comparison: Comparison, figure: Any) -> list[float]:
    for block in comparison.blocks:
        for row in block.rows:
            if all(row.cell.get(axis) == label for axis, label in figure.cell.items()):
                return list(row.figures.get((figure.set, figure.metric), {}).values())
    return []


def escape_latex(text: str) -> str:
    """Return text in which no character has a meaning for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in text)


_LATEX = {character: "\\" + character for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    MARK: r"$\approx$",
}


def _keys(block: Block) -> list[tuple[str, str]]:
    return [column.key for column in block.columns]


def _figure(values: Sequence[float], row: Row, column: Column, style: Style) -> str:
    if not values:
        return "-"
    spread = f" ± {100 * _sd(values):.2f}" if len(values) > 1 else ""
    best, mark = _is_best(row, column), row.name in column.ties
    return style(f"{100 * float(np.mean(values)):.2f}", spread, best, mark)


def _is_best(row: Row, column: Column) -> bool:
    """Return whether a method is the best of several; alone it is nothing."""
    return bool(column.pairs) and row.name == column.best


def _detectable(column: Column) -> str:
    return "none" if math.isinf(column.detectable) else f"{100 * column.detectable:.2f}"


def _plain(values: Sequence[float], digits: int) -> str:
    if not values:
        return "-"
    spread = f" ± {_sd(values):.{digits}f}" if len(values) > 1 else ""
    return f"{float(np.mean(values)):.{digits}f}{spread}"


def _sd(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _minutes(row: Row) -> list[float]:
    return [seconds / 60 for seconds in row.seconds.values()]


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _csv(heads: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(lines)
    return buffer.getvalue()
