"""A comparison of methods, and its tables and plots for notebook, console and files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.comparison import plots
from auxlearn.comparison.methods import Method
from auxlearn.comparison.result import Block, MetricComparison, methods_in
from auxlearn.comparison.tables import RUN_COLUMNS, Layout, Part, RunColumn, legend, mean_of, parts
from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.errors import ConfigError, describe
from auxlearn.core.files import expand, write_text
from auxlearn.kinds.metrics import metric_title
from auxlearn.results.folder import RunFolder
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

        columns = ((block, column) for block in self.blocks for column in block.columns)
        return pandas.DataFrame([row for place in columns for row in self._rows(*place)])

    def _rows(self, block: Block, column: MetricComparison) -> Iterator[dict[str, Any]]:
        for name, by_seed in column.scores.items():
            methods = _methods_of(block, column, name)
            chosen = {} if column.averaged else methods[0].chosen
            low, high = column.interval(name)
            row = {
                **_place(block, column),
                "method": name,
                **{axis: chosen.get(axis, "") for axis in self.chosen},
                **{_key(extra): mean_of(methods, extra) for extra in RUN_COLUMNS.values()},
                "seeds": _seeds(block, column, len(by_seed), name),
                "mean": column.means[name],
                "sd": column.sd(name),
                "low": low,
                "high": high,
                "best": len(column.scores) > 1 and column.is_best(name),
                "may_equal_best": name in column.ties and not column.is_best(name),
            }
            yield row if math.isnan(column.detectable) else row | {"detectable": column.detectable}
        for name, best in column.restarts.items():
            summed = [extra for extra in RUN_COLUMNS.values() if extra.adds_up]
            methods = _methods_of(block, column, name)
            yield {
                **_place(block, column),
                "method": best.name(name),
                **{_key(extra): best.count * mean_of(methods, extra) for extra in summed},
                "seeds": best.seeds,
                "mean": best.mean,
                "standard_error": best.error,
            }

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
        every = self.parts(Layout(decimals, show))
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
        for shown in self.parts(Layout(decimals, show)):
            for level, part in enumerate(shown):
                heading = f"{'###' if level else '##'} {escape_markdown(part.title)}"
                lines += [heading if part.title else "", escape_markdown(part.caption)]
                lines += [to_markdown(part.table), _bullets([part.marks, *part.notes])]
        if self.published:
            table, missing = self.published_table()
            lines += ["## Compared with published results", escape_markdown(self.source)]
            lines += ["" if table.empty else to_markdown(table), escape_markdown(missing)]
        return "\n\n".join(filter(None, [*lines, _bullets(self.remarks())])) + "\n"

    def to_latex(self, decimals: int = 1, show: Sequence[str] = ()) -> str:
        """Return the tables in LaTeX, for booktabs; for Args see :meth:`to_markdown`."""
        lines = [r"% \usepackage{booktabs,graphicx}"]
        for shown in self.parts(Layout(decimals, show)):
            for part in shown:
                title = f"{part.title}." if part.title else ""
                texts = filter(None, [title, part.caption, part.marks])
                lines += [to_latex(part.table, " ".join(texts))]
            lines += [_comments(shown[0].notes)]
        return "\n\n".join(filter(None, [*lines, _comments(self.remarks())])) + "\n"

    def to_text(self, form: str, decimals: int = 1, show: Sequence[str] = ()) -> str:
        """Return the comparison as ``markdown``, ``latex`` or ``csv``."""
        if form == "csv":
            if "pairs" in show:
                raise ConfigError(
                    "show: csv has a row for each method, and none for pairs: write markdown or "
                    "latex, or see the pairs.csv of --output (pairs_frame() in Python)"
                )
            return to_csv(self.to_frame())
        write = {"markdown": self.to_markdown, "latex": self.to_latex}
        if not isinstance(form, str) or form not in write:
            raise ConfigError(f"form: write markdown, latex or csv, got {describe(form)}")
        return write[form](decimals, show)

    @checked
    def save(self, folder: UserPath, decimals: int = 1, show: Sequence[str] = ()) -> list[Path]:
        """Write ``table.md``, ``table.tex``, ``scores.csv``, of two methods or more ``pairs.csv``,
        and the plots.
        """
        folder = expand(folder)
        check_output_folder(folder)
        for method in methods_in(self.blocks):
            for results in method.results.values():
                os.fspath(results)  # refused if its folder, which the plots read, has another run
            for path in method.runs.values():
                RunFolder(path).read_metrics()  # refused if damaged, before anything is written
        content = {
            "table.md": self.to_markdown(decimals, show),
            "table.tex": self.to_latex(decimals, show),
            "scores.csv": to_csv(self.to_frame()),
        }
        pairs = self.pairs_frame()
        if len(pairs):
            content["pairs.csv"] = to_csv(pairs)
        for name, text in content.items():
            write_text(folder / name, text)
        return [*(folder / name for name in content), *plots.plot_comparison(self.blocks, folder)]

    def published_table(self) -> tuple[DataFrame, str]:
        """Return published results of what was run, with the result here and the difference; and
        how many more there are.
        """
        methods = methods_in(self.blocks)

        def was_run(result: PublishedResult) -> bool:
            """Return whether the setting of a result was run, with whatever method."""
            setting = {axis: label for axis, label in result.labels.items() if axis != "method"}
            return any(setting.items() <= method.labels.items() for method in methods)

        shown = [result for result in self.published if was_run(result)]
        axes = list(dict.fromkeys(axis for result in shown for axis in result.labels))
        lines = []
        for result in shown:
            named = (({"method": one.name} | one.labels, one) for one in methods)
            same = (one for labels, one in named if result.labels.items() <= labels.items())
            runs = next((list(method.results.values()) for method in same), [])
            sets = [run.evaluations[result.set] for run in runs if result.set in run.evaluations]
            scores = [evaluation.all.metrics for evaluation in sets]
            scale = plots.factor(result.metric)
            values = [scale * each[result.metric] for each in scores if result.metric in each]
            here = difference = "-"
            if values:
                here = f"{np.mean(values):.2f}"
                here += f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
                difference = f"{np.mean(values) - result.mean:+z.2f}"
            spread = "" if result.sd is None else f" ± {result.sd:.2f}"
            cells = [result.labels.get(axis, "") for axis in axes]
            cells += [result.set, metric_title(result.metric), f"{result.mean:.2f}{spread}"]
            lines.append([*cells, here, difference])
        titles = ["checkpoints by" if axis == "metric" else axis for axis in axes]
        heads = [*titles, "set", "metric", "published", "here", "difference"]
        others = [result.labels for result in self.published if not was_run(result)]
        if not others:
            return text_table(heads, lines), ""
        first = ", ".join(f"{axis} {label}" for axis, label in others[0].items())
        rest = f"{len(others)} more are for settings that were not run here"
        if not shown:
            rest = f"None of the {len(others)} published results is for a setting that was run here"
        return text_table(heads, lines), f"{rest}; the first is for {first}."


def _key(column: RunColumn) -> str:
    return column.heading.replace(" ", "_")


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


def _line(part: Part) -> str:
    return ". ".join(filter(None, [part.title, part.caption]))


def _small(lines: Iterable[str]) -> list[str]:
    return [f"<div><small>{escape_html(line)}</small></div>" for line in lines if line]


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines if line)


def _comments(lines: Sequence[str]) -> str:
    return "\n".join(f"% {escape_latex(line)}" for line in lines)
