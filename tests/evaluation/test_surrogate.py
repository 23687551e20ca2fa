"""Surrogates of metrics: limits, gradients by hand, and what they do not reward."""

import pytest
import torch
from sklearn.metrics import accuracy_score

from auxlearn.kinds.choose import CLASSIFICATION


def random_logits(examples=12, classes=3):
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(examples, classes, generator=generator, dtype=torch.float64)
    return logits, torch.arange(examples) % classes


def test_certain_predictions_have_the_accuracy_itself():
    logits, labels = random_logits()
    predicted = logits.argmax(-1).tolist()
    certain = 1e3 * torch.nn.functional.one_hot(logits.argmax(-1), 3).double()
    accuracy = accuracy_score(labels.tolist(), predicted)
    assert 0 < accuracy < 1
    found = CLASSIFICATION.smooth(certain, labels, "accuracy")
    assert 1 - float(found) == pytest.approx(accuracy, abs=1e-12)


def test_the_gradient_of_smooth_accuracy_by_hand():
    """Of a mean of p_y by the logits: p_y (1_y - p) over the number of examples."""
    logits, labels = random_logits()
    logits.requires_grad_()
    (found,) = torch.autograd.grad(CLASSIFICATION.surrogate(logits, labels, "accuracy"), logits)
    p = logits.detach().softmax(-1)
    right = p.gather(-1, labels[:, None])
    truth = torch.nn.functional.one_hot(labels, 3)
    torch.testing.assert_close(found, -right * (truth - p) / len(labels), rtol=1e-12, atol=1e-16)
    assert float((len(labels) * found).abs().max()) <= 0.25


def test_less_confidence_lowers_the_cross_entropy_of_an_overconfident_model_alone():
    """Three examples of four are right, all are nearly certain: the metrics are at their best."""
    labels = torch.tensor([0, 1, 0, 1])
    signs = torch.tensor([[1, -1], [-1, 1], [1, -1], [1, -1]], dtype=torch.float64)
    scale = torch.tensor(4.0, dtype=torch.float64, requires_grad=True)

    def slope(surrogate):
        (found,) = torch.autograd.grad(
            CLASSIFICATION.surrogate(scale * signs, labels, surrogate), scale
        )
        return float(found)

    assert slope("cross_entropy") > 0.1
    assert slope("accuracy") < 0
    assert slope("macro_f1") < 0
