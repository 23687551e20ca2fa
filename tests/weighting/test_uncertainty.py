"""Uncertainty weighting against autograd of Kendall's objective, and its minimum."""

from __future__ import annotations

import pytest
import torch

from auxlearn.weighting.uncertainty import (
    Uncertainty,
    UncertaintyOptions,
    uncertainty_gradient,
    uncertainty_weights,
)
from tests.weighting.fakes import NAMES, run_on_losses


def make(**given):
    return Uncertainty(UncertaintyOptions(**given), NAMES)


def kendalls_objective(log_variances, losses):
    """Equation 10, in the variances themselves: L / sigma^2 + log sigma."""
    variances = log_variances.exp()
    return (losses / variances + variances.sqrt().log()).sum()


def test_the_gradient_is_that_of_kendalls_objective():
    log_variances = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64, requires_grad=True)
    losses = torch.tensor([0.5, 2.0, 7.0], dtype=torch.float64)
    (expected,) = torch.autograd.grad(kendalls_objective(log_variances, losses), log_variances)
    found = uncertainty_gradient(log_variances.detach(), losses)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-15)


def test_weights_are_the_derivatives_of_the_objective_by_the_losses():
    log_variances = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
    losses = torch.tensor([0.5, 2.0, 7.0], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(kendalls_objective(log_variances, losses), losses)
    torch.testing.assert_close(uncertainty_weights(log_variances), expected, rtol=1e-13, atol=0)


def test_the_log_variances_are_learned_by_adam():
    losses = [[0.5, 2.0, 1.0], [0.4, 2.1, 0.9], [0.3, 1.9, 1.1]]
    used = run_on_losses(make(learning_rate=0.1), losses)
    log_variances = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([log_variances], lr=0.1)
    for given, weights in zip(losses, used, strict=True):
        assert weights == pytest.approx((-log_variances).exp().tolist(), abs=1e-12)
        adam.zero_grad()
        kendalls_objective(log_variances, torch.tensor(given, dtype=torch.float64)).backward()
        adam.step()
    assert used[-1][1] < used[-1][2] < used[-1][0]
