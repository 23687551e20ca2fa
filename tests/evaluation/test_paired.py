"""Paired comparison of two classifiers on the same examples."""

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.metrics import balanced_accuracy_score, log_loss

from auxlearn.training.whole_runs.paired import (
    calibrated_log_losses,
    example_weights,
    fitted_beta,
    log_losses,
    paired_difference,
)


def model(seed=0, examples=300, classes=4, sharpness=1.0):
    """Class probabilities of a calibrated model, raised to a power, and labels drawn from it."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(examples, classes)) * 2
    exact = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([draw.choice(classes, p=row) for row in exact])
    sharp = exact**sharpness
    return sharp / sharp.sum(1, keepdims=True), labels


def test_log_losses_are_those_of_scikit_learn():
    probabilities, labels = model()
    found = log_losses(probabilities, labels, 1.0)
    assert found.mean() == pytest.approx(log_loss(labels, probabilities), rel=1e-12)
    powers = probabilities**0.4
    powers /= powers.sum(1, keepdims=True)
    expected = log_loss(labels, powers)
    assert log_losses(probabilities, labels, 0.4).mean() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 1.4])
def test_the_fitted_temperature_is_where_the_derivative_vanishes(sharpness):
    """By hand: the derivative by beta is the mean of E[log p] under the scaled p, minus log p_y."""
    probabilities, labels = model(sharpness=sharpness)
    logs = np.log(probabilities)

    def slope(beta):
        scaled = np.exp(beta * logs)
        scaled /= scaled.sum(1, keepdims=True)
        return ((scaled * logs).sum(1) - logs[np.arange(len(labels)), labels]).mean()

    expected = optimize.brentq(slope, 1e-3, 50, xtol=1e-12)
    assert fitted_beta(probabilities, labels) == pytest.approx(expected, rel=1e-4)


def test_confidence_alone_makes_no_difference():
    """The powers of a model's probabilities have its ranking, and the same score."""
    calm, labels = model(sharpness=0.3)
    sharp, _ = model(sharpness=1.4)
    assert abs(log_loss(labels, sharp) - log_loss(labels, calm)) > 0.1
    np.testing.assert_allclose(
        calibrated_log_losses(sharp, labels), calibrated_log_losses(calm, labels), rtol=1e-4
    )


def test_no_example_is_scored_with_a_temperature_that_has_seen_its_label():
    probabilities, labels = model(classes=2)
    labels[:150], labels[150:] = 0, 1
    before = calibrated_log_losses(probabilities, labels)
    changed = probabilities.copy()
    changed[0] = changed[0][::-1]  # what the other half is fitted to
    after = calibrated_log_losses(changed, labels)
    own_half = np.concatenate([np.arange(0, 150, 2), np.arange(150, 300, 2)])
    rest = np.setdiff1d(own_half, [0])
    np.testing.assert_array_equal(after[rest], before[rest])
    assert not np.allclose(after[np.setdiff1d(np.arange(300), own_half)], before[1], rtol=0)
    assert (after[1::2] != before[1::2]).any()


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


def test_a_model_that_is_certain_and_wrong_has_a_finite_loss():
    probabilities, labels = np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 1])
    losses = calibrated_log_losses(probabilities, labels)
    assert np.isfinite(losses).all()
    assert losses.argmax() == 3
