"""A comparison of methods, and its tables and plots for notebook, console and files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison import plots
from auxlearn.comparison.methods import Method
from auxlearn.comparison.result import Block, MetricComparison, methods_in
from auxlearn.comparison.tables import RUN_COLUMNS, Layout, Part, legend, mean_of, parts
from auxlearn.core.files import expand, write_text
from auxlearn.kinds.metrics import metric_title
from auxlearn.results.outputs import check_output_folder
from auxlearn.results.tables import (
    BEST,
    escape_html,
    escape_latex,
    escape_markdown,
    text_table,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
)
from auxlearn.sweeps.published import PublishedResult

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Comparison:
    """Comparison of the methods of sweeps and runs."""

    blocks: Sequence[Block]  # comparison of the methods for each encoder
    against: str | None  # the method that all others are compared with, if there is one
    chosen: Sequence[str]  # axes whose value was chosen on dev
    published: Sequence[PublishedResult]  # published results to show beside them
    source: str  # reference of the published results
    notes: Sequence[str]  # what is missing, one sentence each
    restarts: int | None = None  # number of seeds of which the best by dev is shown as a control

    def __repr__(self) -> str:
        methods = {name for block in self.blocks for name in block.methods}
        sets = {data.name for block in self.blocks for data in block.datasets}
        texts = [f"{len(methods)} methods", f"{len(sets)} data set{'' if len(sets) == 1 else 's'}"]
        for block in self.blocks[:3]:
            column = block.columns[-1]
            if column.best is not None:
                value = Layout().score(column.means[column.best], column.metric)
                where = f"{metric_title(column.metric)} on {column.dataset} {column.set}"
                texts.append(f"best {where}: {column.best} {value}")
        return f"<Comparison of {', '.join(texts)}>"

    def parts(self, layout: Layout | None = None) -> list[list[Part]]:
        """Return the tables of each block, with what is said of them."""
        return [list(parts(block, layout or Layout(), self.against)) for block in self.blocks]

    def remarks(self) -> list[str]:
        """Return how differences were tested, what was chosen, and what is missing."""
        return [*legend(self.blocks, self.against, self.restarts, self.chosen), *self.notes]

    def _repr_html_(self) -> str:
        lines: list[str] = []
        for shown in self.parts():
            for part in shown:
                lines += [f"<p>{escape_html(_line(part))}</p>", to_html(part.table)]
            lines += _small([shown[0].marks, *shown[0].notes])
        return "\n".join([*lines, *_small(self.remarks())])

    def to_frame(self) -> DataFrame:
        """Return one row for each method, data set, evaluation set and metric (0 to 1), and for
        each control.
        """
        import pandas

        return pandas.DataFrame(
            [
                row
                for block in self.blocks
                for column in block.columns
                for row in (*self._score_rows(block, column), *_control_rows(block, column))
            ]
        )

    def pairs_frame(self) -> DataFrame:
        """Return one row for every two methods, with their difference, interval and p-values."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    **_place(block, column),
                    "first": pair.first,
                    "second": pair.second,
                    "seeds": _seeds(block, column, pair.seeds, pair.first, pair.second),
                    "difference": pair.difference,
                    "low": pair.low,
                    "high": pair.high,
                    "p_first_beats_second": pair.beats,
                    "p_seeds": pair.p_seeds,
                    "p_seeds_and_examples": pair.p_both,
                    "p_holm": pair.p,
                    "significant": pair.significant,
                }
                for block in self.blocks
                for column in block.columns
                for pair in column.pairs
            ]
        )

    def to_terminal(self, decimals: int = 1, show: Sequence[str] = ()) -> list[DataFrame | str]:
        """Return lines and tables for the console; for Args see :meth:`to_markdown`."""
        items: list[DataFrame | str] = []
        every = self.parts(Layout(decimals, tuple(show)))
        for part in (part for shown in every for part in shown):
            items += ["", _line(part), part.table, *part.notes]
        if self.published:
            table, missing = self.published_table()
            items += ["", f"Compared with the published results of {self.source}"]
            items += [] if table.empty else [table]
            items += [missing] if missing else []
        meaning = every[0][0].marks
        if meaning and not self.against:
            meaning += f" {BEST}: the best, where bold print is not shown."
        return [*items, "", *([meaning] if meaning else []), *self.remarks()]

    def to_markdown(self, decimals: int = 1, show: Sequence[str] = ()) -> str:
        """Return the whole comparison in Markdown.

        Args:
            decimals: Decimals of scores in percent, 0 to 6.
            show: What to add: ``seeds``, ``epochs``, ``minutes`` or ``pairs`` of methods.
        """
        lines: list[str] = []
        for shown in self.parts(Layout(decimals, tuple(show))):
            for level, part in enumerate(shown):
                heading = f"{'###' if level else '##'} {escape_markdown(part.title)}"
                lines += [heading if part.title else "", escape_markdown(part.caption)]
                lines += [to_markdown(part.table), _bullets([part.marks, *part.notes])]
        if self.published:
            table, missing = self.published_table()
            lines += ["## Compared with published results", escape_markdown(self.source)]
            lines += ["" if table.empty else to_markdown(table), missing]
        return "\n\n".join(filter(None, [*lines, _bullets(self.remarks())])) + "\n"

    def to_latex(self, decimals: int = 1, show: Sequence[str] = ()) -> str:
        """Return the tables in LaTeX, for booktabs; for Args see :meth:`to_markdown`."""
        lines = [r"% \usepackage{booktabs,graphicx}"]
        for shown in self.parts(Layout(decimals, tuple(show))):
            for part in shown:
                title = f"{part.title}." if part.title else ""
                texts = filter(None, [title, part.caption, part.marks])
                lines += [to_latex(part.table, " ".join(texts))]
            lines += [_comments(shown[0].notes)]
        return "\n\n".join(filter(None, [*lines, _comments(self.remarks())])) + "\n"

    def to_text(self, form: str, decimals: int = 1, show: Sequence[str] = ()) -> str:
        """Return the comparison as ``markdown``, ``latex`` or ``csv``."""
        if form == "csv":
            return to_csv(self.to_frame())
        write = {"markdown": self.to_markdown, "latex": self.to_latex}[form]
        return write(decimals, show)

    def save(self, folder: str | Path, decimals: int = 1, show: Sequence[str] = ()) -> list[Path]:
        """Write ``table.md``, ``table.tex``, ``scores.csv``, ``pairs.csv`` and the plots."""
        folder = expand(folder)
        check_output_folder(folder)
        content = {
            "table.md": self.to_markdown(decimals, show),
            "table.tex": self.to_latex(decimals, show),
            "scores.csv": to_csv(self.to_frame()),
            "pairs.csv": to_csv(self.pairs_frame()),
        }
        for name, text in content.items():
            write_text(folder / name, text)
        return [*(folder / name for name in content), *plots.plot_comparison(self.blocks, folder)]

    def published_table(self) -> tuple[DataFrame, str]:
        """Return published results of what was run, with the result here and the difference; and
        how many more there are.
        """
        labels = [method.labels for method in methods_in(self.blocks)]
        shown = [result for result in self.published if _was_run(result, labels)]
        axes = list(dict.fromkeys(axis for result in shown for axis in result.labels))
        named = ["checkpoints by" if axis == "metric" else axis for axis in axes]
        lines = []
        for result in shown:
            values = [100 * value for value in self._scores_here(result)]
            here = difference = "-"
            if values:
                here = f"{np.mean(values):.2f}"
                here += f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
                difference = f"{np.mean(values) - result.mean:+z.2f}"
            spread = "" if result.sd is None else f" ± {result.sd:.2f}"
            cells = [result.labels.get(axis, "") for axis in axes]
            cells += [result.set, metric_title(result.metric), f"{result.mean:.2f}{spread}"]
            lines.append([*cells, here, difference])
        heads = [*named, "set", "metric", "published", "here", "difference"]
        missing = len(self.published) - len(shown)
        said = f"{missing} more are for other data sets or encoders." if missing else ""
        if missing == len(self.published):
            said = (
                f"None of the {missing} published results is for a data set and encoder run here."
            )
        return text_table(heads, lines), said

    def _scores_here(self, result: PublishedResult) -> list[float]:
        """Return the scores, one for each seed, of the method that a published result is for."""
        for method in methods_in(self.blocks):
            if result.labels.items() <= method.labels.items():
                found = [run.evaluations.get(result.set) for run in method.results.values()]
                return [one.all.metrics[result.metric] for one in found if one is not None]
        return []

    def _score_rows(self, block: Block, column: MetricComparison) -> list[dict[str, Any]]:
        rows = []
        for name, by_seed in column.scores.items():
            methods = _methods_of(block, column, name)
            chosen = {} if column.averaged else methods[0].chosen
            mean, half = column.means[name], column.noises[name].half_width()
            row = {
                **_place(block, column),
                "method": name,
                **{axis: chosen.get(axis, "") for axis in self.chosen},
                **_run_numbers(methods),
                "seeds": _seeds(block, column, len(by_seed), name),
                "mean": mean,
                "sd": column.sd(name),
                "low": mean - half,
                "high": mean + half,
                "best": len(column.scores) > 1 and name == column.best,
                "may_equal_best": name in column.ties,
            }
            if not math.isnan(column.detectable):
                row["detectable"] = column.detectable
            rows.append(row)
        return rows


