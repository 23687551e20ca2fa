"""Statistics against scipy, statsmodels, scikit-learn and -posthocs, by hand and by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from auxlearn.comparison.power import minimum_detectable_difference
from auxlearn.comparison.scores import (
    Predictions,
    scores_and_covariance,
)
from auxlearn.comparison.statistics import (
    MINIMUM_SEEDS,
    Column,
    cliques,
    compare_methods,
    half_width,
    holm,
    mean_noise,
    noise_of,
    rank_methods,
    t_test,
    wins,
)
from auxlearn.core.errors import ConfigError
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.kinds.metrics import metric_of
from benchmarks.significance import Tables, false_positives


def predictions(truth, predicted, classes) -> Predictions:
    sums = [np.stack([truth, one], 1) for one in predicted]
    return Predictions(CLASSIFICATION, tuple(map(str, range(classes))), truth, sums)


def draw(examples: int, classes: int, right: float, runs: int, draws):
    """True and predicted classes, of which this share is right, and some more by luck."""
    truth = draws.integers(0, classes, examples)
    hit = draws.random((runs, examples)) < right
    predicted = np.where(hit, truth, draws.integers(0, classes, (runs, examples)))
    return truth, predicted


def by_scikit_learn(metric: str, labels, truth, predicted) -> float:
    kind, _, label = metric.partition(":")
    if label:
        score = getattr(metrics, f"{kind}_score")
        number = [labels.index(label)]
        return score(truth, predicted, labels=number, average="macro", zero_division=0)
    if kind in ("macro_f1", "weighted_f1"):
        average = kind.removesuffix("_f1")
        return metrics.f1_score(truth, predicted, average=average, zero_division=0)
    score = {"accuracy": metrics.accuracy_score, "mcc": metrics.matthews_corrcoef}[kind]
    return score(truth, predicted)


@pytest.mark.parametrize(
    "metric", [*CLASSIFICATION.metrics, *CLASSIFICATION.compared, "f1:1", "precision:3", "recall:0"]
)
def test_scores_and_their_jackknife_are_those_of_scikit_learn(metric):
    """Leave out each of the examples in turn, as the definition says."""
    truth, said = draw(20, 4, 0.5, 2, np.random.default_rng(2))
    truth[truth == 3] = 2  # a class that only predictions have
    found = predictions(truth, said, 4)
    scores, covariance = scores_and_covariance(found, metric)
    without = np.empty((2, 20))
    for run, predicted in enumerate(said):
        expected = by_scikit_learn(metric, found.names, truth, predicted)
        assert scores[run] == pytest.approx(expected, abs=1e-14)
        for left in range(20):
            rest = np.arange(20) != left
            without[run, left] = by_scikit_learn(metric, found.names, truth[rest], predicted[rest])
    assert covariance == pytest.approx(np.cov(without, ddof=0) * 19, rel=1e-10, abs=1e-16)


def test_one_example_has_no_variance_and_wrong_metrics_are_named():
    found = predictions(np.array([0]), np.array([[0], [1]]), 2)
    scores, covariance = scores_and_covariance(found, "accuracy")
    assert scores.tolist() == [1.0, 0.0]
    assert not covariance.any()
    assert metric_of("recall:a").title == "recall of a"
    with pytest.raises(ConfigError, match="did you mean 'macro_f1'"):
        metric_of("macrof1")
    with pytest.raises(ConfigError, match="f1:LABEL"):
        metric_of("xyz:a")


def test_the_t_test_and_its_interval_are_scipys():
    draws = np.random.default_rng(7)
    for count in (3, 5, 12):
        given = draws.normal(0.4, 1.0, count)
        expected = stats.ttest_1samp(given, 0)
        found = t_test(given.mean(), given.var(ddof=1) / count, count - 1)
        assert found == pytest.approx(expected.pvalue, rel=1e-10)
        interval = expected.confidence_interval()
        half = half_width(given.var(ddof=1) / count, count - 1)
        assert 2 * half == pytest.approx(interval.high - interval.low, rel=1e-10)
    assert t_test(0.02, 0.0001, math.inf) == pytest.approx(2 * stats.norm.sf(2.0), rel=1e-10)
    assert half_width(0.0001, math.inf) == pytest.approx(0.01 * stats.norm.isf(0.025), rel=1e-10)
    assert t_test(0.0, 0.0, 4) == 1.0
    assert t_test(0.1, 0.0, 4) == 0.0


def test_holm_is_the_closure_of_bonferroni_and_that_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    draws = np.random.default_rng(1)
    for count in (1, 2, 3, 5):
        p_values = list(draws.uniform(0, 0.3, count))
        subsets = [s for n in range(1, count + 1) for s in itertools.combinations(range(count), n)]
        expected = [
            max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in subsets if i in s)
            for i in range(count)
        ]
        assert holm(p_values) == pytest.approx(expected, abs=1e-12)
        assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    assert holm([]) == []


def column_of(right) -> Column:
    """A column of accuracies of tables of right predictions, ``(seeds, examples)`` by method."""
    runs = {(m, s): None for m, table in right.items() for s in range(len(table))}
    places = {run: number for number, run in enumerate(runs)}
    every = np.concatenate(list(right.values())).astype(int)
    examples = every.shape[1]
    found = predictions(np.ones(examples, dtype=int), every, 2)
    values, covariance = scores_and_covariance(found, "accuracy")
    scores = {m: {s: float(values[places[m, s]]) for s in range(len(t))} for m, t in right.items()}
    return Column(scores, places, covariance, examples)


def two_way(seeds: int, examples: int, draws):
    hard = draws.uniform(0.05, 0.6, (2, examples))
    return {
        name: draws.random((seeds, examples)) > hard[i] + draws.uniform(0, 0.2, (seeds, 1))
        for i, name in enumerate("ab")
    }


def test_the_variances_of_a_difference_are_those_of_the_analysis_of_variance_of_statsmodels():
    """Seeds and examples crossed, both random (Searle et al., 1992, chapter 4)."""
    import pandas as pd
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    seeds, examples = 4, 30
    right = two_way(seeds, examples, np.random.default_rng(9))
    column = column_of(right)
    (pair,) = compare_methods(column)
    table = right[pair.first].astype(float) - right[pair.second]
    frame = pd.DataFrame(
        [(s, e, table[s, e]) for s in range(seeds) for e in range(examples)],
        columns=["seed", "example", "value"],
    )
    found = anova_lm(smf.ols("value ~ C(seed) + C(example)", frame).fit())
    squares = found["sum_sq"] / found["df"] / seeds / examples
    assert pair.difference == pytest.approx(table.mean())
    assert pair.noise.seeds == pytest.approx(squares["C(seed)"], rel=1e-9)
    assert pair.noise.examples == pytest.approx(squares["C(example)"], rel=1e-9)
    assert pair.noise.interaction == pytest.approx(squares["Residual"], rel=1e-9)
    noise = pair.noise
    total = noise.seeds + noise.examples - noise.interaction
    assert noise.total == pytest.approx(max(total, noise.examples, noise.seeds))
    freedom = noise.total**2 / (noise.seeds**2 / 3 + noise.examples**2 / 29)
    both = 2 * stats.t.sf(pair.difference / math.sqrt(noise.total), freedom)
    first, second = (right[name].mean(1) for name in (pair.first, pair.second))
    assert pair.beats == pytest.approx(stats.mannwhitneyu(first, second).statistic / seeds**2)
    over_seeds = stats.ttest_rel(first, second)
    assert pair.p_both == pytest.approx(both, rel=1e-9)
    assert pair.p_seeds == pytest.approx(over_seeds.pvalue, rel=1e-9)
    assert pair.p == max(pair.p_both, pair.p_seeds)
    # The interval is the wider one of those of the two tests.
    halves = [
        (over_seeds.confidence_interval().high - over_seeds.confidence_interval().low) / 2,
        stats.t.isf(0.025, freedom) * math.sqrt(noise.total),
    ]
    assert pair.high - pair.difference == pytest.approx(max(halves), rel=1e-9)
    assert pair.difference - pair.low == pytest.approx(max(halves), rel=1e-9)


def constant_column(scores) -> Column:
    places = {(m, s): i for i, (m, s) in enumerate((m, s) for m in scores for s in scores[m])}
    return Column(scores, places, np.zeros((len(places), len(places))), 100)


def test_pairs_are_made_of_common_seeds():
    common = {"a": [0.6, 0.9, 0.8], "b": [0.5, 0.7, 0.9]}
    scores = {name: dict(enumerate(values, start=1)) for name, values in common.items()}
    scores["a"][0], scores["b"][4] = 0.5, 0.1
    (pair,) = compare_methods(constant_column(scores))
    assert (pair.seeds, pair.first) == (3, "a")
    assert pair.difference == pytest.approx((0.1 + 0.2 - 0.1) / 3)
    assert pair.p_seeds == pytest.approx(stats.ttest_rel(common["a"], common["b"]).pvalue, rel=1e-9)
    apart = {"a": {0: 0.5, 1: 0.6}, "b": {2: 0.5, 3: 0.6}}
    (pair,) = compare_methods(constant_column(apart))
    assert (pair.seeds, pair.p) == (0, 1.0)


def test_against_one_method_the_correction_is_for_the_others_only():
    draws = np.random.default_rng(5)
    scores = {
        name: {seed: shift + draws.normal(0, 0.01) for seed in range(5)}
        for name, shift in (("a", 0.80), ("b", 0.75), ("c", 0.78), ("d", 0.79))
    }
    column = constant_column(scores)
    every, few = compare_methods(column), compare_methods(column, against="a")
    assert len(every) == 6
    assert [pair.names for pair in few] == [frozenset("ab"), frozenset("ac"), frozenset("ad")]
    raw = [max(pair.p_seeds, pair.p_both) for pair in few]
    assert [pair.p for pair in few] == pytest.approx(holm(raw))
    assert all(pair.p <= other.p for pair, other in zip(few, every, strict=False))


def test_two_seeds_tell_nothing_apart():
    """Their differences are easily the same, and a spread of 0 would make any of them certain."""
    assert MINIMUM_SEEDS == 3
    column = constant_column({"a": {0: 0.9, 1: 0.9}, "b": {0: 0.5, 1: 0.5}})
    (pair,) = compare_methods(column)
    assert pair.p == 1.0
    assert math.isnan(pair.low)
    assert minimum_detectable_difference([pair], 2, 100) == math.inf


def test_without_noise_nothing_is_said_to_be_detectable():
    """Equal predictions show no noise to simulate, and no difference is significant among them."""
    column = constant_column({name: dict.fromkeys(range(3), 0.9) for name in "ab"})
    (pair,) = compare_methods(column)
    assert (pair.p, pair.noise.total) == (1.0, 0.0)
    assert minimum_detectable_difference([pair], 2, 100) == math.inf


def test_the_mean_of_data_sets_has_the_variance_of_independent_values():
    """By Satterthwaite's formula, written out for each source."""
    noises = [
        noise_of(column_of(two_way(5, n, np.random.default_rng(n))), {"a": 1, "b": -1}, range(5))
        for n in (60, 90, 200)
    ]
    found = mean_noise(noises)
    for part, free in (("seeds", [4] * 3), ("examples", [59, 89, 199])):
        values = np.array([getattr(noise, part) for noise in noises])
        assert getattr(found, part) == pytest.approx(values.sum() / 9)
        expected = values.sum() ** 2 / (values**2 / free).sum()
        assert getattr(found, f"free_{part}") == pytest.approx(expected)
    assert found.interaction == pytest.approx(sum(noise.interaction for noise in noises) / 9)


