"""Tables of evaluation metrics for the console and in Markdown, and escapes of its texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from auxlearn.core.errors import printable
from auxlearn.core.metric_names import TITLES
from auxlearn.results.record import Evaluation, RunResults, Scores

if TYPE_CHECKING:
    from rich.table import Table


def metrics_grid(evaluations: Mapping[str, Evaluation]) -> tuple[list[str], list[list[str]]]:
    """Lay out the metrics of evaluation sets, one line for each set.

    Metrics are given on all examples and, if any set has examples whose text is in
    train, on the unseen examples as well; the last columns are the metrics of always predicting the
    majority class. Subsets and paired examples of a set follow it on lines of their own.
    """
    seen = any(found.seen_examples for found in evaluations.values())
    titles = [TITLES[metric] for metric in next(iter(evaluations.values())).all.metrics]
    heads = ["set", "examples", *titles]
    if seen:
        heads += ["unseen examples", *(f"unseen {title}" for title in titles)]
    paired = any(found.pair_accuracy is not None for found in evaluations.values())
    if paired:
        heads.append("pair accuracy")
    heads += [f"majority {title}" for title in titles]
    lines = []
    for name, found in evaluations.items():
        cells = [name, str(found.all.examples), *_metric_cells(found.all, len(titles))]
        if seen:
            count = "-" if found.seen_examples is None else found.all.examples - found.seen_examples
            cells += [str(count), *_metric_cells(found.unseen, len(titles))]
        if paired:
            cells.append("-" if found.pair_accuracy is None else f"{found.pair_accuracy:.3f}")
        lines.append([*cells, *_metric_cells(found.majority, len(titles))])
        subsets = dict(found.subsets)
        if found.partner is not None:
            subsets["paired examples"] = found.partner
        for subset, scores in subsets.items():
            cells = [f"{name}, {subset}", str(scores.examples), *_metric_cells(scores, len(titles))]
            lines.append(cells + ["-"] * (len(heads) - len(cells)))
    return heads, lines


def metrics_table(evaluations: Mapping[str, Evaluation]) -> Table:
    """Return :func:`metrics_grid` as a table for the console."""
    heads, lines = metrics_grid(evaluations)
    return console_table([head.replace(" ", "\n") for head in heads], lines, gap=1)


def example_sentences(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Return what the reader of :func:`metrics_grid` must know of the examples of the sets.

    That is, for each set, how many have a text that is in train, and how many have a label that the
    model does not know, if any have.
    """
    unknown = [
        f"{name}: the label of {found.unknown_labels} of {found.all.examples} examples is unknown "
        "to the model; they count as wrong"
        for name, found in evaluations.items()
        if found.unknown_labels
    ]
    return unknown + [
        f"{name}: the text of {found.seen_examples} of {found.all.examples} examples is also in "
        "train; the unseen columns leave these out"
        for name, found in evaluations.items()
        if found.seen_examples
    ]


def console_table(heads: Sequence[str], lines: Iterable[Sequence[str]], gap: int = 2) -> Table:
    """Return a table whose first column is text and whose others are numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    padding = (0, gap - 1, 0, 0)  # the box puts one space between columns
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=padding, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    return table


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers."""
    ruler = ["---", *["---:"] * (len(heads) - 1)]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ruler, *escaped))


def _metric_cells(scores: Scores | None, count: int) -> list[str]:
    if scores is None:
        return ["-"] * count
    return [f"{value:.3f}" for value in scores.metrics.values()]


def branches_grid(results: RunResults) -> tuple[list[str], list[list[str]]]:
    """Lay out the runs that a rule has compared, one line for each, in the order of training.

    The gain is by how much the calibrated log loss on dev is lower than that of the single task,
    with its standard error, in nats per example; the last column is the time of training.
    """
    metric = TITLES[results.config["metric"]]
    lines = []
    for one in results.branches:
        gain = "-" if one.gain is None else f"{one.gain:+.4f} ± {one.gain_error:.4f}"
        taken = "yes" if one.taken else ""
        lines.append([one.title, f"{one.value:.3f}", gain, taken, f"{one.seconds:.0f} s"])
    return ["run", f"dev {metric}", "gain on dev", "taken", "training"], lines


def branches_table(results: RunResults) -> list[Table | str]:
    """Return :func:`branches_grid` for the console; nothing if no runs were compared."""
    if not results.branches:
        return []
    heads, lines = branches_grid(results)
    return [console_table(heads, lines, gap=2), ""]


def account_lines(results: RunResults) -> list[str]:
    """Return why the tasks that the run has applied have their weights, one sentence each."""
    return [text for task, text in results.account.items() if results.weights.get(task)]


_LATEX = {character: "\\" + character for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
}


def escape_latex(text: str) -> str:
    r"""Return text as LaTeX prints it.

    >>> escape_latex("l3mask_v2 & 5%")
    'l3mask\\_v2 \\& 5\\%'
    """
    return "".join(_LATEX.get(character, character) for character in printable(text))


def escape_markdown(text: str) -> str:
    """Return text as Markdown and HTML print it, also within a table.

    >>> escape_markdown("a|b <c>")
    'a&#124;b &lt;c&gt;'
    """
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
    fence, space = "`" * (longest + 1), " " * bool(longest)
    return f"{fence}{space}{text}{space}{fence}"


def escape_csv(value: object) -> object:
    """Return a value for a CSV file that no spreadsheet takes for a formula; numbers stay.

    >>> escape_csv("=1+1"), escape_csv(-0.5)
    ("'=1+1", -0.5)
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text[:1] in tuple("=+-@") else text
