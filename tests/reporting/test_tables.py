"""Tables of figures."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from auxlearn.reporting.tables import (
    figures_grid,
    figures_table,
    markdown_table,
    seen_sentences,
)
from tests.reporting import examples


def test_figures_stand_beside_those_of_the_majority_class():
    heads, rows = figures_grid(examples.results().evaluations)
    assert heads == [
        "set",
        "rows",
        "accuracy",
        "macro-F1",
        "majority accuracy",
        "majority macro-F1",
    ]
    assert rows == [
        ["dev", "20", "0.750", "0.740", "0.500", "0.333"],
        ["test", "40", "0.700", "0.690", "0.500", "0.333"],
        ["letters", "30", "0.600", "0.590", "0.500", "0.333"],
    ]


def test_unseen_rows_have_columns_where_any_row_is_seen():
    evaluations = examples.results(seen=4).evaluations
    heads, rows = figures_grid(evaluations)
    assert heads[4:7] == ["unseen rows", "unseen accuracy", "unseen macro-F1"]
    assert rows[0][4:7] == ["20", "0.750", "0.740"]
    assert rows[1][4:7] == ["36", "0.600", "0.590"]
    assert seen_sentences(evaluations) == [
        "test: the text of 4 of 40 rows is also in train; the unseen columns leave these out"
    ]


def test_a_set_that_is_seen_throughout_has_no_unseen_figures():
    whole = replace(examples.evaluation(40, 0.7, seen=40), unseen=None)
    assert figures_grid({"test": whole})[1][0][4:7] == ["0", "-", "-"]


def test_the_widest_table_fits_a_terminal():
    window = Console(file=io.StringIO(), width=80)
    evaluations = examples.results(seen=4).evaluations
    window.print(figures_table(evaluations))
    lines = window.file.getvalue().splitlines()
    assert [line.split() for line in lines[3:]] == figures_grid(evaluations)[1]


def test_markdown_has_a_ruler_and_escapes_bars():
    text = markdown_table(["set", "rows"], [["a|b", "1"]])
    assert text.splitlines() == ["| set | rows |", "| --- | ---: |", "| a\\|b | 1 |"]
