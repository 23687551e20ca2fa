"""R-Drop and the divergences, against scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from auxlearn.core import rng
from auxlearn.losses import base
from auxlearn.losses.r_drop import RDrop, r_drop_loss
from tests.losses.common import batch_of, draws, prepared, random_logits, softmax


@pytest.fixture
def two():
    return random_logits(1)[0], random_logits(2)[0]


def logs(pair):
    return [one.log_softmax(-1) for one in pair]


def test_divergences_are_scipys(two):
    p, q = (softmax(one) for one in two)
    m = (p + q) / 2
    expected = {
        "kl_divergence": entropy(p, q, axis=1),
        "symmetric_kl": (entropy(p, q, axis=1) + entropy(q, p, axis=1)) / 2,
        "jensen_shannon": jensenshannon(p, q, axis=1) ** 2,
        "reversed_jensen_shannon": (entropy(m, p, axis=1) + entropy(m, q, axis=1)) / 2,
    }
    for name, values in expected.items():
        found = getattr(base, name)(*logs(two)).numpy()
        assert found == pytest.approx(values, abs=1e-10), name


def test_only_one_of_the_two_is_bounded():
    certain = torch.tensor([[50.0, 0.0]], dtype=torch.float64)
    pair = logs((certain, -certain))
    assert float(base.jensen_shannon(*pair)) == pytest.approx(math.log(2))
    assert float(base.reversed_jensen_shannon(*pair)) > 20


@pytest.mark.parametrize(
    "name", ["symmetric_kl", "jensen_shannon", "reversed_jensen_shannon", "kl_divergence"]
)
def test_gradients_reach_both_distributions(name, two):
    one, other = (x.clone().requires_grad_() for x in two)
    divergence = getattr(base, name)
    assert torch.autograd.gradcheck(lambda a, b: divergence(*logs((a, b))), (one, other))


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 4.0])
def test_the_sum_of_cross_entropies_and_half_of_both_divergences(weight, two):
    p, q = (softmax(one) for one in two)
    labels = random_logits(1)[1]
    rows = np.arange(len(labels))
    expected = np.mean(
        -np.log(p[rows, labels])
        - np.log(q[rows, labels])
        + weight * 0.5 * (entropy(p, q, axis=1) + entropy(q, p, axis=1))
    )
    assert float(r_drop_loss(*two, labels, weight)) == pytest.approx(expected, abs=1e-10)


def test_two_dropout_passes(tiny_bert, tmp_path):
    loss, context = prepared(RDrop, tiny_bert, tmp_path, weight=0.5)
    batch = batch_of(context)
    tiny_bert.train()
    with rng.seeded(0, "dropout"), torch.no_grad():
        value = float(loss.loss(tiny_bert, batch, draws()))
    with rng.seeded(0, "dropout"), torch.no_grad():
        two = [tiny_bert.classify(batch).double() for _ in range(2)]
    assert not torch.equal(*two)
    assert value == pytest.approx(float(r_drop_loss(*two, batch.labels, 0.5)), abs=1e-6)
