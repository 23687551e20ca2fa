"""The statistics against enumeration, closed testing, scikit-learn and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from auxlearn.sweeps.statistics import (
    ALPHA,
    Predictions,
    bootstrap_scores,
    bootstrap_test,
    compare_methods,
    fewest_seeds,
    holm,
    indistinguishable,
    mean_interval,
    minimum_detectable_difference,
    permutation_test,
    resample_weights,
)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 10])
def test_the_permutation_test_counts_all_sign_patterns(count):
    differences = np.random.default_rng(count).normal(0.4, 1.0, count)
    patterns = np.array(list(itertools.product([1, -1], repeat=count)))
    means = np.abs((patterns * differences).mean(1))
    expected = (means >= abs(differences.mean()) * (1 - 1e-12)).mean()
    assert permutation_test(differences) == pytest.approx(expected, abs=1e-12)


def test_the_permutation_test_has_a_floor_and_a_ceiling():
    assert permutation_test([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 2**5)
    assert permutation_test([0.0, 0.0, 0.0]) == 1.0
    assert permutation_test([0.3]) == 1.0
    assert permutation_test([]) == 1.0


def test_many_seeds_are_drawn_and_agree_with_scipy_and_the_t_test():
    differences = np.random.default_rng(0).normal(0.35, 1.0, 40)
    found = permutation_test(differences)
    by_t = stats.ttest_1samp(differences, 0).pvalue
    by_scipy = stats.permutation_test(
        (differences,),
        lambda x, axis: x.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    ).pvalue
    assert 0.005 < by_t < 0.3
    assert found == pytest.approx(by_t, abs=0.02)
    assert found == pytest.approx(by_scipy, abs=0.02)


def test_holm_is_the_closure_of_bonferroni():
    """A hypothesis is rejected if Bonferroni rejects every intersection that holds it."""
    draws = np.random.default_rng(1)
    for count in (1, 2, 3, 5):
        p_values = list(draws.uniform(0, 0.3, count))
        subsets = [s for n in range(1, count + 1) for s in itertools.combinations(range(count), n)]
        expected = [
            max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in subsets if i in s)
            for i in range(count)
        ]
        assert holm(p_values) == pytest.approx(expected, abs=1e-12)
    assert holm([]) == []


def made(rows: int, classes: int, right: float, seeds: int, draws) -> Predictions:
    truth = draws.integers(0, classes, rows)
    hit = draws.random((seeds, rows)) < right
    return Predictions(
        truth, np.where(hit, truth, draws.integers(0, classes, (seeds, rows))), classes
    )


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_resampled_scores_are_those_of_the_resampled_rows(metric):
    draws = np.random.default_rng(2)
    given = made(40, 4, 0.6, 2, draws)
    weights = draws.multinomial(40, np.full(40, 1 / 40), size=25).astype(float)
    weights[0], weights[0, 0] = 0, 40  # a single row: one class occurs
    found = bootstrap_scores(given, metric, weights)
    for resample, value in zip(weights, found, strict=True):
        rows = np.repeat(np.arange(40), resample.astype(int))
        scores = [
            (one[rows] == given.truth[rows]).mean()
            if metric == "accuracy"
            else f1_score(given.truth[rows], one[rows], average="macro", zero_division=0)
            for one in given.predicted
        ]
        assert value == pytest.approx(np.mean(scores), abs=1e-12)


def test_the_bootstrap_agrees_with_the_normal_approximation():
    draws = np.random.default_rng(3)
    truth = np.zeros(2000, dtype=int)
    first = Predictions(truth, (draws.random((1, 2000)) < 0.30).astype(int), 2)
    second = Predictions(truth, (draws.random((1, 2000)) < 0.325).astype(int), 2)
    weights = resample_weights(2000)
    assert (weights.sum(1) == 2000).all()
    differences = [bootstrap_scores(p, "accuracy", weights) for p in (first, second)]
    found = bootstrap_test(differences[0] - differences[1])
    rows = (first.predicted == truth).astype(float) - (second.predicted == truth)
    z = rows.mean() / (rows.std() / math.sqrt(2000))
    expected = 2 * stats.norm.sf(abs(z))
    assert 0.01 < expected < 0.6
    assert found == pytest.approx(expected, abs=0.03)


def test_both_tests_have_to_reject():
    """Equal on the rows but not over seeds, and the reverse: neither is a difference."""
    truth = np.arange(30) % 2
    right, wrong = truth.copy(), truth.copy()
    wrong[:3] = 1 - wrong[:3]
    seeds = range(10)
    scores = {"a": dict.fromkeys(seeds, 0.9), "b": {seed: 0.8 + seed / 1000 for seed in seeds}}
    same = {name: {s: Predictions(truth, right[None], 2) for s in seeds} for name in scores}
    (pair,) = compare_methods(scores, same)
    assert pair.p_seeds < 0.01
    assert pair.p_rows == 1.0
    assert pair.p == 1.0
    assert indistinguishable("a", [pair]) == {"b"}
    (alone,) = compare_methods(scores)
    assert (alone.first, alone.second, alone.p_rows) == ("a", "b", None)
    assert indistinguishable("a", [alone]) == set()


def test_pairs_are_made_of_common_seeds():
    scores = {"a": {0: 0.5, 1: 0.6, 2: 0.9}, "b": {1: 0.5, 2: 0.7, 3: 0.1}}
    (pair,) = compare_methods(scores)
    assert pair.difference == pytest.approx((0.1 + 0.2) / 2)
    assert pair.p_seeds == pytest.approx(0.5)


def test_null_tables_seldom_have_a_best_that_stands_out():
    """1,000 tables of three equal methods, ten seeds: at most 5% may name a winner falsely.

    The best is picked after the fact, which is what the correction over all pairs is for.
    """
    draws = np.random.default_rng(4)
    false = 0
    for _ in range(1000):
        level = draws.normal(0, 1, 10)  # seeds are paired: part of the noise is shared
        scores = {name: dict(enumerate(level + draws.normal(0, 1, 10))) for name in ("a", "b", "c")}
        pairs = compare_methods(scores)
        best = max(scores, key=lambda name: sum(scores[name].values()))
        false += len(indistinguishable(best, pairs)) < 2
    bound = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 1000)
    assert 0 < false / 1000 <= bound


def test_a_real_difference_is_found():
    draws = np.random.default_rng(5)
    scores = {
        name: {seed: shift + draws.normal(0, 0.01) for seed in range(10)}
        for name, shift in (("a", 0.80), ("b", 0.75), ("c", 0.70))
    }
    pairs = compare_methods(scores)
    assert indistinguishable("a", pairs) == set()
    assert [(pair.first, pair.second) for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]


@pytest.mark.parametrize("pairs", [1, 3, 10])
def test_fewer_seeds_than_needed_can_never_reject(pairs):
    needed = fewest_seeds(pairs)
    floor = [2 * 0.5**seeds * pairs for seeds in (needed - 1, needed)]
    assert floor[0] > ALPHA >= floor[1]
    assert minimum_detectable_difference([1.0] * pairs, needed - 1) == math.inf
    assert minimum_detectable_difference([1.0] * pairs, needed) < math.inf


def test_differences_of_the_detectable_size_are_found_as_often_as_said():
    seeds, spread = 10, 2.0
    size = minimum_detectable_difference([spread], seeds)
    draws = np.random.default_rng(6).normal(size, spread, (20_000, seeds))
    found = (stats.ttest_1samp(draws, 0, axis=1).pvalue <= ALPHA).mean()
    assert found == pytest.approx(0.8, abs=0.01)
    exact = [permutation_test(row) <= ALPHA for row in draws[:300]]
    assert np.mean(exact) == pytest.approx(0.8, abs=0.08)


def test_the_interval_of_a_mean_is_students():
    values = [1.0, 2.0, 4.0, 8.0]
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert mean_interval(values) == pytest.approx((expected[1] - expected[0]) / 2)
    assert mean_interval([3.0]) == 0.0