#: Table 6 of Demšar (2006): AUC of C4.5, C4.5+m, C4.5+cf and C4.5+m+cf on 14 data sets.
DEMSAR = {
    "C4.5": [.763, .599, .954, .628, .882, .936, .661, .583, .775, 1.0, .94, .619, .972, .957],
    "C4.5+m": [.768, .591, .971, .661, .888, .931, .668, .583, .838, 1.0, .962, .666, .981, .978],
    "C4.5+cf": [.771, .590, .968, .654, .886, .916, .609, .563, .866, 1.0, .965, .614, .9751, .946],
    "C4.5+m+cf": [
        .798, .569, .967, .657, .898, .931, .685, .625, .875, 1.0, .962, .669, .975, .970,
    ],
}  # fmt: skip


def test_demsars_example():
    """Ranks 3.143, 2.000, 2.893, 1.964; critical difference 1.25; two significant pairs in none."""
    found = rank_methods(DEMSAR)
    assert list(found.ranks.values()) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=0.001)
    assert found.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / 6 / 14), abs=0.002)
    assert found.p_friedman == pytest.approx(stats.friedmanchisquare(*DEMSAR.values()).pvalue)
    assert found.p_friedman < 0.05


@pytest.mark.parametrize(("methods", "datasets"), [(3, 4), (5, 12), (10, 4)])
def test_nemenyis_test_is_that_of_scikit_posthocs(methods, datasets):
    from scikit_posthocs import posthoc_nemenyi_friedman

    draws = np.random.default_rng(methods)
    table = draws.normal(0, 1, (datasets, methods)) + np.arange(methods)
    found = rank_methods({str(i): column for i, column in enumerate(table.T)})
    expected = posthoc_nemenyi_friedman(table).to_numpy()
    rest = ~np.eye(methods, dtype=bool)
    assert found.p_friedman == pytest.approx(stats.friedmanchisquare(*table.T).pvalue)
    # Ranks differ significantly if they differ by the critical difference or more.
    ranks = np.array(list(found.ranks.values()))
    apart = np.abs(np.subtract.outer(ranks, ranks)) >= found.critical_difference
    assert (apart[rest] == (expected <= 0.05)[rest]).all()


