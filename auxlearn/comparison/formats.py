"""A comparison for the terminal, in Markdown, HTML, LaTeX and CSV files."""

from __future__ import annotations

import html as markup
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from auxlearn.comparison import plots
from auxlearn.comparison.result import ComparisonData
from auxlearn.comparison.rows import pair_rows, score_rows, to_csv
from auxlearn.comparison.scores import metric_title
from auxlearn.comparison.tables import (
    Cell,
    Grid,
    Layout,
    block_notes,
    caption,
    column_title,
    legend,
    marks,
    matrix_grid,
    pair_grid,
    rank_grid,
    rank_notes,
    rank_title,
    score_grid,
)
from auxlearn.core.errors import printable
from auxlearn.core.files import write_text
from auxlearn.results.outputs import check_output_folder
from auxlearn.results.tables import console_table, escape_latex, escape_markdown, markdown_table
from auxlearn.sweeps.published import PublishedResult

if TYPE_CHECKING:
    from rich.table import Table


#: Marks the best score where bold print may not show.
BEST = "*"


def terminal(comparison: ComparisonData, layout: Layout) -> list[Table | str]:
    """Return titles, tables and notes for the terminal, in order."""
    items: list[Table | str] = []
    for block in comparison.blocks:
        title = f"{block.title}. " if block.title else ""
        items += ["", f"{title}{caption(block)}"]
        items += [_console(score_grid(block, layout, comparison.against))]
        items += block_notes(block)
        for found in block.across:
            items += ["", rank_title(found), _console(rank_grid(found, layout))]
            items += rank_notes(found)
        for column in block.columns if "pairs" in layout.show else ():
            if column.pairs:
                items += ["", column_title(column), _console(pair_grid(column, layout))]
    if comparison.published:
        items += ["", f"Compared with the published results of {comparison.source}"]
        grid = published_grid(comparison)
        items += [*([_console(grid)] if grid.lines else []), *published_notes(comparison)]
    meaning = [marks(comparison, block) for block in comparison.blocks]
    shown = [
        f"{line} {BEST}: the best, where bold print is not shown." for line in meaning[:1] if line
    ]
    if comparison.against:
        shown = meaning[:1]
    return [*items, "", *shown, *legend(comparison, layout), *comparison.notes]


def _console(grid: Grid) -> Table:
    from rich.text import Text

    heads, _ = grid.flat(_plain)
    table = console_table(heads, [])
    for number, line in enumerate(grid.lines):
        if number in grid.rules:
            table.add_section()
        cells = (Text(_plain(cell), style="bold" if cell.best else "") for cell in line)
        table.add_row(*cells)
    return table


def _plain(cell: Cell) -> str:
    spread = f" ± {cell.spread}" if cell.spread else ""
    mark = f" {BEST}" if cell.best else f" {cell.mark}" if cell.mark else "  " if spread else ""
    return cell.text + spread + mark


def markdown(comparison: ComparisonData, layout: Layout) -> str:
    """Return the whole comparison in Markdown."""
    parts = []
    for block in comparison.blocks:
        if block.title:
            parts.append(f"## {escape_markdown(block.title)}")
        parts += [
            escape_markdown(caption(block)),
            _markdown(score_grid(block, layout, comparison.against)),
        ]
        parts += _bullets(filter(None, [marks(comparison, block), *block_notes(block)]))
        for found in block.across:
            parts += [
                f"### {escape_markdown(rank_title(found))}",
                _markdown(rank_grid(found, layout)),
            ]
            parts += _bullets(rank_notes(found))
        for column in block.columns if "pairs" in layout.show else ():
            if column.pairs:
                parts.append(f"### {escape_markdown(column_title(column))}")
                parts.append(_markdown(pair_grid(column, layout)))
                parts += ["Line minus column; significant differences are bold."]
                parts.append(_markdown(matrix_grid(column, layout)))
    if comparison.published:
        parts += ["## Compared with published results", escape_markdown(comparison.source)]
        grid = published_grid(comparison)
        parts += [*([_markdown(grid)] if grid.lines else []), *published_notes(comparison)]
    return "\n\n".join([*parts, *_bullets([*legend(comparison, layout), *comparison.notes])]) + "\n"


