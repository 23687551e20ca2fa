"""Tables, and the forms in which they are shown: console, Markdown, HTML, LaTeX, CSV."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from auxlearn.core.errors import printable
from auxlearn.core.metric_names import TITLES, difference
from auxlearn.results.record import Evaluation, RunResults, Scores

if TYPE_CHECKING:
    from rich.table import Table

#: Marks the best score where bold print may not show.
BEST = "*"


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str  # such as a mean
    spread: str = ""  # standard deviation, without its sign
    best: bool = False  # whether to emphasise it
    mark: str = ""  # a sign behind it, or ""


@dataclass(frozen=True)
class Grid:
    """A table, whose first column is text and whose others are numbers; rich prints it."""

    #: Group and name of each column; columns of one group follow one another.
    heads: Sequence[tuple[str, str]]
    lines: Sequence[Sequence[Cell]]
    rules: Sequence[int] = ()  # lines before which a rule is drawn
    #: Whether the console shows a word of a head on each line, and little space between.
    narrow: bool = False

    @classmethod
    def of(
        cls, heads: Iterable[str], lines: Iterable[Iterable[str | Cell]], narrow: bool = False
    ) -> Grid:
        """Return a table of texts and cells, without groups of columns."""
        cells = [[one if isinstance(one, Cell) else Cell(one) for one in line] for line in lines]
        return cls([("", head) for head in heads], cells, narrow=narrow)

    @property
    def titles(self) -> list[str]:
        """The head of each column in one line."""
        return [" ".join(filter(None, head)) for head in self.heads]

    @property
    def texts(self) -> list[list[str]]:
        return [[cell.text for cell in line] for line in self.lines]

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        # The box puts one space between columns.
        padding = (0, 0 if self.narrow else 1, 0, 0)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=padding, pad_edge=False)
        for number, head in enumerate(self.titles):
            shown = head.replace(" ", "\n") if self.narrow else head
            table.add_column(shown, justify="right" if number else "left", overflow="fold")
        for number, line in enumerate(self.lines):
            if number in self.rules:
                table.add_section()
            table.add_row(*(Text(_plain(cell), style="bold" * cell.best) for cell in line))
        return table

    def markdown(self) -> str:
        heads = [*map(escape_markdown, self.titles)]
        ruler = ["---", *["---:"] * (len(heads) - 1)]
        lines = [heads, ruler, *(map(_MARKDOWN.cell, line) for line in self.lines)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def html(self) -> str:
        heads = "".join(f"<th>{escape_html(head)}</th>" for head in self.titles)
        rows = "\n".join(
            f"<tr>{''.join(f'<td>{_HTML.cell(cell)}</td>' for cell in line)}</tr>"
            for line in self.lines
        )
        return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{rows}\n</tbody></table>"

    def latex(self, caption: str) -> str:
        """Return a table environment for booktabs; one wider than the text is scaled to it."""
        lines = [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{escape_latex(caption)}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{@{{}}l{'r' * (len(self.heads) - 1)}@{{}}}}",
            r"\toprule",
            *self._latex_heads(),
            r"\midrule",
        ]
        for number, line in enumerate(self.lines):
            if number in self.rules:
                lines.append(r"\midrule")
            row = " & ".join(map(_LATEX.cell, line)) + r" \\"
            # After the end of a row and after a rule, these begin an argument.
            lines.append("{}" + row if row.lstrip().startswith(("[", "*")) else row)
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table}"])

    def _latex_heads(self) -> list[str]:
        """Return one line of heads, or groups of several columns above their names."""
        if not any(map(all, self.heads)):
            return [" & ".join(map(escape_latex, self.titles)) + r" \\"]
        above, rules, start = [], "", 1
        for group, members in groupby(self.heads, lambda one: one[0]):
            count = len(list(members))
            above.append(rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(group)}}}")
            if group and count > 1:
                rules += rf"\cmidrule(lr){{{start}-{start + count - 1}}}"
            start += count
        below = " & ".join(escape_latex(name) for _, name in self.heads)
        return [" & ".join(above) + r" \\" + rules, below + r" \\"]


def _plain(cell: Cell) -> str:
    spread = f" ± {cell.spread}" if cell.spread else ""
    mark = f" {BEST}" if cell.best else f" {cell.mark}" if cell.mark else "  " if spread else ""
    return cell.text + spread + mark


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, the names of all columns first; names of users are no formulas."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    lines = ([escape_csv(row.get(name, "")) for name in heads] for row in rows)
    return csv_text([map(escape_csv, heads), *lines])


def csv_text(lines: Iterable[Iterable[object]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()


def metrics_grid(evaluations: Mapping[str, Evaluation]) -> Grid:
    """Lay out the metrics of evaluation sets, their subsets and paired examples: on all examples,
    on those whose text is not in train if there are others, and of the majority class.
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
    return Grid.of(heads, lines, narrow=True)


