"""Tables of metrics, and why a task is applied or left out, in one sentence."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from auxlearn.results.record import Branch, account_of_branches
from auxlearn.results.tables import Grid, example_sentences, metrics_grid
from auxlearn.weighting.meta import Meta
from auxlearn.weighting.meta_options import MetaOptions
from tests.results import examples


def test_metrics_are_shown_with_those_of_the_majority_class():
    grid = metrics_grid(examples.results().evaluations)
    titles = "set, examples, accuracy, macro-F1, majority accuracy, majority macro-F1"
    assert grid.titles == titles.split(", ")
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
    none = replace(examples.evaluation(40, 0.7, seen=40), unseen=None)
    assert metrics_grid({"test": none}).texts[0][4:7] == ["0", "-", "-"]


def test_the_widest_table_fits_a_terminal():
    window = Console(file=io.StringIO(), width=80)
    evaluations = examples.results(seen=4).evaluations
    window.print(metrics_grid(evaluations))
    lines = window.file.getvalue().splitlines()
    assert [line.split() for line in lines[3:]] == metrics_grid(evaluations).texts


def test_markdown_has_a_ruler_and_escapes_bars():
    text = Grid.of(["set", "rows"], [["a|b", "1"]]).markdown()
    assert text.splitlines() == ["| set | rows |", "| --- | ---: |", "| a&#124;b | 1 |"]


def branch(title, share, gain=None, error=0.01, taken=False, other=0.0):
    weights = {"primary": 1 - share - other, "a": share, "b": other}
    return Branch(
        title, f"branches/{title}", weights, 0.7, gain, error, 0.0, 0.01, taken, [(1, 0.7)], 2.0
    )


SINGLE = replace(branch("single task", 0.0), gain=None, gain_error=None)


def account(*branches, evidence=0.5):
    return account_of_branches(("a", "b"), branches, evidence)


def test_the_task_of_the_branch_that_was_taken():
    found = account(
        SINGLE, branch("a 0.3", 0.3, 0.02, taken=True), branch("b 0.3", 0.0, -0.01, other=0.3)
    )
    assert found["a"].startswith("a: applied with share 0.3; on dev its run was better")
    assert "+0.0200 ± 0.0100 nats" in found["a"]
    assert found["b"].startswith("b: left out; the better of its runs on dev (b 0.3) differed")
    assert "more than 0.5 standard errors were needed" in found["b"]
    assert "--aux supervised" in found["b"]


def test_a_task_that_was_better_but_for_another_or_for_its_metric():
    both = branch("a 0.3", 0.3, 0.05, taken=True), branch("b 0.3", 0.0, 0.02, other=0.3)
    assert "b 0.3 was better than the single task" in account(SINGLE, *both)["b"]
    assert "a 0.3 was better still" in account(SINGLE, *both)["b"]
    single = replace(SINGLE, taken=True)
    others = branch("a 0.3", 0.3, 0.05), branch("b 0.3", 0.0, -0.1, other=0.3)
    assert "had fewer correct predictions" in account(single, *others)["a"]


def rows(weights, candidates=None):
    candidates = candidates or weights
    return [
        {"kind": "train", "step": 10 * (place + 1), "weight/a": weight, "candidate/a": learned}
        for place, (weight, learned) in enumerate(zip(weights, candidates, strict=True))
    ]


@pytest.mark.parametrize(
    ("weights", "exported", "expected"),
    [
        ((0, 0, 0), 30, ("a: not applied; its weight was at most 0.030", "by step 50")),
        ((0, 0.2, 0.3), 30, ("applied from step 20, weight up to 0.300", "weight 0.300")),
        ((0, 0.2, 0), 20, ("applied from step 20 to 20", "was trained with it, weight 0.200")),
        ((0, 0.2, 0.3), 10, ("applied from step 20", "(step 10) is from before, without it")),
    ],
)
def test_when_a_task_was_applied_within_one_run(weights, exported, expected):
    rule = Meta(MetaOptions(horizon="steps"), ("primary", "a"))
    learned = (0.02, 0.03, 0.01) if not any(weights) else weights
    (line,) = rule.account(rows(weights, learned), exported, 100).values()
    for part in expected:
        assert part in line


def test_rules_without_a_gate_give_no_account():
    rule = Meta(MetaOptions(horizon="steps", mix="scaled"), ("primary", "a"))
    assert rule.account(rows((0.1, 0.2, 0.3)), 10, 100) == {}
