"""Folds: the corrected test against hand computation and Student's, and what tables say."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from auxlearn.comparison.compare import compare
from auxlearn.comparison.folds import compare_two, fold_noise
from auxlearn.core.errors import UserError
from tests.comparison.conftest import METHODS


def right_by_fold(trial):
    """RTM is right on more examples by fold; its seeds differ."""
    fold = int(trial.cell["fold"][0])
    base = {"STL": 20, "RTM": 23 + fold}[trial.cell["method"]]
    return {"dev": 30, "test": base + (fold % 2) + trial.seed % 2}


@pytest.fixture
def folds(make_sweep):
    folder = make_sweep(right_by_fold, grid=METHODS, folds=5, seeds=2)
    for path in folder.path.glob("trials/*/results.json"):
        content = json.loads(path.read_text())
        content["dataset"]["examples"] = {"train": 150, "dev": 10, "test": 40}
        path.write_text(json.dumps(content))
    return folder


def test_the_variance_is_that_of_nadeau_and_bengio():
    values = [0.03, 0.01, 0.04, 0.02, 0.05]
    noise = fold_noise(values, share=0.25)
    expected = (1 / 5 + 0.25) * np.var(values, ddof=1)
    assert noise.total == pytest.approx(expected, rel=1e-14)
    p_value = 2 * stats.t.sf(0.03 / math.sqrt(expected), 4)
    assert noise.test(0.03) == pytest.approx((p_value, p_value), rel=1e-12)
    # Without training examples in common it is Student's paired t-test.
    plain = fold_noise(values, share=0.0)
    assert plain.test(0.03)[0] == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-12)
    assert noise.half_width() > plain.half_width()


def test_methods_are_paired_by_fold_and_seed():
    """The fold and the seed that only one of the methods has do not enter the difference."""
    scores = {
        1: {"a": {0: 0.5, 1: 0.7}, "b": {0: 0.4, 2: 0.9}},
        2: {"a": {0: 0.6}, "b": {0: 0.4}},
        3: {"a": {0: 0.6}, "b": {0: 0.3}},
        4: {"a": {0: 1.0}},
    }
    pair = compare_two(scores, "b", "a", share=0.5, better=1)
    assert (pair.first, pair.second, pair.seeds) == ("a", "b", 3)
    assert pair.difference == pytest.approx(0.2)
    assert pair.noise.total == pytest.approx((1 / 3 + 0.5) * 0.1**2)
    assert pair.beats == 1.0
    assert compare_two(scores, "a", "b", share=math.inf, better=1).p == 1.0


def test_a_sweep_over_folds_is_one_column(folds):
    comparison = compare(folds.path)
    (block,) = comparison.blocks
    (column,) = block.columns
    assert block.methods == ["STL", "RTM"]
    assert list(column.scores["STL"]) == [1, 2, 3, 4, 5]
    means = [(20 + fold % 2 + 0.5) / 40 for fold in range(1, 6)]
    assert list(column.scores["STL"].values()) == pytest.approx(means)
    assert column.means["RTM"] == pytest.approx(np.mean(means) + (3 + 3) / 40)
    (pair,) = column.pairs
    differences = [(3 + fold) / 40 for fold in range(1, 6)]
    variance = (1 / 5 + 40 / 150) * np.var(differences, ddof=1)
    p_value = 2 * stats.t.sf(np.mean(differences) / math.sqrt(variance), 4)
    assert (pair.p_seeds, pair.p) == pytest.approx((p_value, p_value), rel=1e-9)
    text = comparison.to_markdown()
    assert "mean ± standard deviation over 5 folds" in text
    assert "Nadeau and Bengio (2003)" in text
    assert "paired t-test" not in text
    assert "5 folds" in block.title
    frame = comparison.to_frame()
    assert set(frame["folds"]) == {"5 folds"}
    assert set(frame["seeds"]) == set(comparison.pairs_frame()["seeds"]) == {2}
    assert "5 folds" in comparison.to_latex()


def test_nothing_is_tested_on_dev_and_missing_folds_are_named(folds):
    comparison = compare(folds.path, sets=["dev"])
    (pair,) = comparison.blocks[0].columns[0].pairs
    assert pair.p == 1.0
    assert math.isnan(pair.low)
    assert comparison.to_frame()["low"].isna().all()
    for path in folds.path.glob("trials/*"):
        config = (path / "config.yaml").read_text()
        if "fold: 4/5" in config or ("fold: 2/5" in config and "seed: 1" in config):
            (path / "results.json").unlink()
    comparison = compare(folds.path)
    (column,) = comparison.blocks[0].columns
    assert list(column.scores["RTM"]) == [1, 2, 3, 5]
    text = comparison.to_markdown()
    assert "RTM: no scores for fold 4, which do not enter the mean" in text
    assert "RTM, fold 2: no scores for seed 1 (unfinished)" in text


def test_a_method_that_lacks_a_fold_is_never_in_bold(folds):
    def drop(fold, with_task):
        for path in folds.path.glob("trials/*/config.yaml"):
            config = path.read_text()
            if f"fold: {fold}/5" in config and ("random_mlm" in config) == with_task:
                (path.parent / "results.json").unlink()

    drop(1, True)  # it may be the hardest
    comparison = compare(folds.path)
    (column,) = comparison.blocks[0].columns
    assert column.means["RTM"] > column.means["STL"]
    text = comparison.to_markdown()
    assert column.best == "STL"
    bold = [line.split()[1] for line in text.splitlines() if line[0:1] == "|" and "**" in line]
    assert bold == ["STL"]
    assert "Best of the methods with all folds in bold" in text
    drop(2, False)
    comparison = compare(folds.path)
    assert comparison.blocks[0].columns[0].best is None
    assert "**" not in comparison.to_markdown()
    assert "best" not in repr(comparison)
    assert not comparison.to_frame()["best"].any()


def test_folds_without_a_class_say_nothing_of_it(folds):
    """In one fold the class does not occur, in another it is only predicted."""
    for run in folds.path.glob("trials/*"):
        config = (run / "config.yaml").read_text()
        path = run / "predictions" / "test.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if "fold: 2/5" in config:
            next(one for one in lines if one["predicted"] != one["label"])["predicted"] = "rare"
        elif "fold: 4/5" not in config:
            lines[0] |= {"label": "rare", "predicted": "rare"}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    comparison = compare(folds.path, metrics=["f1:rare", "recall:rare", "accuracy"])
    *rare, accuracy = comparison.blocks[0].columns
    for column in rare:
        assert column.scores == {name: {1: 1.0, 3: 1.0, 5: 1.0} for name in ("STL", "RTM")}
        assert column.examples == 3 * 40
    assert list(accuracy.scores["STL"]) == [1, 2, 3, 4, 5]
    text = comparison.to_markdown()
    assert "F1 of rare: no example of the class in folds 2, 4, which do not enter the mean" in text
    assert "3 to 5 folds" in text
    with pytest.raises(UserError, match="no scores for f1:none"):
        compare(folds.path, metrics=["f1:none"])


def test_runs_with_folds_and_without_are_not_mixed(folds, make_sweep):
    whole = make_sweep(lambda trial: {"dev": 30, "test": 30}, "whole", grid=METHODS, seeds=3)
    comparison = compare(folds.path, whole.path)
    assert [block.folds for block in comparison.blocks] == [5, 0]
    text = comparison.to_markdown()
    assert "paired t-test" in text
    assert "corrected resampled t-test" in text


def test_single_runs_of_folds_are_joined(folds):
    runs = sorted(folds.path.glob("trials/*"))
    (block,) = compare(*runs).blocks
    assert block.folds == 5
    assert len(block.methods) == 2
    assert len(block.columns[0].scores[block.methods[0]]) == 5
