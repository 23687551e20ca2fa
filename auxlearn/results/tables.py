"""Tables of texts as DataFrames, and how the console, Markdown, HTML, LaTeX and CSV show them."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import printable
from auxlearn.kinds.metrics import difference, metric_title
from auxlearn.results.record import Evaluation, RunResults, Scores, shown_branches

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.table import Table
    from rich.text import Text

#: Marks the best score where bold print may not show.
BEST = "*"

#: Characters of a line of a terminal; heads of wider tables are broken at every word.
TERMINAL = 80


class Bold(str):
    """A text of a table that is emphasised, such as the best score of a column."""

    __slots__ = ()


def text_table(heads: Sequence[Any], lines: Iterable[Sequence[str]]) -> DataFrame:
    """Return a table of texts, whose first column is left-aligned where it is shown.

    Args:
        heads: Names of the columns, or pairs of the name of a group of columns and that of each.
        lines: Texts, of which those to emphasise are :class:`Bold`.
    """
    import pandas

    columns = pandas.Index(list(heads))  # of pairs, one of two levels
    if columns.nlevels == 2 and not any(columns.get_level_values(0)):
        columns = columns.droplevel(0)
    # dtype object keeps Bold; of any other dtype, texts are plain again.
    return pandas.DataFrame(list(lines), columns=columns, dtype=object)


def titles(table: DataFrame) -> list[str]:
    """Return the head of each column in one line."""
    heads = (head if isinstance(head, tuple) else (head,) for head in table.columns)
    return [" ".join(filter(None, head)) for head in heads]


def rich_table(table: DataFrame) -> Table:
    """Return a table for the console."""
    from rich import box
    from rich.table import Table

    heads = titles(table)
    narrow = sum(len(head) + 2 for head in heads) > TERMINAL
    # The box puts one space between columns.
    padding = (0, 0 if narrow else 1, 0, 0)
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=padding, pad_edge=False)
    for number, head in enumerate(heads):
        lines = head.replace(" ", "\n") if narrow else head
        shown.add_column(lines, justify="right" if number else "left", overflow="fold")
    for line in table.map(_marked).to_numpy():
        shown.add_row(*line)
    return shown


def _marked(text: str) -> Text:
    from rich.text import Text

    return Text(f"{text} {BEST}", style="bold") if isinstance(text, Bold) else Text(text)


def to_markdown(table: DataFrame) -> str:
    """Return a table in Markdown, for which pandas would need another library."""
    shown = _written(table, escape_markdown, "**{}**")
    ruler = ["---", *["---:"] * (len(shown.columns) - 1)]
    lines = [list(shown.columns), ruler, *shown.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def to_html(table: DataFrame) -> str:
    shown = _written(table, escape_html, "<b>{}</b>").to_html(index=False, escape=False, border=0)
    return shown.replace(' style="text-align: right;"', "")


def to_latex(table: DataFrame, caption: str) -> str:
    """Return a table environment for booktabs; one wider than the text is scaled to it."""
    shown = _written(table, escape_latex, r"\textbf{{{}}}", flat=False)
    columns = rf"@{{}}l{'r' * (len(table.columns) - 1)}@{{}}"
    tabular = shown.style.hide(axis="index").to_latex(
        hrules=True, column_format=columns, multicol_align="c"
    )
    lines = [
        r"\begin{table}",
        r"\centering\small",
        rf"\caption{{{escape_latex(caption)}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        f"{tabular.strip()}}}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def to_csv(table: DataFrame) -> str:
    """Return a table as CSV, in which no name of a user is a formula."""
    shown = table.map(escape_csv).rename(columns=escape_csv)
    return str(shown.to_csv(index=False, lineterminator="\n"))


def _written(
    table: DataFrame, escape: Callable[[str], str], bold: str, flat: bool = True
) -> DataFrame:
    """Return a table as it is written in a format; ``flat``: with one line of heads."""

    def cell(text: str) -> str:
        return bold.format(escape(text)) if isinstance(text, Bold) else escape(text)

    shown, heads = table.map(cell), list(map(escape, titles(table)))
    return shown.set_axis(heads, axis=1) if flat else shown.rename(columns=escape)


def metrics_table(evaluations: Mapping[str, Evaluation]) -> DataFrame:
    """Return the metrics of sets and their parts: of all, unseen and majority predictions."""
    seen = any(evaluation.seen_examples for evaluation in evaluations.values())
    paired = any(evaluation.pair_accuracy is not None for evaluation in evaluations.values())
    metrics = list(next(iter(evaluations.values())).all.metrics)

    def scored(scores: Scores | None, before: str = "") -> dict[str, str]:
        values = ["-" if scores is None else f"{scores.metrics[metric]:.3f}" for metric in metrics]
        titles = [f"{before}{metric_title(metric)}" for metric in metrics]
        return dict(zip(titles, values, strict=True))

    rows: list[dict[str, str]] = []
    for name, evaluation in evaluations.items():
        row = {"set": name, "examples": str(evaluation.all.examples), **scored(evaluation.all)}
        if seen:
            unseen = evaluation.all.examples - (evaluation.seen_examples or 0)
            count = "-" if evaluation.seen_examples is None else str(unseen)
            row |= {"unseen examples": count, **scored(evaluation.unseen, "unseen ")}
        if paired:
            share = evaluation.pair_accuracy
            row["pair accuracy"] = "-" if share is None else f"{share:.3f}"
        rows.append(row | scored(evaluation.majority, "majority "))
        partner = {} if evaluation.partner is None else {"paired examples": evaluation.partner}
        rows += [
            {"set": f"{name}, {subset}", "examples": str(scores.examples), **scored(scores)}
            for subset, scores in (evaluation.subsets | partner).items()
        ]
    heads = list(rows[0])
    return text_table(heads, ([row.get(head, "-") for head in heads] for row in rows))


def example_sentences(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Return what is to be known of :func:`metrics_table`, one sentence each."""
    by_chance, unknown, seen = [], [], []
    for name, evaluation in evaluations.items():
        examples = evaluation.all.examples
        if evaluation.chance is not None and name != "dev":
            by_chance.append(f"{name}: the model {evaluation.chance}")
        if evaluation.unknown_labels:
            unknown.append(
                f"{name}: the label of {evaluation.unknown_labels} of {examples} examples is "
                "unknown to the model; they count as wrong"
            )
        if evaluation.seen_examples:
            seen.append(
                f"{name}: the text of {evaluation.seen_examples} of {examples} examples is "
                "also in train; the unseen columns leave these out"
            )
    return [*by_chance, *unknown, *seen]


