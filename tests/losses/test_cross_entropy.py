"""Cross-entropy and focal loss: smoothing and class weights against torch and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight
from torch import nn

from auxlearn.core.errors import ConfigError
from auxlearn.losses.base import balanced_weights
from auxlearn.losses.cross_entropy import CrossEntropy
from auxlearn.losses.focal import Focal, focal_losses
from tests import helpers
from tests.losses.common import LABELS, batch_of, draws, prepared, random_logits, softmax

LISTED = {"background": 2.0, "method": 0.5, "result": 0.0}


def loss_of(cls, encoder, folder, **options):
    loss, context = prepared(cls, encoder, folder, **options)
    batch = batch_of(context)
    with torch.no_grad():
        return float(loss.loss(encoder, batch, draws())), encoder.classify(batch).double().numpy()


def test_default_is_the_log_loss_of_scikit_learn(tiny_bert, tmp_path):
    value, logits = loss_of(CrossEntropy, tiny_bert, tmp_path)
    assert value == pytest.approx(log_loss(LABELS, softmax(logits)), abs=1e-6)


def test_label_smoothing_is_torchs(tiny_bert, tmp_path):
    value, logits = loss_of(CrossEntropy, tiny_bert, tmp_path, label_smoothing=0.2)
    expected = nn.functional.cross_entropy(
        torch.tensor(logits), torch.tensor(LABELS), label_smoothing=0.2
    )
    assert value == pytest.approx(float(expected), abs=1e-6)
    # The smoothed target spread by hand: 0.2 over all three classes, the gold one included.
    targets = np.full((8, 3), 0.2 / 3)
    targets[np.arange(8), LABELS] += 0.8
    assert value == pytest.approx(-(targets * np.log(softmax(logits))).sum(1).mean(), abs=1e-6)


def test_balanced_weights_are_scikit_learns_in_the_mean_over_examples(tiny_bert, tmp_path):
    value, logits = loss_of(CrossEntropy, tiny_bert, tmp_path, class_weights="balanced")
    weights = compute_sample_weight("balanced", LABELS)
    losses = -np.log(softmax(logits)[np.arange(8), LABELS])
    assert value == pytest.approx((weights * losses).mean(), abs=1e-6)


@pytest.mark.parametrize("cls", [CrossEntropy, Focal])
def test_listed_weights_multiply_each_examples_loss(cls, tiny_bert, tmp_path):
    value, logits = loss_of(cls, tiny_bert, tmp_path, class_weights=LISTED)
    gold = softmax(logits)[np.arange(8), LABELS]
    losses = -np.log(gold) * ((1 - gold) ** 2 if cls is Focal else 1)
    weights = np.array([2.0, 0.5, 0.0])[list(LABELS)]
    assert value == pytest.approx((weights * losses).mean(), abs=1e-6)


FAULTS = [
    ({"class_weights": {"background": 1, "method": 1}}, "list every label once"),
    ({"class_weights": {**LISTED, "other": 1}}, "list every label once"),
    ({"class_weights": {**LISTED, "result": -1}}, "at least 0"),
    ({"class_weights": dict.fromkeys(helpers.LABELS, 0)}, "one is more than 0"),
]


@pytest.mark.parametrize(("options", "message"), FAULTS)
@pytest.mark.parametrize("cls", [CrossEntropy, Focal])
def test_weights_that_do_not_fit_the_labels(cls, options, message, tiny_bert, tmp_path):
    with helpers.one_line(ConfigError, message):
        loss_of(cls, tiny_bert, tmp_path, **options)


def test_a_class_without_examples_has_no_part_in_balanced_weights():
    found = balanced_weights(torch.tensor([0, 1, 1]), 3)
    np.testing.assert_allclose(
        found[:2], compute_class_weight("balanced", classes=np.arange(2), y=[0, 1, 1])
    )
    assert found[2] == 1


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0, 5.0])
def test_focal_losses_by_the_formula(gamma):
    logits, labels = random_logits()
    gold = softmax(logits)[np.arange(6), labels]
    expected = -((1 - gold) ** gamma) * np.log(gold)
    assert focal_losses(logits, labels, gamma).numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_gradient_by_finite_differences(gamma):
    logits, labels = random_logits()
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: focal_losses(x, labels, gamma), (logits,))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_loss_of_a_certain_classifier_has_a_finite_gradient(gamma):
    logits = torch.tensor([[200.0, 0.0, -10.0], [0.0, 200.0, 0.0]], requires_grad=True)
    focal_losses(logits, torch.tensor([0, 0]), gamma).sum().backward()
    assert logits.grad.isfinite().all()
