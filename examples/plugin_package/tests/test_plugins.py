"""The plug-ins pass auxlearn's checks, by the names that the entry points give them."""

import pytest
import torch
from auxlearn_extras.losses import GeneralizedCrossEntropy
from auxlearn_extras.weightings import LinearDecay

from auxlearn.testing import check_loss, check_task, check_weighting


def test_task():
    check_task("frequent_words", {"words": 5})


def test_loss():
    check_loss("generalized_cross_entropy")


def test_weighting():
    check_weighting("linear_decay")


def test_the_loss_is_near_cross_entropy_for_a_small_exponent():
    class Encoder:
        def classify(self, batch):
            return torch.tensor([[0.3, -1.0, 0.5], [2.0, 0.1, -0.4]])

    class Batch:
        targets = torch.tensor([2, 0])

    options = GeneralizedCrossEntropy.Options(q=1e-3)
    loss = GeneralizedCrossEntropy(options).loss(Encoder(), Batch(), torch.Generator())
    expected = torch.nn.functional.cross_entropy(Encoder().classify(None), Batch.targets)
    assert loss.item() == pytest.approx(expected.item(), rel=2e-3)


def test_the_share_falls_to_zero():
    weighting = LinearDecay(LinearDecay.Options(start=0.6), ("primary", "a", "b"))
    assert weighting.weights.tolist() == pytest.approx([0.4, 0.3, 0.3])
    weighting._left = 0.5
    assert weighting.weights.tolist() == pytest.approx([0.7, 0.15, 0.15])
