"""Random weights: on the simplex, by seed and step, as often large for one as for another."""

from __future__ import annotations

import torch
from torchjd.scalarization import Random

from auxlearn.core import rng
from auxlearn.weighting.random import RandomWeights, random_weights
from tests.weighting.fakes import NAMES, FakeStep, run

STEPS = [[[[1.0, 0.0]] * 4, [[0.0, 1.0]] * 4, [[0.0, 0.0]] * 4]] * 6


def make():
    return RandomWeights(RandomWeights.Options(), NAMES)


def test_weights_are_those_of_torchjd():
    """The derivative of TorchJD's scalar by the losses, from the same random numbers."""
    losses = torch.rand(5, dtype=torch.float64, requires_grad=True)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        (expected,) = torch.autograd.grad(Random()(losses), losses)
    found = random_weights(5, torch.Generator().manual_seed(11))
    torch.testing.assert_close(found, expected, rtol=1e-15, atol=0)


def test_weights_sum_to_one_and_favour_none():
    generator = torch.Generator().manual_seed(0)
    many = torch.stack([random_weights(4, generator) for _ in range(20_000)])
    torch.testing.assert_close(many.sum(1), torch.ones(20_000, dtype=torch.float64))
    assert many.min() > 0
    # The standard deviation of a weight is .17: the mean of 20,000 lies within .005 of 1/4.
    assert (many.mean(0) - 0.25).abs().max() < 0.005


def test_weights_follow_from_the_seed_and_the_step():
    before = torch.random.get_rng_state()
    combined, weights = run(make(), FakeStep(STEPS))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert run(make(), FakeStep(STEPS)) == (combined, weights)
    assert len({tuple(used) for used in weights}) == len(STEPS)
    other = FakeStep(STEPS)
    other.seed = 1
    assert run(make(), other)[1] != weights
    expected = random_weights(3, rng.generator(0, "random", 4)).tolist()
    assert weights[4] == expected
    assert combined[4][0] == expected[:2]  # the gradient of the weighted losses, heads included
    assert combined[4][3] == expected[:2]


def test_no_global_random_state_is_touched():
    before = torch.random.get_rng_state()
    run(make(), FakeStep(STEPS))
    assert torch.equal(torch.random.get_rng_state(), before)