def example_sentences(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Return what to know of :func:`metrics_grid`: sets that the model tells nothing of (that of
    dev is among the warnings of a run), unknown labels, and texts seen in train.
    """
    by_chance = [
        f"{name}: the model {found.chance}"
        for name, found in evaluations.items()
        if found.chance is not None and name != "dev"
    ]
    unknown = [
        f"{name}: the label of {found.unknown_labels} of {found.all.examples} examples is unknown "
        "to the model; they count as wrong"
        for name, found in evaluations.items()
        if found.unknown_labels
    ]
    seen = [
        f"{name}: the text of {found.seen_examples} of {found.all.examples} examples is also in "
        "train; the unseen columns leave these out"
        for name, found in evaluations.items()
        if found.seen_examples
    ]
    return [*by_chance, *unknown, *seen]


def _metric_cells(scores: Scores | None, count: int) -> list[str]:
    if scores is None:
        return ["-"] * count
    return [f"{value:.3f}" for value in scores.metrics.values()]


def branches_grid(results: RunResults, seconds: bool = True) -> Grid:
    """Lay out the runs that a rule has compared, one line for each, in the order of training."""
    metric = results.config["metric"]
    heads = ["run", f"dev {TITLES[metric]}", "gain", f"gain of loss ({results.kind.unit})", "taken"]
    single = next((one.value for one in results.branches if one.gain is None), 0.0)
    lines = []
    for one in results.branches:
        gains = ["-", "-"]
        if one.gain is not None:
            loss = f"{one.gain:+.4f} ± {one.gain_error:.4f}"
            gains = [difference(metric, one.value - single), loss]
        taken = "yes" if one.taken else ""
        time = [f"{one.seconds:.0f} s"] if seconds else []
        lines.append([one.title, f"{one.value:.3f}", *gains, taken, *time])
    return Grid.of([*heads, "training"] if seconds else heads, lines)


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
    fence, space = "`" * (longest + 1), " " * bool(longest)
    return f"{fence}{space}{text}{space}{fence}"


def escape_csv(value: object) -> object:
    """Return a value for a CSV file that no spreadsheet takes for a formula; numbers stay."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text[:1] in tuple("=+-@") else text


class _Form(NamedTuple):
    """How cells are written: what escapes a text, and where bold texts, spreads, and marks go."""

    escape: Callable[[str], str]
    bold: str
    spread: str = " ± {}"
    mark: str = " {}"

    def cell(self, cell: Cell) -> str:
        text = (self.bold if cell.best else "{}").format(self.escape(cell.text))
        if cell.spread:
            text += self.spread.format(self.escape(cell.spread))
        return text + (self.mark.format(self.escape(cell.mark).strip("$")) if cell.mark else "")


_MARKDOWN = _Form(escape_markdown, "**{}**")
_HTML = _Form(escape_html, "<b>{}</b>", " <small>± {}</small>")
_LATEX = _Form(escape_latex, r"\textbf{{{}}}", r"{{\scriptsize\,$\pm$\,{}}}", r"$^{{{}}}$")
