"""Figures as tables: for the console, and as Markdown for a model card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from auxlearn.results.record import Evaluation, Scores

if TYPE_CHECKING:
    from rich.table import Table


def figures_grid(evaluations: Mapping[str, Evaluation]) -> tuple[list[str], list[list[str]]]:
    """Lay out the figures of evaluation sets, one row for each.

    Accuracy and macro-F1 are given on all rows and, if any set has rows whose text is in train,
    on the others as well; beside them stands what the majority class alone would get. Under a set
    stand its subsets and the rows it is paired with.

    Args:
        evaluations: Figures by set.

    Returns:
        The heads of the columns, and the cells.
    """
    seen = any(found.seen_examples for found in evaluations.values())
    heads = ["set", "rows", "accuracy", "macro-F1"]
    if seen:
        heads += ["unseen rows", "unseen accuracy", "unseen macro-F1"]
    paired = any(found.pair_accuracy is not None for found in evaluations.values())
    if paired:
        heads.append("pair accuracy")
    heads += ["majority accuracy", "majority macro-F1"]
    rows = []
    for name, found in evaluations.items():
        cells = [name, str(found.all.examples), *_pair(found.all)]
        if seen:
            cells += [str(found.unseen.examples if found.unseen else 0), *_pair(found.unseen)]
        if paired:
            cells.append("-" if found.pair_accuracy is None else f"{found.pair_accuracy:.3f}")
        rows.append([*cells, *_pair(found.majority)])
        parts = dict(found.subsets)
        if found.partner is not None:
            parts["paired rows"] = found.partner
        for part, scores in parts.items():
            cells = [f"{name}, {part}", str(scores.examples), *_pair(scores)]
            rows.append(cells + ["-"] * (len(heads) - len(cells)))
    return heads, rows


def figures_table(evaluations: Mapping[str, Evaluation]) -> Table:
    """Return :func:`figures_grid` as a table for the console."""
    heads, rows = figures_grid(evaluations)
    return console_table([head.replace(" ", "\n") for head in heads], rows, gap=1)


def seen_sentences(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Say how many rows of each set have a text that is in train; nothing if none has."""
    return [
        f"{name}: the text of {found.seen_examples} of {found.all.examples} rows is also in train; "
        "the unseen columns leave these out"
        for name, found in evaluations.items()
        if found.seen_examples
    ]


def console_table(heads: Sequence[str], rows: Iterable[Sequence[str]], gap: int = 2) -> Table:
    """Return a table whose first column is text and whose others are numbers.

    Args:
        heads: One for each column.
        rows: The cells.
        gap: Spaces between columns.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    padding = (0, gap - 1, 0, 0)  # the box puts one space between columns
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=padding, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers."""
    ruler = ["---", *["---:"] * (len(heads) - 1)]
    lines = [heads, ruler, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _pair(scores: Scores | None) -> list[str]:
    if scores is None:
        return ["-", "-"]
    return [f"{scores.accuracy:.3f}", f"{scores.macro_f1:.3f}"]
