"""Tables of metrics."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from auxlearn.results.tables import Grid, example_sentences, metrics_grid
from tests.results import examples


def test_metrics_are_shown_with_those_of_the_majority_class():
    grid = metrics_grid(examples.results().evaluations)
    assert grid.titles == [
        "set",
        "examples",
        "accuracy",
        "macro-F1",
        "majority accuracy",
        "majority macro-F1",
    ]
    assert grid.texts == [
        ["dev", "20", "0.750", "0.740", "0.500", "0.333"],
        ["test", "40", "0.700", "0.690", "0.500", "0.333"],
        ["letters", "30", "0.600", "0.590", "0.500", "0.333"],
    ]


def test_unseen_examples_have_columns_where_any_example_is_seen():
    evaluations = examples.results(seen=4).evaluations
    grid = metrics_grid(evaluations)
    assert grid.titles[4:7] == ["unseen examples", "unseen accuracy", "unseen macro-F1"]
    assert grid.texts[0][4:7] == ["20", "0.750", "0.740"]
    assert grid.texts[1][4:7] == ["36", "0.600", "0.590"]
    assert example_sentences(evaluations) == [
        "test: the text of 4 of 40 examples is also in train; the unseen columns leave these out"
    ]


def test_a_set_without_unseen_examples_has_dashes():
    seen = replace(examples.evaluation(40, 0.7, seen=40), unseen=None)
    assert metrics_grid({"test": seen}).texts[0][4:7] == ["0", "-", "-"]


def test_the_widest_table_fits_a_terminal():
    window = Console(file=io.StringIO(), width=80)
    evaluations = examples.results(seen=4).evaluations
    window.print(metrics_grid(evaluations))
    lines = window.file.getvalue().splitlines()
    assert [line.split() for line in lines[3:]] == metrics_grid(evaluations).texts


def test_markdown_has_a_ruler_and_escapes_bars():
    text = Grid.of(["set", "rows"], [["a|b", "1"]]).markdown()
    assert text.splitlines() == ["| set | rows |", "| --- | ---: |", "| a&#124;b | 1 |"]