def test_equal_scores_share_ranks_and_two_methods_have_no_test_over_data_sets():
    found = rank_methods({"a": [0.5, 0.7], "b": [0.5, 0.6], "c": [0.4, 0.8]})
    assert found.ranks == {"a": 1.75, "b": 2.25, "c": 2.0}
    assert rank_methods({name: [0.5, 0.5] for name in "abc"}).p_friedman == 1.0
    two = rank_methods({"a": [0.5, 0.7], "b": [0.5, 0.6]})
    assert two.ranks == {"a": 1.25, "b": 1.75}
    assert math.isnan(two.critical_difference)
    assert math.isnan(two.p_friedman)


def test_bars_join_the_largest_groups_that_do_not_differ():
    """Ranks 1 to 5 on 12 data sets: the critical difference is 1.76, so neighbours are joined."""
    found = rank_methods({str(i): [1.0 - i] * 12 for i in range(5)})
    assert found.critical_difference == pytest.approx(2.728 * math.sqrt(5 * 6 / 72), abs=0.002)
    assert cliques(found) == [("0", "1"), ("1", "2"), ("2", "3"), ("3", "4")]
    near = rank_methods({"a": [1, 2], "b": [2, 1], "c": [0, 0]})
    assert cliques(near) == [("a", "b", "c")]


