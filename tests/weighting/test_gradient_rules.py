"""Rules that combine gradients: by hand, in numpy, and against autograd of what they minimise."""

import math

import numpy as np
import pytest
import torch

from auxlearn.core.validation import Settings
from auxlearn.weighting.gcs import gcs_gates
from auxlearn.weighting.mixing import GramWeighting, metabalance_factors
from auxlearn.weighting.ol_aux import (
    OLAuxOptions,
    ol_aux_slopes,
)
from tests.helpers import slopes
from tests.weighting.fakes import LOSSES, NAMES, FakeStep, make, random_gradients, run, vector


def gram(*vectors):
    matrix = torch.tensor(vectors, dtype=torch.float64)
    return matrix @ matrix.T


def flattened(gradients):
    """The gradients of the encoder, a row for each objective."""
    return np.array([np.concatenate([p or [0.0, 0.0] for p in g[:2]]) for g in gradients])


@pytest.mark.parametrize("version", ["weighted", "unweighted"])
def test_gcs_gives_a_gradient_of_zero_no_weight(version):
    assert gcs_gates(gram((1.0, 0.0), (0.0, 0.0), (1.0, 0.0)), version).tolist() == [1, 0, 1]
    assert gcs_gates(gram((0.0, 0.0), (1.0, 0.0), (1.0, 1.0)), version).tolist() == [1, 0, 0]


@pytest.mark.parametrize("version", ["weighted", "unweighted"])
def test_gcs_gates_the_gradients_of_the_encoder(version):
    """Gates over the encoder only, in numpy."""
    steps = random_gradients(6, seed=2)
    rule = make("gcs", version=version)
    combined, weights = run(rule, FakeStep(steps))
    gated = 0
    for found, gradients, used in zip(combined, steps, weights, strict=True):
        flat = flattened(gradients)
        cosines = [v @ flat[0] / np.sqrt((v @ v) * (flat[0] @ flat[0])) for v in flat]
        gates = [max(0, c) if version == "weighted" else float(c > 0) for c in cosines]
        assert used == pytest.approx(gates, rel=1e-12)
        total = sum(g * v for g, v in zip(gates, flat, strict=True))
        np.testing.assert_allclose(np.concatenate(found[:2]), total, rtol=1e-12, atol=1e-14)
        gated += gates.count(0)
    assert gated > 2
    assert rule.metrics()["norm/primary"] == pytest.approx(np.sqrt(flat[0] @ flat[0]), rel=1e-14)


@pytest.mark.parametrize("of_type", [torch.FloatTensor, torch.LongTensor, list])
def test_a_rule_of_the_gram_matrix_may_return_weights_of_any_type(of_type):
    class Rule(GramWeighting):
        def weigh(self, gram, step):
            return of_type([1, 0, 2])

    combined, weights = run(Rule(Settings(), NAMES), FakeStep(random_gradients(1)))
    assert weights == [[1.0, 0.0, 2.0]]
    first, _, third = random_gradients(1)[0]
    np.testing.assert_allclose(combined[0][0], np.add(first[0], 2 * np.array(third[0])))


def metabalance_by_hand(steps, relaxation=0.7, beta=0.9):
    """The released code's loop over objectives and shared tensors, in numpy."""
    averages = np.zeros((3, 2))
    for gradients in steps:
        total = np.zeros((2, 2))
        for i, gradient in enumerate(gradients):
            for k in range(2):
                if gradient[k] is None:
                    averages[i, k] *= beta
                    continue
                part = np.array(gradient[k])
                averages[i, k] = beta * averages[i, k] + (1 - beta) * np.sqrt((part**2).sum())
                scaled = averages[0, k] * part / averages[i, k]
                total[k] += relaxation * scaled + (1 - relaxation) * part
    return total


@pytest.mark.parametrize(("relaxation", "beta"), [(0.7, 0.9), (0.2, 0.5), (1.0, 0.0), (0.0, 0.9)])
def test_metabalance_is_the_released_code(relaxation, beta):
    steps = random_gradients(7)
    combined, _ = run(make("metabalance", relaxation=relaxation, beta=beta), FakeStep(steps))
    for count in range(1, 8):
        expected = metabalance_by_hand(steps[:count], relaxation, beta)
        np.testing.assert_allclose(combined[count - 1][:2], expected, rtol=1e-13, atol=1e-15)