def _markdown(grid: Grid) -> str:
    def render(cell: Cell) -> str:
        text = escape_markdown(cell.text)
        spread = f" ± {cell.spread}" if cell.spread else ""
        return (
            (f"**{text}**" if cell.best else text) + spread + (f" {cell.mark}" if cell.mark else "")
        )

    heads, lines = grid.flat(render)
    return markdown_table([escape_markdown(head) for head in heads], lines)


def _bullets(lines: Iterable[str]) -> list[str]:
    found = "\n".join(f"- {escape_markdown(line)}" for line in lines)
    return [found] if found else []


def html(comparison: ComparisonData) -> str:
    """Return the tables of scores and of ranks in HTML, for notebooks."""
    layout = Layout()
    parts = []
    for block in comparison.blocks:
        parts.append(f"<p>{_safe(f'{block.title}. {caption(block)}')}</p>")
        parts.append(_html(score_grid(block, layout, comparison.against)))
        for found in block.across:
            parts += [f"<p>{_safe(rank_title(found))}</p>", _html(rank_grid(found, layout))]
        notes = filter(None, [marks(comparison, block), *block_notes(block)])
        parts += [f"<div><small>{_safe(note)}</small></div>" for note in notes]
    said = [*legend(comparison, layout), *comparison.notes]
    return "\n".join([*parts, *(f"<div><small>{_safe(note)}</small></div>" for note in said)])


def _html(grid: Grid) -> str:
    def render(cell: Cell) -> str:
        text = f"<b>{_safe(cell.text)}</b>" if cell.best else _safe(cell.text)
        spread = f" <small>± {_safe(cell.spread)}</small>" if cell.spread else ""
        return text + spread + (f" {cell.mark}" if cell.mark else "")

    heads, lines = grid.flat(render)
    first = "".join(f"<th>{_safe(head)}</th>" for head in heads)
    rows = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    return f"<table><thead><tr>{first}</tr></thead><tbody>\n{rows}\n</tbody></table>"


def _safe(text: str) -> str:
    return markup.escape(printable(text))


def published_grid(comparison: ComparisonData) -> Grid:
    """Lay out published results with the result here and the difference, if there is one.

    Those of data sets and encoders that were not run are left out; see :func:`published_notes`.
    """
    shown = [result for result in comparison.published if _was_run(comparison, result)]
    axes = list(dict.fromkeys(axis for result in shown for axis in result.labels))
    named = ["checkpoints by" if axis == "metric" else axis for axis in axes]
    heads = [*named, "set", "metric", "published", "here", "difference"]
    lines = []
    for result in shown:
        values = _scores_here(comparison, result)
        mean = 100 * float(np.mean(values)) if values else math.nan
        spread = f"{100 * float(np.std(values, ddof=1)):.2f}" if len(values) > 1 else ""
        lines.append(
            [
                *(Cell(result.labels.get(axis, "")) for axis in axes),
                Cell(result.set),
                Cell(metric_title(result.metric)),
                Cell(f"{result.mean:.2f}", "" if result.sd is None else f"{result.sd:.2f}"),
                Cell(f"{mean:.2f}", spread) if values else Cell("-"),
                Cell(f"{mean - result.mean:+z.2f}" if values else "-"),
            ]
        )
    return Grid([("", head) for head in heads], lines)


def published_notes(comparison: ComparisonData) -> list[str]:
    """Return a note on the published results that are not shown."""
    missing = sum(not _was_run(comparison, result) for result in comparison.published)
    if missing == len(comparison.published):
        return [f"None of the {missing} published results is for a data set and encoder run here."]
    if missing:
        return [f"{missing} more are for other data sets or encoders."]
    return []


def _was_run(comparison: ComparisonData, result: PublishedResult) -> bool:
    """Return whether the setting of a published result was run, with whatever method."""
    setting = {axis: label for axis, label in result.labels.items() if axis != "method"}
    return any(
        all(method.labels.get(axis) == label for axis, label in setting.items())
        for block in comparison.blocks
        for data in block.datasets
        for method in data.methods
    )


def _scores_here(comparison: ComparisonData, result: PublishedResult) -> list[float]:
    """Return the scores, one for each seed, of the method that a published result is for."""
    for block in comparison.blocks:
        for data in block.datasets:
            for method in data.methods:
                if all(method.labels.get(axis) == label for axis, label in result.labels.items()):
                    found = [one.evaluations.get(result.set) for one in method.results.values()]
                    return [getattr(one.all, result.metric) for one in found if one is not None]
    return []


