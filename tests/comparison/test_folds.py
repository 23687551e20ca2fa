"""Folds and restarts: against hand computation, Student's test, all subsets and simulation."""

import csv
import io
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from auxlearn.comparison.compare import compare
from auxlearn.comparison.folds import compare_two, fold_noise
from auxlearn.comparison.restarts import best_of, restarts_of
from auxlearn.core.errors import UserError
from auxlearn.reports.page import report
from tests.cli.helpers import call
from tests.comparison.conftest import METHODS, edited
from tests.comparison.test_compare import refused
from tests.helpers import read_lines, write_splits


def right_by_fold(trial):
    """RTM is right on more examples by fold; its seeds differ."""
    fold = int(trial.cell["fold"][0])
    base = {"STL": 20, "RTM": 23 + fold}[trial.cell["method"]]
    return {"dev": 30, "test": base + (fold % 2) + trial.seed % 2}


@pytest.fixture
def folds(make_sweep):
    folder = make_sweep(right_by_fold, grid=METHODS, folds=5, seeds=2)
    for path in folder.path.glob("trials/*/results.json"):
        with edited(path) as content:
            content["dataset"]["examples"] = {"train": 150, "dev": 10, "test": 40}
    return folder


def drop(folds, *given):
    """Delete the results of the runs whose configuration has all of some lines."""
    for path in folds.path.glob("trials/*/config.yaml"):
        if all(line in path.read_text() for line in given):
            (path.parent / "results.json").unlink()


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
    drop(folds, "fold: 4/5")
    drop(folds, "fold: 2/5", "seed: 1")
    comparison = compare(folds.path)
    (column,) = comparison.blocks[0].columns
    assert list(column.scores["RTM"]) == [1, 2, 3, 5]
    text = comparison.to_markdown()
    assert "RTM: no scores for fold 4, which do not enter the mean" in text
    assert "RTM, fold 2: no scores for seed 1 (unfinished)" in text


def test_a_method_that_lacks_a_fold_is_never_in_bold(folds):
    drop(folds, "fold: 1/5", "random_mlm")  # it may be the hardest
    comparison = compare(folds.path)
    (column,) = comparison.blocks[0].columns
    assert column.means["RTM"] > column.means["STL"]
    text = comparison.to_markdown()
    assert column.best == "STL"
    bold = [line.split()[1] for line in text.splitlines() if line[0:1] == "|" and "**" in line]
    assert bold == ["STL"]
    assert "Best of the methods with all folds in bold" in text
    drop(folds, "fold: 2/5", "aux: []")
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
        lines = read_lines(path)
        if "fold: 2/5" in config:
            next(one for one in lines if one["predicted"] != one["label"])["predicted"] = "rare"
        elif "fold: 4/5" not in config:
            lines[0] |= {"label": "rare", "predicted": "rare"}
        write_splits(path.parent, test=lines)
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


DEV = [5, 2, 7, 7, 1, 4]
TEST = [22, 30, 27, 20, 35, 24]


def by_brute_force(dev, scores, count):
    """The mean over all subsets; where several seeds are best, the mean over these."""
    kept = []
    for subset in itertools.combinations(range(len(dev)), count):
        best = max(dev[seed] for seed in subset)
        kept.append(np.mean([scores[seed] for seed in subset if dev[seed] == best]))
    return np.mean(kept)


@pytest.mark.parametrize("levels", [3, 1000])
def test_the_expectation_is_the_mean_over_all_subsets(levels):
    """With three levels of dev, ties are frequent."""
    random = np.random.default_rng(levels)
    for total in range(1, 9):
        for count in range(1, total + 1):
            dev = random.integers(levels, size=total).tolist()
            scores = random.normal(size=total).tolist()
            expected = by_brute_force(dev, scores, count)
            assert best_of(dev, scores, count) == pytest.approx(expected, abs=1e-14)


def test_the_standard_error_is_the_jackknifes_exactly():
    """Over all samples of four seeds from four equally likely ones, two of them tied on dev.

    The best of two is a U-statistic, whose variance has a part of single seeds and a part of pairs
    (Hoeffding, 1948); the jackknife's variance has the first once, and the second 2 (n - 1) /
    (n - 2) = 3 times.
    """
    dev, scores, total = [1, 2, 2, 3], [0.5, 0.1, 0.7, 0.6], 4
    found = [
        restarts_of([dev[i] for i in drawn], [scores[i] for i in drawn], 2)
        for drawn in itertools.product(range(4), repeat=total)
    ]
    two = [
        [best_of([dev[i], dev[j]], [scores[i], scores[j]], 2) for i in range(4)] for j in range(4)
    ]
    of_one = 4 / total * np.var(np.mean(two, axis=0))
    of_pairs = 2 / (total * (total - 1)) * (np.var(two) - 2 * np.var(np.mean(two, axis=0)))
    assert np.var([one.mean for one in found]) == pytest.approx(of_one + of_pairs, rel=1e-12)
    variance = np.mean([one.error**2 for one in found])
    assert variance == pytest.approx(of_one + 3 * of_pairs, rel=1e-12)


