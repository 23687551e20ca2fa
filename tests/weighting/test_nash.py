"""Nash-MTL: the bargaining condition, closed forms, and a general-purpose solver."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from auxlearn.weighting.nash import NashMTL, nash_weights
from tests.weighting.fakes import NAMES, FakeStep, random_gradients, run


def gram(seed, count=3, size=6):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, size, generator=generator, dtype=torch.float64)
    matrix = vectors @ vectors.T
    return matrix / matrix.diagonal().mean()


def test_two_gradients_in_closed_form():
    # a w1 + b w2 = 1 / w1 and b w1 + c w2 = 1 / w2 give w1^2 a = w2^2 c.
    a, b, c = 1.5, -0.4, 0.5
    w1 = 1 / math.sqrt(a + b * math.sqrt(a / c))
    found = nash_weights(torch.tensor([[a, b], [b, c]], dtype=torch.float64), ridge=0.0)
    assert found.tolist() == pytest.approx([w1, w1 * math.sqrt(a / c)], rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_every_weighted_gradient_has_the_same_product_with_the_step(seed):
    matrix = gram(seed, count=2 + seed % 5)
    weights = nash_weights(matrix, ridge=0.0)
    assert (weights > 0).all()
    products = weights * (matrix @ weights)
    torch.testing.assert_close(products, torch.ones_like(products), rtol=1e-9, atol=0)


@pytest.mark.parametrize("seed", range(5))
def test_against_a_general_purpose_solver(seed):
    matrix = gram(seed).numpy()

    def objective(logs):
        weights = np.exp(logs)
        return weights @ matrix @ weights / 2 - logs.sum(), weights * (matrix @ weights) - 1

    solved = minimize(objective, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-10})
    found = nash_weights(torch.from_numpy(matrix), ridge=0.0)
    np.testing.assert_allclose(found.numpy(), np.exp(solved.x), rtol=1e-6)


def test_a_gradient_of_zero_bargains_with_none():
    matrix = torch.diag(torch.tensor([4.0, 0.0, 1.0], dtype=torch.float64))
    found = nash_weights(matrix, ridge=0.0)
    assert found.tolist() == pytest.approx([math.sqrt(5 / 3) / 2, 1.0, math.sqrt(5 / 3)], rel=1e-12)


def test_orthogonal_gradients_get_the_inverse_of_their_norms():
    found = nash_weights(torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64)), ridge=0.0)
    # Divided by the mean of the diagonal, 2.5.
    assert found.tolist() == pytest.approx([math.sqrt(2.5) / 2, math.sqrt(2.5)], rel=1e-12)


@pytest.mark.parametrize(
    "vectors",
    [
        [[1.0, 0.0], [-1.0, 0.0]],
        [[1.0, 2.0], [1.0, 2.0]],
        [[1.0, 0.0], [0.0, 0.0]],
        [[0.0, 0.0], [0.0, 0.0]],
        [[1e-9, 0.0], [1e3, 1e3]],
    ],
)
def test_gradients_without_a_bargain(vectors):
    matrix = torch.tensor(vectors, dtype=torch.float64)
    weights = nash_weights(matrix @ matrix.T)
    assert weights.isfinite().all()
    assert (weights > 0).all()


def test_opposite_gradients_cancel():
    weights = nash_weights(torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64))
    assert float(weights[0] - weights[1]) == pytest.approx(0, abs=1e-6)


def test_a_step():
    steps = random_gradients(4)
    rule = NashMTL(NashMTL.Options(), NAMES)
    combined, weights = run(rule, FakeStep(steps))
    for found, gradients, used in zip(combined, steps, weights, strict=True):
        flat = [np.concatenate([p or [0.0, 0.0] for p in g[:2]]) for g in gradients]
        total = np.concatenate(found[:2])
        np.testing.assert_allclose(
            total, sum(w * v for w, v in zip(used, flat, strict=True)), rtol=1e-12
        )
        products = [w * (v @ total) for w, v in zip(used, flat, strict=True)]
        np.testing.assert_allclose(products, np.full(3, np.mean(products)), rtol=1e-5)  # the ridge
