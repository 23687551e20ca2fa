"""TorchJD's rules through the adapters: against the library, and in closed form."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from torchjd import aggregation as library

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import WEIGHTINGS
from auxlearn.weighting.torchjd import Aggregation, Scalarization
from tests.weighting.fakes import NAMES, FakeStep, random_gradients, run

#: The library's own function of a Jacobian for each rule.
AGGREGATORS = {
    "pcgrad": library.PCGrad,
    "gradvac": library.GradVac,
    "cagrad": lambda: library.CAGrad(c=0.5),
    "imtl_g": library.IMTLG,
    "aligned_mtl": library.AlignedMTL,
    "fairgrad": lambda: library.FairGrad(alpha=2.0),
    "pcd": library.PCD,
}
SCALARIZATIONS = ("geometric_mean", "imtl_l")
LOSSES = [[2.0, 0.5, 7.0], [1.5, 0.6, 6.0], [1.2, 0.2, 5.0], [1.0, 0.3, 4.0], [0.8, 0.1, 3.0]]


def make(name, **given):
    cls = WEIGHTINGS.get(name)
    return cls(cls.Options(**given), NAMES)


def registered(base):
    classes = ((name, WEIGHTINGS.get(name)) for name in WEIGHTINGS.names())
    return {name for name, cls in classes if issubclass(cls, base)}


def test_every_rule_of_the_library_is_tested_here():
    assert registered(Aggregation) == set(AGGREGATORS)
    assert registered(Scalarization) == set(SCALARIZATIONS)


def jacobian(gradients):
    rows = [np.concatenate([p or [0.0, 0.0] for p in g[:2]]) for g in gradients]
    return torch.tensor(np.array(rows), dtype=torch.float64)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_the_step_is_the_librarys_aggregation_of_the_jacobian(name):
    """Over the shared parameters, up to the scale that the Gram matrix is divided by."""
    steps = random_gradients(4, seed=1)
    rule = make(name)
    aggregator = AGGREGATORS[name]()
    combined, _ = run(rule, FakeStep(steps))
    for step, (found, gradients) in enumerate(zip(combined, steps, strict=True)):
        matrix = jacobian(gradients)
        scale = 1.0
        if rule.scaled:
            scale = float((matrix**2).sum(1).mean().sqrt())
        with rng.seeded(0, name, step):
            expected = aggregator(matrix / scale) * scale
        np.testing.assert_allclose(
            np.concatenate(found[:2]), expected.numpy(), rtol=1e-6, atol=1e-8 * scale
        )


@pytest.mark.parametrize("name", ["gradvac", "pcgrad"])
def test_orders_follow_from_the_seed_of_the_run(name):
    """Among three objectives in conflict the order in which they are turned shows."""
    rows = [[1.0, 0.0], [-0.9, 0.5], [-0.2, -1.0]]
    step = [[row, None, None, None] for row in rows]
    found = set()
    for seed in range(12):
        fake = FakeStep([step])
        fake.seed = seed
        found.add(tuple(run(make(name), fake)[0][0][0]))
    assert len(found) > 1


def test_fairgrad_shares_out_progress_by_its_condition():
    matrix = jacobian(random_gradients(1, seed=1)[0])
    gram = matrix @ matrix.T
    gram /= gram.diagonal().mean()
    for alpha in (1.0, 2.0):
        rule = make("fairgrad", alpha=alpha)
        run(rule, FakeStep(random_gradients(1, seed=1)))
        torch.testing.assert_close(
            gram @ rule.weights, rule.weights ** (-1 / alpha), rtol=1e-5, atol=1e-6
        )


def test_pcd_by_hand():
    """Unit vectors a = (1, 0), b = (-1, 2) / sqrt 5: the nearest d to a with b d >= .1 is
    a + (.1 + 1 / sqrt 5) b, and is then brought to the norm of the primary gradient, 3.
    """
    step = [[[3.0, 0.0], None, None, None], [[-0.5, 1.0], None, None, None]]
    step.append([[1.0, 0.1], None, None, None])
    combined, _ = run(make("pcd", tau=0.1), FakeStep([step]))
    unit = np.array([-1.0, 2.0]) / math.sqrt(5)
    nearest = np.array([1.0, 0.0]) + (0.1 + 1 / math.sqrt(5)) * unit
    assert unit @ nearest == pytest.approx(0.1, abs=1e-15)
    np.testing.assert_allclose(combined[0][0], 3 * nearest / np.hypot(*nearest), rtol=1e-7)


def test_the_geometric_mean_by_hand():
    rule = make("geometric_mean")
    combined, weights = run(rule, FakeStep(random_gradients(5), LOSSES))
    for used, losses in zip(weights, LOSSES, strict=True):
        mean = math.prod(losses) ** (1 / 3)
        assert used == pytest.approx([mean / (3 * loss) for loss in losses], rel=1e-14)
    first = sum(w * np.array(g[0]) for w, g in zip(weights[0], random_gradients(5)[0], strict=True))
    np.testing.assert_allclose(combined[0][0], first, rtol=1e-13)
    # A loss's weight is its head's as well.
    head = weights[0][0] * np.array(random_gradients(5)[0][0][2])
    np.testing.assert_allclose(combined[0][2], head, rtol=1e-15)


def test_imtl_l_minimises_its_objective():
    rule = make("imtl_l", learning_rate=0.1)
    _, weights = run(rule, FakeStep(random_gradients(5), LOSSES))
    factors = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([factors], lr=0.1)
    for used, given in zip(weights, LOSSES, strict=True):
        assert used == pytest.approx(factors.exp().tolist(), rel=1e-12)
        adam.zero_grad()
        (factors.exp() * torch.tensor(given, dtype=torch.float64) - factors).sum().backward()
        adam.step()
    assert weights[-1][2] < 0.8 < 1.2 < weights[-1][1]


def aggregated(name, rows):
    cls = WEIGHTINGS.get(name)
    fake = FakeStep([[[row, None, None, None] for row in rows]])
    return run(cls(cls.Options(), fake.names), fake)[0][0][0]


def test_aggregation_by_hand():
    conflict = [[1.0, 0.0], [-1.0, 1.0]]
    # Each without its part along the other: (1,0) + (1/2)(-1,1), and (-1,1) + (1,0).
    assert aggregated("pcgrad", conflict) == pytest.approx([0.5, 1.5], abs=1e-5)
    assert aggregated("upgrad", conflict) == pytest.approx([0.25, 0.75], rel=1e-6)
    # The shortest vector between the two: 3/5 (1,0) + 2/5 (-1,1) at (1/5, 2/5).
    assert aggregated("mgda", conflict) == pytest.approx([0.2, 0.4], rel=1e-6)
    update = aggregated("imtl_g", conflict)
    assert update[0] == pytest.approx((update[1] - update[0]) / math.sqrt(2), abs=1e-4)


@pytest.mark.parametrize("name", ["pcgrad", "upgrad", "cagrad", "mgda", "aligned_mtl", "imtl_g"])
def test_aggregation_does_not_depend_on_the_scale_and_helps_both(name):
    one = aggregated(name, [[2.0, 1.0], [-1.0, 2.5]])
    other = aggregated(name, [[2e-4, 1e-4], [-1e-4, 2.5e-4]])
    assert [1e4 * value for value in other] == pytest.approx(one, rel=1e-3)
    assert 2 * one[0] + one[1] > 0
    assert -one[0] + 2.5 * one[1] > 0


@pytest.mark.parametrize("name", ["pcgrad", *SCALARIZATIONS])
def test_a_missing_extra_is_one_line(name, monkeypatch):
    module = "scalarization" if name in SCALARIZATIONS else "aggregation"
    monkeypatch.setitem(sys.modules, f"torchjd.{module}", None)
    with pytest.raises(
        ConfigError, match=rf"'{name}' needs an extra .* \"auxlearn\[aggregation\]\""
    ):
        make(name)
