"""The earlier rule of three runs: what it takes, and the calibrated log loss that it goes by."""

import numpy as np
import pytest
from scipy import optimize
from sklearn.metrics import log_loss

from auxlearn.training.whole_runs.paired import Difference
from benchmarks.three_runs import (
    Gain,
    alone,
    best_of,
    calibrated_log_losses,
    fitted_beta,
    log_losses,
    together,
)


def gain(mean, error=0.01, correct=0.0, correct_error=0.01):
    return Gain(Difference(mean, error), Difference(correct, correct_error))


def test_a_run_is_taken_by_its_log_loss_unless_its_metric_speaks_against_it():
    better, best, worse = (0.7, 0.3), (0.5, 0.5), (0.9, 0.1)
    gains = {better: gain(0.006), best: gain(0.02), worse: gain(0.004)}
    assert best_of(gains, 0.5) == best
    assert best_of({worse: gains[worse]}, 0.5) is None  # 0.4 standard errors
    assert best_of({worse: gains[worse]}, 0.3) == worse
    gains[best] = gain(0.02, correct=-0.011)
    assert best_of(gains, 0.5) == better
    gains[best] = gain(0.02, correct=-0.009)
    assert best_of(gains, 0.5) == best


def test_together_each_task_keeps_its_ratio_to_the_primary_task():
    both = together([alone(0, 0.5, 3), alone(2, 0.3, 3)])
    assert both[2] == 0
    assert sum(both) == pytest.approx(1, abs=1e-15)
    assert both[1] / both[0] == pytest.approx(0.5 / 0.5, rel=1e-12)
    assert both[3] / both[0] == pytest.approx(0.3 / 0.7, rel=1e-12)


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


def test_a_model_that_is_certain_and_wrong_has_a_finite_loss():
    probabilities, labels = np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 1])
    losses = calibrated_log_losses(probabilities, labels)
    assert np.isfinite(losses).all()
    assert losses.argmax() == 3
