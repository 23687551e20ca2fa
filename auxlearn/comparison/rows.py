"""The numbers of a comparison in full precision, one row each, for CSV files and data frames."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from auxlearn.comparison.result import Block, ComparisonData, MetricComparison
from auxlearn.results.tables import escape_csv

#: One row: values by the name of the column.
Row = dict[str, Any]


def score_rows(comparison: ComparisonData) -> list[Row]:
    """Return one row for each method, data set, evaluation set and metric, 0 to 1.

    ``low`` and ``high`` are the 95% interval over seeds and examples; ``minutes`` and
    ``epochs_to_best`` are means over seeds. The best of several seeds by dev, a control, has a
    ``standard_error`` and the minutes of all of them, and nothing that is of methods only.
    """
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
                        "seeds": len(by_seed),
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
            "seeds": pair.seeds,
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


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, the names of all columns first; names of users are no formulas."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(escape_csv, heads))
    writer.writerows([escape_csv(row.get(name, "")) for name in heads] for row in rows)
    return buffer.getvalue()


def _place(block: Block, column: MetricComparison) -> Row:
    return {
        "dataset": column.dataset,
        **{("selected_by" if axis == "metric" else axis): v for axis, v in block.setting.items()},
        "set": column.set,
        "metric": column.metric,
    }


def _of_runs(comparison: ComparisonData, block: Block, column: MetricComparison, name: str) -> Row:
    """Return the chosen values of a method and the means over its runs."""
    runs = [
        method
        for data in block.datasets
        for method in data.methods
        if method.name == name and (column.averaged or column.dataset == data.name)
    ]
    chosen = {axis: runs[0].chosen.get(axis, "") for axis in comparison.chosen}
    if column.averaged:
        chosen = dict.fromkeys(chosen, "")
    means = {
        f"{'epochs_to_best' if what == 'epochs' else what}": float(
            np.mean([value for one in runs for value in one.by_seed(what).values()])
        )
        for what in ("epochs", "minutes")
    }
    return {**chosen, **means}
