"""Dynamic weight average: hand-derived weights and named properties."""

from __future__ import annotations

import math

import pytest
import torch

from auxlearn.weighting.dwa import DynamicWeightAverage, DynamicWeightAverageOptions, dwa_weights
from tests.weighting.fakes import NAMES, run_on_losses


def make(**given):
    return DynamicWeightAverage(DynamicWeightAverageOptions(**given), NAMES)


def values(*given):
    return torch.tensor(given, dtype=torch.float64)


def test_weights_by_hand():
    # Rates 1/2, 1, 2 over T = 1 / log 2: their softmax is in the ratio of 2 to these powers.
    found = dwa_weights(values(1.0, 3.0, 8.0), values(2.0, 3.0, 4.0), 1 / math.log(2))
    powers = [2**0.5, 2.0, 4.0]
    assert found.tolist() == pytest.approx([3 * p / sum(powers) for p in powers], rel=1e-14)


def test_a_loss_that_was_zero_gives_numbers():
    assert dwa_weights(values(0.0, 1.0), values(0.0, 1.0), 2.0).isfinite().all()


def test_windows_by_hand():
    losses = [[2.0, 4.0, 1.0], [2.0, 2.0, 1.0], [1.0, 2.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 1.0]]
    used = run_on_losses(make(window=2, temperature=0.5), losses)
    assert used[:4] == [[1.0] * 3] * 4
    rates = values(1.0 / 2.0, 2.5 / 3.0, 1.0)
    assert used[4] == pytest.approx((3 * (rates / 0.5).softmax(0)).tolist(), abs=1e-12)
