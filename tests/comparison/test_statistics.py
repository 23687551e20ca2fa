"""The statistics against enumeration, closed testing, scikit-learn and simulation."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from auxlearn.comparison.bootstrap import RESAMPLES, Resampled, bootstrap_metrics, resample_counts
from auxlearn.comparison.power import minimum_detectable_difference
from auxlearn.comparison.statistics import (
    ALPHA,
    MINIMUM_SEEDS,
    bootstrap_test,
    compare_methods,
    holm,
    indistinguishable,
    mean_interval,
    permutation_test,
    permutation_test_can_reject,
    seeds_for_permutation_test,
    t_test,
)
from auxlearn.rng import derive_seed
from benchmarks.significance import Tables, false_positives


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


@pytest.mark.parametrize(
    "differences", [[0.1, 0.2, -0.3], [0.7, -0.1, -0.6], [0.1] * 3 + [-0.3], [0.3, 0.3, -0.6]]
)
def test_differences_that_cancel_out_are_no_difference_at_all(differences):
    """Every pattern is at least as far from 0 as a sum that is 0 but for its last digits."""
    assert abs(sum(differences)) < 1e-15
    assert permutation_test(differences) == 1.0


def test_the_t_test_is_scipys():
    draws = np.random.default_rng(7)
    for count in (3, 5, 12):
        given = draws.normal(0.4, 1.0, count)
        expected = stats.ttest_1samp(given, 0).pvalue
        found = t_test(given.mean(), given.var(ddof=1) / count, count - 1)
        assert found == pytest.approx(expected, rel=1e-10)
    assert t_test(0.02, 0.0001, math.inf) == pytest.approx(2 * stats.norm.sf(2.0), rel=1e-10)
    assert t_test(0.0, 0.0, 4) == 1.0
    assert t_test(0.1, 0.0, 4) == 0.0


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


def draw(examples: int, classes: int, right: float, runs: int, draws):
    """True classes and predictions of which this share is right, and some more by luck."""
    truth = draws.integers(0, classes, examples)
    hit = draws.random((runs, examples)) < right
    return truth, np.where(hit, truth, draws.integers(0, classes, (runs, examples)))


def all_counts(examples: int) -> np.ndarray:
    """Every resample of a set, ``(resamples, examples)``, as one call to NumPy draws them."""
    draws = np.random.default_rng(derive_seed(0, "bootstrap", examples))
    return draws.multinomial(examples, np.full(examples, 1 / examples), size=RESAMPLES)


@pytest.mark.parametrize("examples", [40, 90_000])
def test_resamples_drawn_in_chunks_are_those_drawn_at_once(examples):
    found = np.concatenate(list(resample_counts(examples, 24)), axis=1)
    draws = np.random.default_rng(derive_seed(0, "bootstrap", examples))
    expected = draws.multinomial(examples, np.full(examples, 1 / examples), size=24)
    assert np.array_equal(found.T, expected)


def test_resampled_metrics_are_those_of_the_resampled_examples():
    """The examples are written out and given to scikit-learn."""
    draws = np.random.default_rng(2)
    truth, predicted = draw(40, 4, 0.6, 2, draws)
    truth[truth == 3] = 2  # a class that only predictions have
    found = bootstrap_metrics(truth, predicted, 4)
    for number, counts in enumerate(all_counts(40)[:25]):
        members = np.repeat(np.arange(40), counts)
        for run in range(2):
            chosen = predicted[run, members]
            accuracy = (chosen == truth[members]).mean()
            f1 = f1_score(truth[members], chosen, average="macro", zero_division=0)
            assert found["accuracy"][run, number] == pytest.approx(accuracy, abs=1e-15)
            assert found["macro_f1"][run, number] == pytest.approx(f1, abs=1e-12)


def test_resampling_holds_a_small_part_of_the_draws_at_a_time():
    """All counts of 3,000 examples would take 48 MB, and twice that as floating-point numbers."""
    truth, predicted = draw(3000, 3, 0.8, 15, np.random.default_rng(13))
    bootstrap_metrics(truth[:10], predicted[:, :10], 3)  # what is imported on first use
    tracemalloc.start()
    bootstrap_metrics(truth, predicted, 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


def dense_metrics(truth, predicted, classes, counts):
    """The definitions on dense one-hot matrices of one run: much slower, nothing to get wrong."""
    numbers = np.arange(classes)
    counts = counts.astype(float)
    is_true, is_predicted = truth[:, None] == numbers, predicted[:, None] == numbers
    hits = counts @ (is_true & is_predicted)
    found = counts @ is_true.astype(float) + counts @ is_predicted.astype(float)
    f1 = np.divide(2 * hits, found, out=np.zeros_like(found), where=found > 0)
    accuracy = counts @ (predicted == truth) / counts.sum(1)
    return {"accuracy": accuracy, "macro_f1": f1.sum(1) / (found > 0).sum(1)}


@pytest.mark.parametrize(("examples", "classes"), [(7, 2), (300, 3), (700, 40)])
def test_bootstrap_p_values_are_those_of_the_definition_to_the_last_digit(examples, classes):
    draws = np.random.default_rng(8)
    truth, predicted = draw(examples, classes, 0.6, 6, draws)
    predicted[4:, : examples // 9] = truth[: examples // 9]
    found = bootstrap_metrics(truth, predicted, classes)
    reference = [dense_metrics(truth, run, classes, all_counts(examples)) for run in predicted]
    for metric, values in found.items():
        assert np.array_equal(values, [run[metric] for run in reference])
        names = {
            name: dict(enumerate(values[i : i + 2])) for i, name in ((0, "a"), (2, "b"), (4, "c"))
        }
        scores = {"a": {0: 0.5, 1: 0.5}, "b": {0: 0.5, 1: 0.4}, "c": {0: 0.6, 1: 0.7}}
        pairs = compare_methods(scores, Resampled(examples, names))
        starts = {"a": 0, "b": 2, "c": 4}
        for pair in pairs:
            first, second = (
                np.mean([reference[starts[name] + seed][metric] for seed in range(2)], axis=0)
                for name in (pair.first, pair.second)
            )
            assert pair.p_examples == bootstrap_test(first - second)


def test_the_bootstrap_agrees_with_the_normal_approximation():
    draws = np.random.default_rng(3)
    truth = np.zeros(2000, dtype=int)
    predicted = np.stack([draws.random(2000) < 0.30, draws.random(2000) < 0.325]).astype(int)
    first, second = bootstrap_metrics(truth, predicted, 2)["accuracy"]
    found = bootstrap_test(first - second)
    differences = (predicted[0] == truth).astype(float) - (predicted[1] == truth)
    z = differences.mean() / (differences.std() / math.sqrt(2000))
    expected = 2 * stats.norm.sf(abs(z))
    assert 0.01 < expected < 0.6
    assert found == pytest.approx(expected, abs=0.03)


def resample(predicted, truth) -> Resampled:
    """Resampled accuracy of the predictions of methods, ``(seeds, examples)`` each."""
    values = {
        name: dict(enumerate(bootstrap_metrics(truth, found, 2)["accuracy"]))
        for name, found in predicted.items()
    }
    return Resampled(len(truth), values)


def test_all_tests_have_to_reject():
    """Equal on the examples but not over seeds: no difference."""
    truth = np.arange(30) % 2
    seeds = range(10)
    scores = {"a": dict.fromkeys(seeds, 0.9), "b": {seed: 0.8 + seed / 1000 for seed in seeds}}
    same = resample(dict.fromkeys(scores, np.tile(truth, (10, 1))), truth)
    (pair,) = compare_methods(scores, same)
    assert pair.p_seeds < 0.01
    assert pair.p_examples == 1.0
    assert pair.p == 1.0
    assert indistinguishable("a", [pair]) == {"b"}
    (alone,) = compare_methods(scores)
    assert (alone.first, alone.second, alone.p_examples, alone.p_both) == ("a", "b", None, None)
    assert indistinguishable("a", [alone]) == set()


def test_the_variances_of_a_difference_are_those_of_a_two_way_layout():
    """Mean squares of the table of seeds and examples, by hand (Searle et al., 1992, chapter 4)."""
    draws = np.random.default_rng(9)
    seeds, examples = 6, 3000
    truth = np.zeros(examples, dtype=int)
    hard = draws.uniform(0.05, 0.6, (2, examples))
    predicted = {
        name: (
            draws.random((seeds, examples)) < hard[i] + draws.uniform(0, 0.1, (seeds, 1))
        ).astype(int)
        for i, name in enumerate("ab")
    }
    scores = {name: dict(enumerate((found == 0).mean(1))) for name, found in predicted.items()}
    (pair,) = compare_methods(scores, resample(predicted, truth))
    table = (predicted["b"] * -1.0) + predicted["a"]
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    residual = (rest**2).sum() / (seeds - 1) / (examples - 1)
    assert pair.noise.seeds == pytest.approx(table.mean(1).var(ddof=1) / seeds, rel=1e-9)
    by_examples = table.mean(0).var(ddof=1) / examples
    assert pair.noise.examples == pytest.approx(by_examples, rel=0.1)  # 2,000 resamples
    assert pair.noise.interaction == pytest.approx(residual / seeds / examples, rel=0.1)
    noise = pair.noise
    total = noise.seeds + noise.examples - noise.interaction
    assert noise.total == pytest.approx(total)
    freedom = total**2 / (noise.seeds**2 / 5 + noise.examples**2 / 2999)
    expected = 2 * stats.t.sf(pair.difference / math.sqrt(total), freedom)
    assert pair.p_both == pytest.approx(expected, rel=1e-9)


def test_pairs_are_made_of_common_seeds():
    common = {"a": [0.6, 0.9, 0.8], "b": [0.5, 0.7, 0.9]}
    scores = {name: dict(enumerate(values, start=1)) for name, values in common.items()}
    scores["a"][0], scores["b"][4] = 0.5, 0.1
    (pair,) = compare_methods(scores)
    assert pair.difference == pytest.approx((0.1 + 0.2 - 0.1) / 3)
    expected = stats.ttest_rel(common["a"], common["b"]).pvalue
    assert pair.p_seeds == pytest.approx(expected, rel=1e-9)


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
def test_fewer_seeds_than_needed_take_the_t_test(pairs):
    needed = seeds_for_permutation_test(pairs)
    floor = [2 * 0.5**seeds * pairs for seeds in (needed - 1, needed)]
    assert floor[0] > ALPHA >= floor[1]
    assert not permutation_test_can_reject(needed - 1, pairs)
    draws = np.random.default_rng(11)
    for seeds, test in ((needed - 1, "t"), (needed, "permutation")):
        methods = {1: 2, 3: 3, 10: 5}[pairs]
        scores = {name: dict(enumerate(draws.normal(0, 1, seeds))) for name in "abcde"[:methods]}
        found = compare_methods(scores)
        assert {pair.seed_test for pair in found} == {test}
        for pair in found:
            both = (list(scores[name].values()) for name in (pair.first, pair.second))
            if test == "t":
                assert pair.p_seeds == pytest.approx(stats.ttest_rel(*both).pvalue, rel=1e-9)


def test_so_many_pairs_that_drawn_patterns_cannot_reject_take_the_t_test():
    assert seeds_for_permutation_test(400) == 14
    assert seeds_for_permutation_test(500) is None
    assert not permutation_test_can_reject(40, 500)


def test_so_many_pairs_that_the_bootstrap_cannot_reject_take_its_standard_error():
    """With 12 methods there are 66 pairs, and 2/2001 * 66 is above the level."""
    draws = np.random.default_rng(12)
    truth = np.zeros(400, dtype=int)
    wrong = {f"m{i}": 0.1 if i == 0 else 0.5 for i in range(12)}
    predicted = {
        name: (draws.random((5, 400)) < share).astype(int) for name, share in wrong.items()
    }
    scores = {name: dict(enumerate((found == 0).mean(1))) for name, found in predicted.items()}
    pairs = compare_methods(scores, resample(predicted, truth))
    assert indistinguishable("m0", pairs) == set()


def test_two_seeds_tell_nothing_apart():
    """Their differences are easily the same, and a spread of 0 would make any of them certain."""
    assert MINIMUM_SEEDS == 3
    scores = {"a": {0: 0.9, 1: 0.9}, "b": {0: 0.5, 1: 0.5}}
    (pair,) = compare_methods(scores)
    assert pair.p == 1.0
    assert minimum_detectable_difference([pair.noise], 2, 2, 100) == math.inf


@pytest.mark.parametrize(
    ("noise", "methods", "seeds"),
    [
        ("both", 2, 3),
        ("seeds", 2, 5),
        ("both", 2, 6),
        ("examples", 2, 10),
        ("both", 3, 5),
        ("both", 3, 12),
    ],
)
def test_differences_of_the_detectable_size_are_found_as_often_as_said(noise, methods, seeds):
    """Of six seeds the permutation test takes no more than all of one sign."""
    tables = Tables(20, noise, methods, seeds, resamples=400)
    found = tables.power(1500, tables.detectable)
    assert found == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("seeds", [5, 10])
def test_equal_methods_are_seldom_told_apart(seeds):
    """Whole comparisons, with noise of seeds and examples."""
    found = Tables(30, "both", 2, seeds, resamples=400).false_positives(1000)
    assert 0.02 < found <= 0.06


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_wherever_the_noise_is_from_equal_methods_are_seldom_told_apart(seeds, share):
    found = false_positives(seeds, share, tables=20_000 if seeds < 10 else 4000)
    assert 0.02 < found["all three"] <= 0.06


def test_two_sources_of_noise_take_a_test_of_both():
    """Each of the others knows of one; both together reject twice as often as their level."""
    assert false_positives(10, 0.5, tables=4000)["seeds and examples"] > 0.09


def test_the_interval_of_a_mean_is_students():
    values = [1.0, 2.0, 4.0, 8.0]
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert mean_interval(values) == pytest.approx((expected[1] - expected[0]) / 2)
    assert mean_interval([3.0]) == 0.0
