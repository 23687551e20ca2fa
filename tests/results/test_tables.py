"""Tables of metrics, and why a task is applied or left out, in one sentence."""

from dataclasses import replace

import pytest

from auxlearn.results.account import account_of_branches
from auxlearn.results.record import Branch, shown_branches
from auxlearn.results.tables import (
    branches_table,
    example_sentences,
    metrics_table,
    titles,
)
from auxlearn.weighting.meta import Meta
from auxlearn.weighting.meta_options import MetaOptions
from tests.results import examples


def test_unseen_examples_have_columns_where_any_example_is_seen():
    evaluations = examples.results(seen=4).evaluations
    table = metrics_table(evaluations)
    assert titles(table)[4:7] == ["unseen examples", "unseen accuracy", "unseen macro-F1"]
    assert list(table.iloc[0, 4:7]) == ["20", "0.750", "0.740"]
    assert list(table.iloc[1, 4:7]) == ["36", "0.600", "0.590"]
    assert example_sentences(evaluations) == [
        "test: the text of 4 of 40 examples is also in train; the unseen columns leave these out"
    ]
    none = replace(examples.evaluation(40, 0.7, seen=40), unseen=None)
    assert list(metrics_table({"test": none}).iloc[0, 4:7]) == ["0", "-", "-"]


def branch(title, share, value=0.7, taken=False, other=0.0):
    weights, gain = {"primary": 1 - share - other, "a": share, "b": other}, value - 0.7
    return Branch(
        title, f"branches/{title}", weights, value, gain, gain, 0.01, taken, [(1, value)], 2.0
    )


SINGLE = replace(branch("single task", 0.0), gain=None, correct=None, correct_error=None)


def account(*branches):
    return account_of_branches(("a", "b"), branches, "accuracy")


def test_the_account_of_tasks_that_are_applied_and_left_out():
    better = branch("a 0.5", 0.5, 0.74, taken=True)
    found = account(SINGLE, better, branch("b 0.5", 0.0, 0.71, other=0.5))
    assert found["a"] == (
        "a: applied; a 0.5 has 0.740 accuracy on dev, +4.0 points against 0.700 of the single task"
    )
    assert found["b"].startswith(
        "b: left out; the best branch with it, b 0.5 has 0.710 accuracy on dev, +1.0 points "
        "against 0.700 of the single task, and a 0.5, without it, 0.740; "
    )
    assert "--aux supervised" in found["b"]
    single = replace(SINGLE, taken=True)
    worse = branch("a 0.5", 0.5, 0.69), branch("half of a 0.5", 0.3, 0.7)
    found = account(single, *worse, branch("b 0.5", 0.0, 0.6, other=0.5))
    assert found["a"].startswith("a: left out; the best branch with it, half of a 0.5 has 0.700")
    assert "without it" not in found["b"]


def test_branches_are_compared_in_the_metric_and_by_their_predictions():
    better = branch("a 0.5", 0.5, 0.74, taken=True)
    found = replace(examples.results("a", "b"), branches=[SINGLE, better])
    assert branches_table(found, seconds=False).to_numpy().tolist() == [
        ["single task", "0.700", "-", "-", ""],
        ["a 0.5", "0.740", "+4.0 points", "+0.04 ± 0.01", "yes"],
    ]
    found.config["metric"] = "mae"
    assert branches_table(found).iloc[1, 2] == "+0.04"


def test_of_many_points_between_runs_the_one_that_is_taken_is_shown():
    runs = [branch(f"run {n}", 0.5) for n in range(3)]  # with one evaluation each
    points = [
        replace(branch(f"point {n}", 0.5, taken=n == 4), course=[(0, 0.7)]) for n in range(24)
    ]
    assert [one.title for one in shown_branches(runs + points)] == [
        *("run 0", "run 1", "run 2", "point 4")
    ]
    assert len(shown_branches(runs + points[:6])) == 9


def test_nothing_is_claimed_of_a_task_when_no_run_has_learned_anything():
    taken = [replace(SINGLE, taken=True), branch("a 0.5", 0.5, 0.75), branch("b", 0.0, other=0.5)]
    for text in account_of_branches(("a", "b"), taken, "accuracy", learned=False).values():
        assert text[3:] == (
            "left out, and nothing is known of it: no run that was compared has learned anything"
        )


def test_a_metric_that_is_worse_than_that_of_a_constant_is_said():
    found = examples.results()
    assert found.warnings() == []
    found.evaluations["dev"].majority.metrics["accuracy"] = 0.75
    (line,) = found.warnings()
    assert line == (
        "accuracy on dev, 0.750, is no better than 0.750, that of always predicting the most "
        "frequent class of train; try more epochs, another learning rate or metric macro_f1"
    )
    numbers = examples.results(kind="regression", metric="pearson")
    scores = {"pearson": 0.4, "spearman": 0.4, "mae": 520000.0}, {"pearson": 0, "mae": 240000.0}
    for part, values in zip(("all", "majority"), scores, strict=True):
        metrics = getattr(numbers.evaluations["dev"], part).metrics
        metrics.clear()
        metrics.update(values)
    (line,) = numbers.warnings()
    assert line.startswith(
        "MAE on dev, 520,000.000, is no better than 240,000.000, that of always predicting the "
        "mean of train; try more epochs, another learning rate or numbers scaled to about -1 to 1"
    )


def rows(weights, candidates=None):
    candidates = candidates or weights
    return [
        {"kind": "train", "step": 10 * (place + 1), "weight/a": weight, "candidate/a": learned}
        for place, (weight, learned) in enumerate(zip(weights, candidates, strict=True))
    ]


@pytest.mark.parametrize(
    ("weights", "exported", "expected"),
    [
        (
            (0, 0, 0),
            30,
            ("a: not applied in the recorded steps; its weight was at most 0.030", "by step 50"),
        ),
        (
            (0, 0.2, 0.3),
            30,
            ("of the recorded steps, applied from step 20, weight up to 0.300", "weight 0.300"),
        ),
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