def test_the_primary_gradient_stays_and_no_zero_is_divided_by():
    norms = torch.zeros(3, 4, dtype=torch.float64)
    norms[1, 1], norms[0, 2] = 2.0, 3.0
    factors, _ = metabalance_factors(norms, torch.zeros_like(norms), 0.7, 0.9)
    assert factors.isfinite().all()
    assert factors[0].tolist() == [1.0] * 4
    assert factors[1, 1] == pytest.approx(0.3, abs=1e-15)  # the primary never reaches that tensor


def test_weights_are_ratios_of_norms_over_the_encoder():
    steps = random_gradients(1)
    rule = make("metabalance")
    run(rule, FakeStep(steps))
    alone = [
        metabalance_by_hand([[steps[0][0], g, [None] * 4]])
        - metabalance_by_hand([[steps[0][0], [None] * 4, [None] * 4]])
        for g in steps[0][1:]
    ]
    norms = np.linalg.norm(flattened(steps[0]), axis=1)
    expected = [1.0, *(np.sqrt((a**2).sum()) / n for a, n in zip(alone, norms[1:], strict=True))]
    assert rule.weights.tolist() == pytest.approx(expected, rel=1e-12)
    assert list(rule.metrics().values()) == pytest.approx(norms, rel=1e-14)


def test_ol_aux_slopes_are_the_derivative_of_the_primary_log_loss_by_the_weights():
    """Finite differences through an SGD step on the log losses of quadratics."""
    centres = vector([1.0, -2.0], [3.0, 0.5], [-1.0, 1.0])
    start = vector(0.4, 0.3)
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
    expected = -slopes(primary_log_loss, torch.ones(3).double()) / rate
    # To first order in the rate; the quadratic term is of the size of the rate itself.
    torch.testing.assert_close(found[1:], expected[1:], rtol=0.01, atol=0)


def ol_aux_by_hand(steps, losses, every, rate, least):
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
def test_ol_aux_written_out(every, rate):
    steps = random_gradients(5)
    rule = make("ol_aux", every=every, learning_rate=rate)
    combined, weights = run(rule, FakeStep(steps, LOSSES))
    expected, seen = ol_aux_by_hand(steps, LOSSES, every, rate, 0.02)
    np.testing.assert_allclose(combined, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(weights, seen, rtol=1e-12, atol=1e-14)
    assert weights[-1] != [1.0, 1.0, 1.0]


def test_ol_aux_outside_the_schedule_weights_are_fixed_and_steps_are_on_log_losses():
    steps = random_gradients(5)
    rule = make("ol_aux", every=1, learning_rate=1.0, warmup_steps=2, learn_share=1 / 3)
    combined, weights = run(rule, FakeStep(steps, LOSSES))
    changed = [one != other for one, other in zip([[1.0] * 3, *weights], weights, strict=False)]
    assert changed == [False, False, True, True, False]
    expected, _ = ol_aux_by_hand(steps[:1], LOSSES[:1], 1, 1.0, 0.02)
    np.testing.assert_allclose(combined[0], expected[0], rtol=1e-12)


def test_ol_aux_keeps_the_floor_of_the_primary_task():
    step = [[[1.0, 0.0], [0.0, 0.0], None, None]] * 3
    rule = make("ol_aux", every=1, learning_rate=10.0, floor=0.25)
    for weights in run(rule, FakeStep([step] * 3))[1]:
        assert weights[0] == 1.0
        assert weights[0] / math.fsum(weights) >= 0.25 - 1e-12


def test_the_default_rate_of_ol_aux_is_that_of_the_released_code():
    """``aux_weights_lr = aux_base_lr * aux_update_interval`` times ``Q_lr`` times the mean."""
    base, interval, rate = 5, 5, 1e-3
    assert OLAuxOptions().every == interval
    assert OLAuxOptions().learning_rate == pytest.approx(base * interval * rate)
