"""OL-AUX: what a small step does to the primary log loss, and the rule in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from auxlearn.weighting.ol_aux import (
    OLAux,
    OLAuxOptions,
    ol_aux_coefficients,
    ol_aux_slopes,
    ol_aux_weights,
)
from tests.helpers import slopes
from tests.weighting.fakes import NAMES, FakeStep, random_gradients, run

LOSSES = [[2.0, 0.5, 7.0], [1.5, 0.6, 6.0], [1.2, 0.2, 5.0], [1.0, 0.3, 4.0], [0.8, 0.1, 3.0]]


def make(**given):
    return OLAux(OLAuxOptions(**given), NAMES)


def test_slopes_are_the_derivative_of_the_primary_log_loss_by_the_weights():
    """Finite differences through an SGD step on the log losses of quadratics."""
    centres = torch.tensor([[1.0, -2.0], [3.0, 0.5], [-1.0, 1.0]], dtype=torch.float64)
    start = torch.tensor([0.4, 0.3], dtype=torch.float64)
    rate, least = 1e-3, 0.02

    def losses(theta):
        return ((theta - centres) ** 2).sum(1) + 0.5

    def primary_log_loss(weights):
        theta = start.clone().requires_grad_()
        total = (weights * (losses(theta) + least).log()).sum()
        (slope,) = torch.autograd.grad(total, theta)
        with torch.no_grad():
            return float((losses(theta - rate * slope)[0] + least).log())

    gradients = 2 * (start - centres)
    found = ol_aux_slopes(gradients @ gradients[0], losses(start), least)
    expected = -slopes(primary_log_loss, torch.ones(3, dtype=torch.float64)) / rate
    # To first order in the rate; the quadratic term is of the size of the rate itself.
    torch.testing.assert_close(found[1:], expected[1:], rtol=0.01, atol=0)


def test_coefficients_are_those_of_log_losses_times_the_primary_loss():
    losses = torch.tensor([2.0, 0.5, 7.0], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, 0.3, 2.0], dtype=torch.float64)
    (expected,) = torch.autograd.grad((weights * (losses + 0.02).log()).sum(), losses)
    found = ol_aux_coefficients(weights, losses.detach(), 0.02)
    torch.testing.assert_close(found, expected * 2.02, rtol=1e-14, atol=0)
    assert float(found[0]) == 1.0


def test_weights_ascend_their_slopes_and_stay_above_zero():
    weights = torch.tensor([1.0, 0.3, 0.2], dtype=torch.float64)
    slopes = torch.tensor([5.0, 2.0, -3.0], dtype=torch.float64)
    found = ol_aux_weights(weights, slopes, 0.1)
    assert found.tolist() == pytest.approx([1.0, 0.5, 0.0], abs=1e-15)


def by_hand(steps, losses, every, rate, least):
    weights, slopes, combined, seen = np.ones(3), [], [], []
    for gradients, values in zip(steps, np.array(losses), strict=True):
        logs = [
            [np.array(p if p is not None else [0.0, 0.0]) / (v + least) for p in g]
            for g, v in zip(gradients, values, strict=True)
        ]
        combined.append(
            [
                (values[0] + least) * sum(w * g[k] for w, g in zip(weights, logs, strict=True))
                for k in range(4)
            ]
        )
        flat = [np.concatenate(g[:2]) for g in logs]
        slopes.append([v @ flat[0] for v in flat])
        if len(slopes) == every:
            weights[1:] = np.maximum(0, weights + rate * np.mean(slopes, axis=0))[1:]
            slopes = []
        seen.append(weights.copy())
    return combined, seen


@pytest.mark.parametrize(("every", "rate"), [(1, 0.05), (2, 0.5), (3, 5.0)])
def test_the_rule_written_out(every, rate):
    steps = random_gradients(5)
    rule = make(every=every, learning_rate=rate)
    combined, weights = run(rule, FakeStep(steps, LOSSES))
    expected, seen = by_hand(steps, LOSSES, every, rate, 0.02)
    np.testing.assert_allclose(combined, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(weights, seen, rtol=1e-12, atol=1e-14)
    assert weights[-1] != [1.0, 1.0, 1.0]


def test_outside_the_schedule_weights_are_fixed_and_steps_are_on_log_losses():
    steps = random_gradients(5)
    rule = make(every=1, learning_rate=1.0, warmup_steps=2, learn_share=1 / 3)
    combined, weights = run(rule, FakeStep(steps, LOSSES))
    changed = [one != other for one, other in zip([[1.0] * 3, *weights], weights, strict=False)]
    assert changed == [False, False, True, True, False]
    expected, _ = by_hand(steps[:1], LOSSES[:1], 1, 1.0, 0.02)
    np.testing.assert_allclose(combined[0], expected[0], rtol=1e-12)


def test_the_floor_of_the_primary_task():
    step = [[[1.0, 0.0], [0.0, 0.0], None, None]] * 3
    rule = make(every=1, learning_rate=10.0, floor=0.25)
    for weights in run(rule, FakeStep([step] * 3))[1]:
        assert weights[0] == 1.0
        assert weights[0] / math.fsum(weights) >= 0.25 - 1e-12


def test_the_default_rate_is_that_of_the_released_code():
    """``aux_weights_lr = aux_base_lr * aux_update_interval`` times ``Q_lr`` times the mean."""
    base, interval, rate = 5, 5, 1e-3
    assert OLAuxOptions().every == interval
    assert OLAuxOptions().learning_rate == pytest.approx(base * interval * rate)
