"""GradNorm against autograd of its own loss, and named properties."""

from __future__ import annotations

import pytest
import torch

from auxlearn.weighting.gradnorm import (
    MIN_WEIGHT,
    GradNorm,
    GradNormOptions,
    gradnorm_weight_gradient,
    renormalised,
)
from tests.weighting.network import NAMES, Network, NetworkStep, sgd


def make(**given):
    return GradNorm(GradNormOptions(**given), NAMES)


def gradnorm_loss(weights, norms, losses, initial_losses, alpha):
    """Algorithm 1: the distance of the weighted norms from their targets, which are constants."""
    ratio = losses / initial_losses
    scaled = weights * norms
    target = (scaled.mean() * (ratio / ratio.mean()) ** alpha).detach()
    return (scaled - target).abs().sum()


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.5])
def test_the_gradient_is_that_of_the_loss(alpha):
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        weights, norms, losses, initial = torch.rand(4, 3, generator=generator).double() + 0.1
        weights.requires_grad_()
        loss = gradnorm_loss(weights, norms, losses, initial, alpha)
        (expected,) = torch.autograd.grad(loss, weights)
        found = gradnorm_weight_gradient(weights.detach(), norms, losses, initial, alpha)
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


def test_the_gradient_by_hand():
    """A large gradient loses weight; a loss that decreased less gets a larger target."""
    ones = torch.ones(2, dtype=torch.float64)
    norms, losses = (torch.tensor(one, dtype=torch.float64) for one in ([4.0, 1.0], [0.5, 1.0]))
    assert gradnorm_weight_gradient(ones, norms, ones, ones, 0.0).tolist() == [4.0, -1.0]
    assert gradnorm_weight_gradient(ones, ones, losses, ones, 1.0).tolist() == [1.0, -1.0]


def test_renormalised_weights_sum_to_their_number_and_stay_positive():
    found = renormalised(torch.tensor([-0.5, 1.0, 3.0], dtype=torch.float64))
    assert float(found.sum()) == pytest.approx(3, abs=1e-14)
    assert float(found[0]) == pytest.approx(MIN_WEIGHT * 3 / 4.0001, rel=1e-12)


def test_steps_by_autograd():
    """Norms are over the whole encoder; the loss and its derivative are autograd's."""
    fake = NetworkStep(Network(), sgd, 0.0)
    recorded = []

    def gradients():
        found = NetworkStep.gradients(fake)
        losses = fake.network.losses(fake.parameters, fake.number)
        fake.losses = {n: v.detach() for n, v in zip(NAMES, losses, strict=True)}
        norms = [torch.cat([g.flatten() for g in one[:2]]).norm() for one in found]
        recorded.append((torch.stack(norms), torch.stack(list(fake.losses.values()))))
        return found

    fake.gradients = gradients
    rule = make(alpha=0.7, learning_rate=0.1)
    weights = torch.ones(3, dtype=torch.float64, requires_grad=True)
    adam, initial = torch.optim.Adam([weights], lr=0.1), None
    for number in range(5):
        fake.number = number
        rule.step(fake)
        norms, losses = recorded[-1]
        initial = losses if initial is None else initial
        adam.zero_grad()
        gradnorm_loss(weights, norms, losses, initial, 0.7).backward()
        adam.step()
        with torch.no_grad():
            weights.mul_(3 / weights.sum())
        torch.testing.assert_close(rule.weights, weights.detach(), rtol=1e-9, atol=0)
    assert rule.metrics()["norm/primary"] == pytest.approx(float(recorded[-1][0][0]), rel=1e-12)


def test_progress_is_relative_to_the_losses_of_the_very_first_step():
    """The weights are held fixed during the warm-up; the initial losses are kept nevertheless."""
    fake = NetworkStep(Network(), sgd, 0.0)
    rule = make(warmup_steps=2)
    seen = []
    for fake.number in range(4):
        values = fake.network.losses(fake.parameters, fake.number)
        fake.losses = {n: v.detach() for n, v in zip(NAMES, values, strict=True)}
        seen.append(torch.stack(list(fake.losses.values())))
        rule.step(fake)
        again = make(warmup_steps=2)
        again.load_state_dict({k: v.clone() for k, v in rule.state_dict().items()})
        assert torch.equal(again.state_dict()["first"], seen[0])
    assert not torch.equal(seen[0], seen[2])
