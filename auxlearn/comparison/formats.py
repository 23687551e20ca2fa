"""A comparison for the terminal, in Markdown, HTML, LaTeX and CSV files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from auxlearn.comparison import plots
from auxlearn.comparison.methods import Method
from auxlearn.comparison.result import Block, ComparisonData, MetricComparison, methods_in
from auxlearn.comparison.scores import metric_title
from auxlearn.comparison.tables import Layout, Part, legend, marks, parts
from auxlearn.core.files import write_text
from auxlearn.results.outputs import check_output_folder
from auxlearn.results.tables import (
    BEST,
    Cell,
    Grid,
    escape_html,
    escape_latex,
    escape_markdown,
    to_csv,
)
from auxlearn.sweeps.published import PublishedResult

#: One row of a file of numbers: values by the name of the column.
Row = dict[str, Any]


def terminal(comparison: ComparisonData, layout: Layout) -> list[Grid | str]:
    items: list[Grid | str] = []
    for block in comparison.blocks:
        for part in parts(comparison, block, layout):
            items += ["", part.line, part.grid, *part.notes]
    if comparison.published:
        items += ["", f"Compared with the published results of {comparison.source}"]
        grid = published_grid(comparison)
        items += [*([grid] if grid.lines else []), *published_notes(comparison)]
    meaning = marks(comparison, comparison.blocks[0])
    if meaning and not comparison.against:
        meaning += f" {BEST}: the best, where bold print is not shown."
    shown = [meaning] if meaning else []
    return [*items, "", *shown, *legend(comparison, layout), *comparison.notes]


def markdown(comparison: ComparisonData, layout: Layout) -> str:
    found = []
    for block in comparison.blocks:
        for level, part in enumerate(parts(comparison, block, layout)):
            heading = f"{'###' if level else '##'} {escape_markdown(part.title)}"
            found += [heading] if part.title else []
            found += [escape_markdown(part.caption)] if part.caption else []
            found += [part.grid.markdown(), *_bullets([part.marks, *part.notes])]
            if part.matrix:
                found += ["Line minus column; significant differences are bold."]
                found += [part.matrix.markdown()]
    if comparison.published:
        found += ["## Compared with published results", escape_markdown(comparison.source)]
        grid = published_grid(comparison)
        found += [*([grid.markdown()] if grid.lines else []), *published_notes(comparison)]
    return "\n\n".join([*found, *_bullets([*legend(comparison, layout), *comparison.notes])]) + "\n"


def _bullets(lines: Iterable[str]) -> list[str]:
    found = "\n".join(f"- {escape_markdown(line)}" for line in lines if line)
    return [found] if found else []


def html(comparison: ComparisonData) -> str:
    """Return the tables of scores and of ranks in HTML, for notebooks."""
    layout = Layout()
    found: list[str] = []
    for block in comparison.blocks:
        shown = list(parts(comparison, block, layout))
        for part in shown:
            found += [f"<p>{escape_html(part.line)}</p>", part.grid.html()]
        found += _small([shown[0].marks, *shown[0].notes])
    notes = [*legend(comparison, layout), *comparison.notes]
    return "\n".join([*found, *_small(notes)])


def _small(notes: Iterable[str]) -> list[str]:
    return [f"<div><small>{escape_html(note)}</small></div>" for note in notes if note]


def latex(comparison: ComparisonData, layout: Layout) -> str:
    found = [r"% \usepackage{booktabs,graphicx}"]
    for block in comparison.blocks:
        scores, *further = parts(comparison, block, layout)
        found += [_latex(scores), _comments(scores.notes), *map(_latex, further)]
    notes = [*legend(comparison, layout), *comparison.notes]
    return "\n\n".join(filter(None, [*found, _comments(notes)])) + "\n"


def _latex(part: Part) -> str:
    said = [f"{part.title}." if part.title else "", part.caption, part.marks]
    found = part.grid.latex(" ".join(filter(None, said)))
    if part.matrix:
        what = "line minus column; significant differences in bold"
        found += "\n\n" + part.matrix.latex(f"{part.title}: {what}.")
    return found


def _comments(notes: Sequence[str]) -> str:
    return "\n".join(f"% {escape_latex(note)}" for note in notes)


def published_grid(comparison: ComparisonData) -> Grid:
    """Lay out published results of what was run, with the result here and the difference."""
    shown = [result for result in comparison.published if _was_run(comparison, result)]
    axes = list(dict.fromkeys(axis for result in shown for axis in result.labels))
    named = ["checkpoints by" if axis == "metric" else axis for axis in axes]
    heads = [*named, "set", "metric", "published", "here", "difference"]
    lines: list[list[str | Cell]] = []
    for result in shown:
        values = _scores_here(comparison, result)
        mean = 100 * float(np.mean(values)) if values else math.nan
        spread = f"{100 * float(np.std(values, ddof=1)):.2f}" if len(values) > 1 else ""
        lines.append(
            [
                *(result.labels.get(axis, "") for axis in axes),
                result.set,
                metric_title(result.metric),
                Cell(f"{result.mean:.2f}", "" if result.sd is None else f"{result.sd:.2f}"),
                Cell(f"{mean:.2f}", spread) if values else "-",
                f"{mean - result.mean:+z.2f}" if values else "-",
            ]
        )
    return Grid.of(heads, lines)


def published_notes(comparison: ComparisonData) -> list[str]:
    missing = sum(not _was_run(comparison, result) for result in comparison.published)
    if missing == len(comparison.published):
        return [f"None of the {missing} published results is for a data set and encoder run here."]
    if missing:
        return [f"{missing} more are for other data sets or encoders."]
    return []


def _was_run(comparison: ComparisonData, result: PublishedResult) -> bool:
    """Return whether the setting of a published result was run, with whatever method."""
    setting = {axis: label for axis, label in result.labels.items() if axis != "method"}
    return any(setting.items() <= method.labels.items() for method in methods_in(comparison.blocks))


def _scores_here(comparison: ComparisonData, result: PublishedResult) -> list[float]:
    """Return the scores, one for each seed, of the method that a published result is for."""
    for method in methods_in(comparison.blocks):
        if result.labels.items() <= method.labels.items():
            found = [one.evaluations.get(result.set) for one in method.results.values()]
            return [one.all.metrics[result.metric] for one in found if one is not None]
    return []


def render(comparison: ComparisonData, name: str, layout: Layout) -> str:
    """Return a comparison in a format by name: ``markdown``, ``latex`` or ``csv``."""
    if name == "csv":
        return to_csv(score_rows(comparison))
    return markdown(comparison, layout) if name == "markdown" else latex(comparison, layout)


def score_rows(comparison: ComparisonData) -> list[Row]:
    """Return one row for each method, data set, set and metric, 0 to 1, and for each control."""
    rows = []
    for block in comparison.blocks:
        for column in block.columns:
            for name, by_seed in column.scores.items():
                mean, half = column.means[name], column.noises[name].half_width()
                rows.append(
                    {
                        **_place(block, column),
                        "method": name,
                        **_of_runs(comparison, block, column, name),
                        "seeds": _seeds(block, column, len(by_seed), name),
                        "mean": mean,
                        "sd": column.sd(name),
                        "low": mean - half,
                        "high": mean + half,
                        "best": len(column.scores) > 1 and name == column.best,
                        "may_equal_best": name in column.ties,
                    }
                    | ({} if math.isnan(column.detectable) else {"detectable": column.detectable})
                )
            rows += [
                {
                    **_place(block, column),
                    "method": best.name(name),
                    "minutes": best.count * _of_runs(comparison, block, column, name)["minutes"],
                    "seeds": best.seeds,
                    "mean": best.mean,
                    "standard_error": best.error,
                }
                for name, best in column.restarts.items()
            ]
    return rows


def pair_rows(comparison: ComparisonData) -> list[Row]:
    """Return one row for every two methods by data set, evaluation set and metric, 0 to 1."""
    return [
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
        for block in comparison.blocks
        for column in block.columns
        for pair in column.pairs
    ]


def _place(block: Block, column: MetricComparison) -> Row:
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
    folds = [
        one
        for name in methods
        for m in _methods_of(block, column, name)
        for one in m.folds.values()
    ]
    return len(set.intersection(*(set(fold.runs) for fold in folds if fold.runs)))


def _methods_of(block: Block, column: MetricComparison, name: str) -> list[Method]:
    """Return the methods of a name, on the data set of a column or, of an average, on all."""
    return [
        method
        for data in block.datasets
        for method in data.methods
        if method.name == name and (column.averaged or column.dataset == data.name)
    ]


def _of_runs(comparison: ComparisonData, block: Block, column: MetricComparison, name: str) -> Row:
    """Return the chosen values of a method and the means over its runs."""
    runs = _methods_of(block, column, name)
    chosen = {} if column.averaged else runs[0].chosen
    means = {
        heading: float(np.mean([value for one in runs for value in one.by_seed(what).values()]))
        for heading, what in (("epochs_to_best", "epochs"), ("minutes", "minutes"))
    }
    return {axis: chosen.get(axis, "") for axis in comparison.chosen} | means


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
