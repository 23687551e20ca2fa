"""Losses of exactly zero, which have no gradient, leave the weights of all others as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from auxlearn.core.registry import WEIGHTINGS
from tests.weighting.fakes import NAMES, FakeStep, run

#: Rules whose weights depend on logarithms or quotients of losses, without random choices.
RULES = {
    "geometric_mean": {},
    "imtl_l": {},
    "famo": {},
    "stch": {"warmup_steps": 1, "window": 1},
    "dwa": {"window": 1},
    "ol_aux": {},
    "uncertainty": {},
}
STEPS = 8


def weights_with(name, losses):
    """Weights after each step, and the combined gradients; a loss of zero has no gradient."""
    cls = WEIGHTINGS.get(name)
    none = [0.0, 0.0]
    gradients = [
        [[[1.0, 0.5], none, none, none]]
        + [[none if one == 0 else [0.3, -0.2], none, none, none] for one in row[1:]]
        for row in losses
    ]
    after = [[0.95 * one for one in row] for row in losses]
    rule = cls(cls.Options(**RULES[name]), NAMES)
    combined, weights = run(rule, FakeStep(gradients, losses, after))
    return np.array(weights), np.array([one[0] for one in combined])


@pytest.mark.parametrize("name", RULES)
def test_the_weights_stay_finite_and_the_primary_task_keeps_its_own(name):
    usual = [[0.7, 0.5, 0.6]] * STEPS
    plain, _ = weights_with(name, usual)
    for zeros in ([0.7, 0.0, 0.6], [0.7, 0.0, 0.0]):
        losses = [zeros if step in (0, 2, 4, 7) else row for step, row in enumerate(usual)]
        weights, combined = weights_with(name, losses)
        assert np.isfinite(weights).all()
        assert np.isfinite(combined).all()
        assert weights.max() < 10 * plain.max(), weights
        assert (weights[:, 0] > 0.3 * plain[:, 0].min()).all(), weights


@pytest.mark.parametrize("name", RULES)
def test_all_losses_may_be_zero(name):
    weights, combined = weights_with(name, [[0.0, 0.0, 0.0]] * STEPS)
    assert np.isfinite(weights).all()
    assert np.isfinite(combined).all()


def test_the_logit_of_a_loss_of_zero_stays():
    from auxlearn.weighting.famo import famo_logit_gradient

    logits = torch.tensor([0.1, -0.4, 0.3], dtype=torch.float64)
    before, after = torch.tensor([[0.7, 0.0, 0.6], [0.5, 0.0, 0.58]], dtype=torch.float64)
    found = famo_logit_gradient(logits, before, after)
    pair = famo_logit_gradient(logits[[0, 2]], before[[0, 2]], after[[0, 2]])
    assert found.tolist() == pytest.approx([float(pair[0]), 0, float(pair[1])], abs=1e-12)
