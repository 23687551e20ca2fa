"""The gradient cosine gate: hand-derived gates and the paper's guarantee."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from auxlearn.weighting.gcs import GradientCosine, GradientCosineOptions, gcs_gates
from tests.weighting.fakes import NAMES, FakeStep, random_gradients, run


def gram(*vectors):
    matrix = torch.tensor(vectors, dtype=torch.float64)
    return matrix @ matrix.T


def test_gates_by_hand():
    # Angles with (2, 0): 60 degrees, 135 degrees, 90 degrees.
    found = gram((2.0, 0.0), (1.5, 1.5 * math.sqrt(3)), (-4.0, 4.0), (0.0, 7.0))
    assert gcs_gates(found, "weighted").tolist() == pytest.approx([1, 0.5, 0, 0], abs=1e-15)
    assert gcs_gates(found, "unweighted").tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("version", ["weighted", "unweighted"])
def test_a_gradient_of_zero_gets_no_weight(version):
    assert gcs_gates(gram((1.0, 0.0), (0.0, 0.0), (1.0, 0.0)), version).tolist() == [1, 0, 1]
    assert gcs_gates(gram((0.0, 0.0), (1.0, 0.0), (1.0, 1.0)), version).tolist() == [1, 0, 0]


@pytest.mark.parametrize("version", ["weighted", "unweighted"])
def test_a_step(version):
    """Gates over the encoder only, in numpy."""
    steps = random_gradients(6, seed=2)
    rule = GradientCosine(GradientCosineOptions(version=version), NAMES)
    combined, weights = run(rule, FakeStep(steps))
    gated = 0
    for found, gradients, used in zip(combined, steps, weights, strict=True):
        flat = [np.concatenate([p or [0.0, 0.0] for p in g[:2]]) for g in gradients]
        cosines = [v @ flat[0] / np.sqrt((v @ v) * (flat[0] @ flat[0])) for v in flat]
        gates = [max(0, c) if version == "weighted" else float(c > 0) for c in cosines]
        assert used == pytest.approx(gates, rel=1e-12)
        total = sum(g * v for g, v in zip(gates, flat, strict=True))
        np.testing.assert_allclose(np.concatenate(found[:2]), total, rtol=1e-12, atol=1e-14)
        gated += gates.count(0)
    assert gated > 2
    assert rule.metrics()["norm/primary"] == pytest.approx(np.sqrt(flat[0] @ flat[0]), rel=1e-14)
