"""Tables of a comparison in LaTeX, for the package booktabs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from auxlearn.comparison.escape import escape_latex
from auxlearn.comparison.grid import (
    Cell,
    Grid,
    Layout,
    block_notes,
    caption,
    column_title,
    legend,
    marks,
    matrix_grid,
    rank_grid,
    rank_title,
    score_grid,
)
from auxlearn.comparison.result import ComparisonData

#: Width of the text of the class article at 10 pt, in points.
TEXT_WIDTH = 345.0
#: Width of a character in \small and in \scriptsize, and space between columns, in points.
_CHARACTER, _SMALL_CHARACTER, _SPACE = 4.7, 3.7, 8.0


def latex(comparison: ComparisonData, layout: Layout) -> str:
    """Return the tables, none wider than the text of the class article.

    A table that would be wider is divided by columns. Captions say what is in a table; how
    differences were tested stands in comments, to be used in the text.
    """
    parts = [r"% \usepackage{booktabs}"]
    notes = [*legend(comparison, layout), *comparison.notes]
    for block in comparison.blocks:
        said = f"{block.title}. " if block.title else ""
        text = said + " ".join(filter(None, [caption(block), marks(comparison, block)]))
        parts += _tables(score_grid(block, layout, comparison.against), text)
        parts += [_comments(block_notes(block))]
        for found in block.across:
            parts += _tables(rank_grid(found, layout), f"{rank_title(found)}.")
        for column in block.columns if "pairs" in layout.show else ():
            if column.pairs:
                text = (
                    f"{column_title(column)}: line minus column; significant differences in bold."
                )
                parts += _tables(matrix_grid(column, layout), text)
    return "\n\n".join(filter(None, [*parts, _comments(notes)])) + "\n"


def _comments(notes: Sequence[str]) -> str:
    return "\n".join(f"% {escape_latex(note)}" for note in notes)


def _tables(grid: Grid, text: str) -> list[str]:
    """Return a table, divided into several if it is too wide for the text."""
    widths = [_width(grid, number) for number in range(len(grid.heads))]
    parts: list[list[int]] = [[]]
    for number in range(1, len(widths)):
        if parts[-1] and widths[0] + sum(widths[n] for n in [*parts[-1], number]) > TEXT_WIDTH:
            parts.append([])
        parts[-1].append(number)
    tables = []
    for number, columns in enumerate(parts):
        chosen = [0, *columns]
        part = Grid(
            [grid.heads[n] for n in chosen],
            [[line[n] for n in chosen] for line in grid.lines],
            grid.rules,
        )
        tables.append(_table(part, f"{text} (continued)" if number else text))
    return tables


def _width(grid: Grid, number: int) -> float:
    cells = [line[number] for line in grid.lines]
    widths = [
        len(one.text) * _CHARACTER
        + (len(one.spread) + 3) * _SMALL_CHARACTER * bool(one.spread)
        + 2 * _CHARACTER * bool(one.mark)
        for one in cells
    ]
    return max([len(grid.heads[number][1]) * _CHARACTER, *widths]) + _SPACE


def _table(grid: Grid, text: str) -> str:
    lines = [
        r"\begin{table}",
        r"\centering\small",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape_latex(text)}}}",
        rf"\begin{{tabular}}{{@{{}}l{'r' * (len(grid.heads) - 1)}@{{}}}}",
        r"\toprule",
        *_heads(grid.heads),
        r"\midrule",
    ]
    for number, line in enumerate(grid.lines):
        if number in grid.rules:
            lines.append(r"\midrule")
        lines.append(" & ".join(map(_cell, line)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _heads(heads: Sequence[tuple[str, str]]) -> list[str]:
    """Return one line of heads, or groups of several columns above their names."""
    groups = [(group, len(list(members))) for group, members in groupby(heads, lambda one: one[0])]
    if all(count == 1 for group, count in groups if group) and not any(all(head) for head in heads):
        return [" & ".join(escape_latex(" ".join(filter(None, head))) for head in heads) + r" \\"]
    above, rules, start = [], [], 1
    for group, count in groups:
        end = start + count - 1
        above.append(
            rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(group)}}}"
            if group
            else " & " * (count - 1)
        )
        if group and count > 1:
            rules.append(rf"\cmidrule(lr){{{start}-{end}}}")
        start = end + 1
    below = " & ".join(escape_latex(name) for _, name in heads)
    return [" & ".join(above) + r" \\", *([" ".join(rules)] if rules else []), below + r" \\"]


def _cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    text = rf"\textbf{{{text}}}" if cell.best else text
    if cell.spread:
        text += rf"{{\scriptsize\,$\pm$\,{cell.spread}}}"
    marks = {"≈": r"\approx", "▲": r"\uparrow", "▼": r"\downarrow"}
    return text + (rf"$^{{{marks[cell.mark]}}}$" if cell.mark else "")
