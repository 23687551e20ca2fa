"""Ranks over data sets against scikit-posthocs, scipy and Demšar's own example."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from auxlearn.comparison.statistics import cliques, compare_methods, rank_methods, wins
from tests.comparison.test_statistics import constant_column

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


def test_wins_ties_and_losses_count_significant_differences():
    same = dict.fromkeys(range(5), 0.6)
    column = constant_column({"a": dict.fromkeys(range(5), 0.9), "b": same, "c": dict(same)})
    found = wins("abc", [compare_methods(column)] * 3)
    assert found == {"a": (6, 0, 0), "b": (0, 3, 3), "c": (0, 3, 3)}