def render(comparison: ComparisonData, name: str, layout: Layout) -> str:
    """Return a comparison in a format by name: ``markdown``, ``latex`` or ``csv``."""
    formats: dict[str, Callable[[], str]] = {
        "markdown": lambda: markdown(comparison, layout),
        "latex": lambda: latex(comparison, layout),
        "csv": lambda: to_csv(score_rows(comparison)),
    }
    return formats[name]()


def latex(comparison: ComparisonData, layout: Layout) -> str:
    """Return the tables; one that is wider than the text is scaled to its width.

    Captions say what is in a table; how differences were tested stands in comments, to be used in
    the text.
    """
    parts = [r"% \usepackage{booktabs,graphicx}"]
    notes = [*legend(comparison, layout), *comparison.notes]
    for block in comparison.blocks:
        said = f"{block.title}. " if block.title else ""
        text = said + " ".join(filter(None, [caption(block), marks(comparison, block)]))
        parts += [_latex(score_grid(block, layout, comparison.against), text)]
        parts += [_comments(block_notes(block))]
        for found in block.across:
            parts += [_latex(rank_grid(found, layout), f"{rank_title(found)}.")]
        for column in block.columns if "pairs" in layout.show else ():
            if column.pairs:
                text = (
                    f"{column_title(column)}: line minus column; significant differences in bold."
                )
                parts += [_latex(matrix_grid(column, layout), text)]
    return "\n\n".join(filter(None, [*parts, _comments(notes)])) + "\n"


def _comments(notes: Sequence[str]) -> str:
    return "\n".join(f"% {escape_latex(note)}" for note in notes)


def _latex(grid: Grid, text: str) -> str:
    lines = [
        r"\begin{table}",
        r"\centering\small",
        rf"\caption{{{escape_latex(text)}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{@{{}}l{'r' * (len(grid.heads) - 1)}@{{}}}}",
        r"\toprule",
        *_heads(grid.heads),
        r"\midrule",
    ]
    for number, line in enumerate(grid.lines):
        if number in grid.rules:
            lines.append(r"\midrule")
        row = " & ".join(map(_cell, line)) + r" \\"
        # After the end of a row and after a rule, these begin an argument.
        lines.append("{}" + row if row.lstrip().startswith(("[", "*")) else row)
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table}"])


def _heads(heads: Sequence[tuple[str, str]]) -> list[str]:
    """Return one line of heads, or groups of several columns above their names."""
    if not any(map(all, heads)):
        return [" & ".join(escape_latex(group or name) for group, name in heads) + r" \\"]
    above, rules, start = [], "", 1
    for group, members in groupby(heads, lambda one: one[0]):
        count = len(list(members))
        above.append(rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(group)}}}")
        if group and count > 1:
            rules += rf"\cmidrule(lr){{{start}-{start + count - 1}}}"
        start += count
    below = " & ".join(escape_latex(name) for _, name in heads)
    return [" & ".join(above) + r" \\" + rules, below + r" \\"]


def _cell(cell: Cell) -> str:
    text = escape_latex(cell.text)
    text = rf"\textbf{{{text}}}" if cell.best else text
    if cell.spread:
        text += rf"{{\scriptsize\,$\pm$\,{cell.spread}}}"
    marks = {"≈": r"\approx", "▲": r"\uparrow", "▼": r"\downarrow"}
    return text + (rf"$^{{{marks[cell.mark]}}}$" if cell.mark else "")


def save(comparison: ComparisonData, folder: Path, layout: Layout) -> list[Path]:
    """Write ``table.md``, ``table.tex``, ``scores.csv``, ``pairs.csv`` and the plots."""
    check_output_folder(folder)
    content = {
        "table.md": markdown(comparison, layout),
        "table.tex": latex(comparison, layout),
        "scores.csv": to_csv(score_rows(comparison)),
        "pairs.csv": to_csv(pair_rows(comparison)),
    }
    for name, text in content.items():
        write_text(folder / name, text)
    return [*(folder / name for name in content), *plots.plot_comparison(comparison, folder)]