def branches_table(results: RunResults, seconds: bool = True) -> DataFrame:
    """Return the runs that a rule has compared, one line for each, in the order of training."""
    metric, kind = results.config["metric"], results.kind
    heads = ["run", f"dev {metric_title(metric)}", "gain", kind.correct_title, "taken"]
    lines = []
    for branch in shown_branches(results.branches):
        gains = ["-", "-"]
        if branch.gain is not None:
            more = f"{branch.correct:+.3g} ± {branch.correct_error:.2g}"
            gains = [difference(metric, branch.gain), more]
        line = [branch.title, f"{branch.value:.3f}", *gains, "yes" if branch.taken else ""]
        lines.append([*line, f"{branch.seconds:.0f} s"] if seconds else line)
    return text_table([*heads, "training"] if seconds else heads, lines)


def account_lines(results: RunResults) -> list[str]:
    """Return why the tasks that the run has applied have their weights, one sentence each."""
    return [text for task, text in results.account.items() if results.weights.get(task)]


_LATEX_LETTERS = {character: "\\" + character for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # At the beginning of a row these two would be an argument of the end of the row before.
    "[": "{[}",
    "*": "{*}",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
}


def escape_latex(text: str) -> str:
    return "".join(_LATEX_LETTERS.get(character, character) for character in printable(text))


def escape_html(text: str) -> str:
    return html.escape(printable(text))


def escape_markdown(text: str) -> str:
    """Return text as Markdown and HTML print it, also within a table."""
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*\[\]~$]|(?<!\w)_|_(?!\w))", r"\\\1", text)
    return text.replace("|", "&#124;")


def code_span(text: str) -> str:
    """Return text as code within Markdown.

    >>> print(code_span("<b>"), code_span("a`b"))
    `<b>` `` a`b ``
    """
    text = printable(text)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence, space = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


def escape_csv(value: Any) -> Any:
    """Return a value for a CSV file that no spreadsheet takes for a formula; numbers stay, as do
    tokens such as ``-``, which compute nothing.
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if re.match(r"[=+\-@].*\w", text) else text
