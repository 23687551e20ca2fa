"""Tables of a comparison in LaTeX, for the package booktabs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

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
from auxlearn.reporting.escape import escape_latex

#: Width of the text of the class article at 10 pt, in points.
TEXT_WIDTH = 345.0
#: Width of a character in \small and in \scriptsize, and space between columns, in points.
_CHARACTER, _SMALL_CHARACTER, _SPACE = 4.7, 3.7, 8.0
#: Width of characters in \small that are much narrower or wider than most, in points.
_NARROW, _CAPITAL, _WIDE = 2.9, 6.6, 7.6
#: Width of the first column, in points, from which its names are broken into lines.
_NAMES = 110.0


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
    first, *widths = (_width(grid, number) for number in range(len(grid.heads)))
    room = TEXT_WIDTH - min(first, _NAMES)
    tables = []
    for number, columns in enumerate(_divide(_groups(grid, widths, room), room)):
        chosen = [0, *columns]
        part = Grid(
            [grid.heads[n] for n in chosen],
            [[line[n] for n in chosen] for line in grid.lines],
            grid.rules,
        )
        tables.append(_table(part, f"{text} (continued)" if number else text, first > _NAMES))
    return tables


def _groups(grid: Grid, widths: Sequence[float], room: float) -> list[tuple[Sequence[int], float]]:
    """Return the columns that stand together, with their width: those with one head above."""
    found: list[tuple[Sequence[int], float]] = []
    numbered = list(enumerate(widths, 1))
    for group, members in groupby(numbered, lambda one: grid.heads[one[0]][0]):
        columns = list(members)
        whole = sum(width for _, width in columns)
        if group and whole <= room:
            found.append(([number for number, _ in columns], whole))
        else:
            found += [([number], width) for number, width in columns]
    return found


def _divide(groups: Sequence[tuple[Sequence[int], float]], room: float) -> list[list[int]]:
    """Return the columns of as few tables as possible, the widest one as narrow as possible."""
    widths = [width for _, width in groups]
    sums = [sum(widths[i:j]) for i in range(len(widths)) for j in range(i + 1, len(widths) + 1)]
    fewest = len(_fill(groups, room))
    return next(
        parts
        for limit in sorted({room, *(one for one in sums if one < room)})
        if len(parts := _fill(groups, limit)) == fewest
    )


def _fill(groups: Sequence[tuple[Sequence[int], float]], room: float) -> list[list[int]]:
    """Return the columns of tables that are filled one after the other."""
    parts: list[list[int]] = [[]]
    used = 0.0
    for columns, width in groups:
        if parts[-1] and used + width > room:
            parts.append([])
            used = 0.0
        parts[-1] += columns
        used += width
    return parts


def _width(grid: Grid, number: int) -> float:
    cells = [line[number] for line in grid.lines]
    widths = [
        _text_width(one.text)
        + (len(one.spread) + 3) * _SMALL_CHARACTER * bool(one.spread)
        + 2 * _CHARACTER * bool(one.mark)
        for one in cells
    ]
    return max([_text_width(grid.heads[number][1]), *widths]) + _SPACE


def _text_width(text: str) -> float:
    return sum(
        _NARROW
        if character in "fijlrtI .,:;'!|/()[]-"
        else _WIDE
        if character in "mwMW%" or ord(character) > 0x2FF
        else _CAPITAL
        if character.isupper()
        else _CHARACTER
        for character in text
    )


def _table(grid: Grid, text: str, broken: bool) -> str:
    names = rf"p{{{_NAMES:g}pt}}" if broken else "l"
    lines = [
        r"\begin{table}",
        r"\centering\small",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape_latex(text)}}}",
        rf"\begin{{tabular}}{{@{{}}{names}{'r' * (len(grid.heads) - 1)}@{{}}}}",
        r"\toprule",
        *_heads(grid.heads),
        r"\midrule",
    ]
    for number, line in enumerate(grid.lines):
        if number in grid.rules:
            lines.append(r"\midrule")
        row = " & ".join(map(_cell, line)) + r" \\"
        # After the end of a row and after a rule, these begin an argument.
        row = "{}" + row if row.lstrip().startswith(("[", "*")) else row
        lines.append((r"\raggedright\hangindent=1em " if broken else "") + row)
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
