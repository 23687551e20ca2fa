"""Paired comparison of the predictions of two runs for the same examples."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import balanced_accuracy_score

from auxlearn.training.whole_runs.paired import example_weights, paired_difference


def test_the_difference_over_its_error_is_the_t_of_a_paired_test():
    draw = np.random.default_rng(3)
    first, second = draw.normal(size=(2, 50))
    found = paired_difference(first, second, np.ones(50))
    expected = stats.ttest_rel(first, second).statistic
    assert found.mean / found.error == pytest.approx(expected, rel=1e-12)
    assert found.mean == pytest.approx((first - second).mean(), abs=1e-15)
    assert paired_difference(first[:1], second[:1], np.ones(1)).error == np.inf


def test_balanced_weights_give_the_mean_over_the_classes():
    draw = np.random.default_rng(4)
    labels = draw.choice(3, size=90, p=[0.7, 0.2, 0.1])
    predicted = draw.choice(3, size=90)
    weights = example_weights(labels, balanced=True)
    expected = balanced_accuracy_score(labels, predicted)
    assert (weights * (predicted == labels)).mean() == pytest.approx(expected, rel=1e-12)
    assert weights.mean() == pytest.approx(1, rel=1e-12)
    assert (example_weights(labels, balanced=False) == 1).all()