def _control_rows(block: Block, column: MetricComparison) -> list[dict[str, Any]]:
    """Return a row for the best of several seeds of each method without auxiliary tasks."""
    rows = []
    for name, best in column.restarts.items():
        numbers = _run_numbers(_methods_of(block, column, name))
        summed = {
            shown.heading.replace(" ", "_") for shown in RUN_COLUMNS.values() if shown.adds_up
        }
        rows.append(
            {
                **_place(block, column),
                "method": best.name(name),
                **{key: best.count * value for key, value in numbers.items() if key in summed},
                "seeds": best.seeds,
                "mean": best.mean,
                "standard_error": best.error,
            }
        )
    return rows


def _run_numbers(methods: Sequence[Method]) -> dict[str, float]:
    """Return the means over runs of what tables can show besides scores."""
    return {
        column.heading.replace(" ", "_"): mean_of(methods, column)
        for column in RUN_COLUMNS.values()
    }


def _place(block: Block, column: MetricComparison) -> dict[str, Any]:
    return {
        "dataset": column.dataset,
        **{("selected_by" if axis == "metric" else axis): v for axis, v in block.setting.items()},
        "set": column.set,
        "metric": column.metric,
    }


def _seeds(block: Block, column: MetricComparison, count: int, *methods: str) -> int:
    """Return a number of seeds; of scores by fold, that of those that every fold has."""
    if not column.by_fold:
        return count
    seeds = [
        set(fold.runs)
        for name in methods
        for method in _methods_of(block, column, name)
        for fold in method.folds.values()
        if fold.runs
    ]
    return len(set.intersection(*seeds))


def _methods_of(block: Block, column: MetricComparison, name: str) -> list[Method]:
    """Return the methods of a name, on the data set of a column or, of an average, on all."""
    return [
        method
        for data in block.datasets
        for method in data.methods
        if method.name == name and (column.averaged or column.dataset == data.name)
    ]


def _was_run(result: PublishedResult, labels: Iterable[dict[str, str]]) -> bool:
    """Return whether the setting of a published result was run, with whatever method."""
    setting = {axis: label for axis, label in result.labels.items() if axis != "method"}
    return any(setting.items() <= here.items() for here in labels)


def _line(part: Part) -> str:
    return ". ".join(filter(None, [part.title, part.caption]))


def _small(lines: Iterable[str]) -> list[str]:
    return [f"<div><small>{escape_html(line)}</small></div>" for line in lines if line]


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines if line)


def _comments(lines: Sequence[str]) -> str:
    return "\n".join(f"% {escape_latex(line)}" for line in lines)