def right(trial):
    """Scores of the single task on two data sets, and of a method with a task."""
    shift = {"sst2": 0, "qqp": 1}.get(trial.cell.get("dataset"), 0)
    if trial.cell["method"] == "RTM":
        return {"dev": 9, "test": 25 + trial.seed % 3}
    return {"dev": DEV[trial.seed] + shift, "test": TEST[trial.seed] + shift * trial.seed % 2}


NAME = "control: STL, best of 3 seeds by dev"


def test_every_format_shows_the_control(make_sweep, tmp_path, monkeypatch):
    monkeypatch.setattr("auxlearn.reports.page.MOST_PLOTS", 0)  # those of runs take half a second
    folder = make_sweep(right, grid=METHODS, seeds=6)
    expected = restarts_of(DEV, [one / 40 for one in TEST], 3)
    shown = f"{100 * expected.mean:.1f} (s.e. {100 * expected.error:.1f})"
    assert expected.mean == pytest.approx(by_brute_force(DEV, TEST, 3) / 40)
    found = compare(folder.path, restarts=3, power=True)
    plain = compare(folder.path)
    assert plain.blocks[0].columns[0].pairs == found.blocks[0].columns[0].pairs
    lines = found.to_markdown(show=["seeds", "epochs", "minutes"]).splitlines()
    place = next(number for number, line in enumerate(lines) if NAME in line)
    assert lines[place] == f"| {NAME} | 6 | {shown} |  | 10.5 |"  # thrice the minutes of STL
    assert lines[place - 1].startswith("| RTM |")
    assert lines[place + 1].startswith("| detectable |")
    assert any("Nothing is tested against it" in line for line in lines)
    tex = found.to_latex()
    (row,) = [line for line in tex.splitlines() if NAME in line]
    assert row.endswith(f"{NAME} & {shown} \\\\")
    for cell in (NAME, shown):
        assert f"<td>{cell}</td>" in found._repr_html_()
    for words in ([folder.path, "--restarts"], ["--restarts", 3, folder.path]):
        done = call("compare", *words)
        assert done.exit_code == 0, done.output
        assert shown in " ".join(done.output.split())
    done = call("compare", folder.path, "--restarts=3", "--format=csv")
    rows = [one for one in csv.DictReader(io.StringIO(done.output)) if one["method"] == NAME]
    assert [float(one["mean"]) for one in rows] == [expected.mean]
    assert [float(one["standard_error"]) for one in rows] == [expected.error]
    assert {rows[0][key] for key in ("best", "may_equal_best", "sd", "low", "high")} == {""}
    assert NAME not in plain.to_markdown()
    assert "standard_error" not in plain.to_frame()
    text = report(folder.path, output=tmp_path / "a.html", texts=False, restarts=3).read_text()
    assert NAME in text
    assert shown in text


def test_every_data_set_and_metric_has_its_own_control(make_sweep):
    folder = make_sweep(right, grid={"dataset": ["sst2", "qqp"]} | METHODS, seeds=6)
    found = compare(folder.path, metrics=["accuracy", "mcc"], restarts=2)
    columns = found.blocks[0].columns
    assert len(columns) == 6
    for column in columns[:4]:
        dev = [one + (column.dataset == "qqp") for one in DEV]
        by_seed = column.scores["STL"]
        expected = restarts_of(dev, list(by_seed.values()), 2)
        best = column.restarts["STL"]
        assert (best.mean, best.error) == pytest.approx((expected.mean, expected.error))
        assert list(column.restarts) == ["STL"]
    for average, parts in zip(columns[4:], (columns[0:4:2], columns[1:4:2]), strict=True):
        one, other = (part.restarts["STL"] for part in parts)
        assert average.restarts["STL"].mean == pytest.approx((one.mean + other.mean) / 2)
        error = math.hypot(one.error, other.error) / 2
        assert average.restarts["STL"].error == pytest.approx(error)


def test_what_cannot_be_restarted_is_refused(make_sweep, tmp_path):
    folder = make_sweep(right, grid=METHODS, seeds=3)
    need = "the best of 3 seeds takes at least 4, and 'STL' has 3 on pydocs test"
    assert need in refused(folder.path, "--restarts", 3)
    none = refused(folder.path, "--restarts", 2, "--without", "STL")
    assert "no method without auxiliary tasks" in none
    out = tmp_path / "report.html"
    with pytest.raises(UserError, match=need):
        report(folder.path, output=out, restarts=3)
    assert not out.exists()
    folds = make_sweep(right, "folds", grid=METHODS, folds=2, seeds=6)
    for asked in ({"restarts": 2}, {"power": True}):
        with pytest.raises(UserError, match="folds of a cross-validation are no seeds"):
            compare(folds.path, **asked)
