"""Smooth Tchebycheff weights against TorchJD's scalarization, and their limits."""

from __future__ import annotations

import pytest
import torch
from torchjd.scalarization import STCH

from auxlearn.weighting.stch import SmoothTchebycheff, SmoothTchebycheffOptions, stch_weights
from tests.weighting.fakes import NAMES, FakeStep, random_gradients, run

LOSSES = [[2.0, 0.5, 7.0], [1.5, 0.6, 6.0], [1.2, 0.2, 5.0], [1.0, 0.3, 4.0], [0.8, 0.1, 3.0]]


def make(**given):
    return SmoothTchebycheff(SmoothTchebycheffOptions(**given), NAMES)


def values(*given):
    return torch.tensor(given, dtype=torch.float64)


@pytest.mark.parametrize("mu", [0.01, 0.1, 1.0, 3.0])
def test_the_derivative_of_torchjds_scalarization(mu):
    losses, nadir = values(2.0, 0.5, 7.0).requires_grad_(), values(2.1, 0.45, 6.9)
    scalar = 3 * STCH(mu, weights=torch.ones(3))((losses / nadir).log())
    (expected,) = torch.autograd.grad(scalar, losses)
    found = stch_weights(losses.detach(), nadir, mu)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-300)


def test_limits_of_mu():
    losses, nadir = values(2.0, 0.5, 7.0), values(1.0, 1.0, 1.0)
    # Small: the worst alone. Large: every log loss alike. One: losses relative to the nadir.
    assert stch_weights(losses, nadir, 1e-3).tolist() == pytest.approx([0, 0, 3 / 7], abs=1e-12)
    assert stch_weights(losses, nadir, 1e9).tolist() == pytest.approx(
        [1 / 2.0, 1 / 0.5, 1 / 7.0], rel=1e-8
    )
    assert stch_weights(losses, nadir, 1.0).tolist() == pytest.approx([3 / 9.5] * 3, rel=1e-14)


def test_log_losses_first_and_then_the_mean_of_the_window():
    rule = make(mu=0.5, warmup_steps=1, window=2)
    combined, weights = run(rule, FakeStep(random_gradients(5), LOSSES))
    for step in range(3):
        assert weights[step] == pytest.approx([1 / loss for loss in LOSSES[step]], rel=1e-15)
    nadir = (values(*LOSSES[1]) + values(*LOSSES[2])) / 2
    for step in (3, 4):
        expected = stch_weights(values(*LOSSES[step]), nadir, 0.5)
        assert weights[step] == expected.tolist()
        by_hand = sum(
            w * values(*g[0]) for w, g in zip(expected, random_gradients(5)[step], strict=True)
        )
        torch.testing.assert_close(values(*combined[step][0]), by_hand)
