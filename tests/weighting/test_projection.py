"""Projections: no conflicts at any ratio of norms, and the shortest combination."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torchjd import aggregation as library
from torchjd.linalg import QuadprogProjector

from auxlearn.core.registry import WEIGHTINGS
from auxlearn.weighting.projection import dual_cone_weights, least_norm_weights

CASES = 300


def weigh(name, gram):
    cls = WEIGHTINGS.get(name)
    names = tuple(f"o{number}" for number in range(len(gram)))
    return cls(cls.Options(), names).weigh(gram, None)


def gradients(seed, scales=None):
    """Gradients of 2 to 6 objectives, of very different norms unless given, some parallel."""
    random = np.random.default_rng(seed)
    count = len(scales or ()) or int(random.integers(2, 7))
    rows = random.normal(size=(count, int(random.integers(2, 9))))
    rows -= random.uniform(0, 1.5) * rows[0] * (np.arange(count) > 0)[:, None]  # in conflict
    if scales is None:
        scales = 10 ** random.uniform(-3, 3, size=count)
        if random.random() < 0.2:
            rows[-1] = -2 * rows[0]
    rows *= np.array(scales)[:, None] / np.linalg.norm(rows, axis=1, keepdims=True)
    return torch.from_numpy(rows)


@pytest.mark.parametrize("scales", [None, (1, 20, 10), (1, 28), (1000, 1, 1)])
@pytest.mark.parametrize("name", ["upgrad", "dualproj"])
def test_no_step_conflicts_with_any_gradient(name, scales):
    for seed in range(CASES):
        rows = gradients(seed, scales)
        found = weigh(name, rows @ rows.T) @ rows
        norms = rows.norm(dim=1)
        assert ((rows @ found) / norms >= -1e-9 * norms.max()).all(), seed
        # Relative to the square of the gradient's own norm, as for the primary task.
        if scales is not None:
            assert float((rows @ found / norms**2).min()) > -1e-7, seed


def shortest(gram):
    """Smallest squared norm by a solver of general constrained problems."""
    return minimize(
        lambda v: v @ gram @ v,
        np.full(len(gram), 1 / len(gram)),
        jac=lambda v: 2 * gram @ v,
        bounds=[(0, 1)] * len(gram),
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    ).fun


def test_the_shortest_combination_is_that_of_a_general_solver():
    worse = 0
    for seed in range(CASES):
        rows = gradients(seed, (1.0, 3.0, 0.4, 2.0)[: 2 + seed % 3])
        gram = rows @ rows.T
        weights = weigh("mgda", gram)
        assert float(weights.min()) >= 0
        assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
        found = shortest(gram.numpy())
        worse += float(weights @ gram @ weights) > found + 1e-8
        # Optimal: no gradient is shorter along the combination than the combination itself.
        combined = weights @ rows
        assert float((rows @ combined).min()) >= float(combined @ combined) - 1e-9
    assert worse == 0


def test_the_weights_do_not_depend_on_the_solver():
    """Against the library's, with a ridge that is small beside every gradient."""
    projector = QuadprogProjector(norm_eps=0.0, reg_eps=1e-12)
    rules = {"upgrad": library.UPGradWeighting, "dualproj": library.DualProjWeighting}
    for seed in range(60):
        rows = gradients(seed, (1.0, 3.0, 2.0)) + 0.0
        rows = torch.cat([rows, torch.eye(3).double()], 1)  # linearly independent
        for name, rule in rules.items():
            expected = rule(projector=projector)(rows @ rows.T)
            torch.testing.assert_close(weigh(name, rows @ rows.T), expected, rtol=1e-5, atol=1e-7)


def test_gradients_of_zero_and_nan():
    rows = torch.tensor([[0.0, 0.0], [1.0, 2.0], [-1.0, 1.0]], dtype=torch.float64)
    for name in ("upgrad", "dualproj", "mgda"):
        assert weigh(name, rows @ rows.T).isfinite().all()
        assert weigh(name, torch.zeros(3, 3).double()).isfinite().all()
        assert weigh(name, rows @ rows.T * torch.nan).isnan().all()
    assert weigh("mgda", rows @ rows.T).tolist() == pytest.approx([1, 0, 0], abs=1e-12)


def test_by_hand():
    gram = torch.tensor([[1.0, -1.0], [-1.0, 2.0]], dtype=torch.float64)  # (1, 0) and (-1, 1)
    assert dual_cone_weights(gram, torch.tensor([1.0, 0.0]).double()).tolist() == pytest.approx(
        [1, 0.5], abs=1e-12
    )
    assert least_norm_weights(gram).tolist() == pytest.approx([0.6, 0.4], abs=1e-12)