def test_methods_without_a_common_seed_have_no_difference():
    (pair,) = compare_methods(constant_column({"a": {0: 0.9}, "b": {1: 0.6}}))
    assert pair.seeds == 0
    assert math.isnan(pair.difference)
    assert math.isnan(pair.beats)
    assert not pair.significant


def test_wins_ties_and_losses_count_significant_differences():
    same = dict.fromkeys(range(5), 0.6)
    column = constant_column({"a": dict.fromkeys(range(5), 0.9), "b": same, "c": dict(same)})
    found = wins("abc", [compare_methods(column)] * 3)
    assert found == {"a": (6, 0, 0), "b": (0, 3, 3), "c": (0, 3, 3)}


@pytest.mark.parametrize(
    ("methods", "seeds", "against"),
    [(2, 3, False), pytest.param(3, 5, True, marks=pytest.mark.slow)],
)
def test_differences_of_the_detectable_size_are_found_as_often_as_said(methods, seeds, against):
    tables = Tables(20, "both", methods, seeds, against=against)
    assert tables.power(600, tables.detectable) == pytest.approx(0.8, abs=0.045)


@pytest.mark.parametrize(
    ("seeds", "share"),
    [
        pytest.param(seeds, share, marks=() if share == 0.5 else pytest.mark.slow)
        for seeds in (3, 5, 10)
        for share in (0.0, 0.5, 1.0)
    ],
)
def test_wherever_the_noise_is_from_equal_methods_are_seldom_told_apart(seeds, share):
    found = false_positives(seeds, share, tables=5000)
    assert 0.035 < found["both t-tests"] <= 0.06


def test_each_test_alone_would_tell_equal_methods_apart():
    assert false_positives(10, 0.5, tables=2000)["seeds alone"] > 0.12
    assert false_positives(3, 0.2, tables=10_000)["crossed t-test alone"] > 0.07
