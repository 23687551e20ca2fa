"""MetaBalance against its equations written out in numpy, and its named properties."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from auxlearn.weighting.metabalance import (
    MetaBalance,
    MetaBalanceOptions,
    metabalance_weights,
)
from auxlearn.weighting.mixing import metabalance_factors
from tests.weighting.fakes import NAMES, FakeStep, random_gradients, run


def make(**given):
    return MetaBalance(MetaBalanceOptions(**given), NAMES)


def by_hand(steps, relaxation=0.7, beta=0.9):
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
def test_the_step_is_that_of_the_released_code(relaxation, beta):
    steps = random_gradients(7)
    combined, _ = run(make(relaxation=relaxation, beta=beta), FakeStep(steps))
    for count in range(1, 8):
        expected = by_hand(steps[:count], relaxation, beta)
        np.testing.assert_allclose(combined[count - 1][:2], expected, rtol=1e-13, atol=1e-15)


def test_the_primary_gradient_stays_and_no_zero_is_divided_by():
    norms = torch.zeros(3, 4, dtype=torch.float64)
    norms[1, 1], norms[0, 2] = 2.0, 3.0
    factors, _ = metabalance_factors(norms, torch.zeros_like(norms), 0.7, 0.9)
    assert factors.isfinite().all()
    assert factors[0].tolist() == [1.0] * 4
    assert factors[1, 1] == pytest.approx(0.3, abs=1e-15)  # the primary never reaches that tensor


def test_weights_by_hand():
    norms = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    factors = torch.tensor([[4.0, 4.0], [1.0, 9.0]], dtype=torch.float64)
    assert metabalance_weights(norms, factors).tolist() == pytest.approx([4.0, 1.0], rel=1e-15)


def test_weights_are_ratios_of_norms_over_the_encoder():
    steps = random_gradients(1)
    rule = make()
    run(rule, FakeStep(steps))
    alone = [
        by_hand([[steps[0][0], g, [None] * 4]]) - by_hand([[steps[0][0], [None] * 4, [None] * 4]])
        for g in steps[0][1:]
    ]
    norms = [
        np.sqrt(sum((np.array(part) ** 2).sum() for part in g[:2] if part is not None))
        for g in steps[0]
    ]
    expected = [1.0, *(np.sqrt((a**2).sum()) / n for a, n in zip(alone, norms[1:], strict=True))]
    assert rule.weights.tolist() == pytest.approx(expected, rel=1e-12)
    assert list(rule.metrics().values()) == pytest.approx(norms, rel=1e-14)
