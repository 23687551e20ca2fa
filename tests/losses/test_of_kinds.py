"""Losses of several labels, tags and numbers against torch, scikit-learn and formulas by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import LOSSES
from auxlearn.core.validation import validate
from auxlearn.data.dataset import Split
from auxlearn.kinds.choose import KINDS
from auxlearn.kinds.words import NO_TAG

NAMES = ("x", "y", "z")
LISTED = {"x": 2.0, "y": 0.5, "z": 3.0}
LABELS = {
    "multi_label": [(0, 1), (), (1,), (1, 2), (0, 1, 2)],
    "token_classification": [(0, 0, 1), (2,), (0, 1)],
    "regression": [0.5, -2.0, 3.0, 0.25],
}


def case(kind, seed=0):
    """Random logits in double precision, and targets; of words with tokens that begin none."""
    draws = torch.Generator().manual_seed(seed)
    targets = KINDS[kind].targets(LABELS[kind], 3)
    if kind == "token_classification":
        targets = torch.tensor([[NO_TAG, 0, 0, NO_TAG, 1], [2, 0, 1, NO_TAG, NO_TAG]])
    shape = (*targets.shape, 1 if kind == "regression" else 3)
    shape = targets.shape if kind == "multi_label" else shape
    logits = torch.randn(shape, generator=draws, dtype=torch.float64).requires_grad_()
    return logits, targets.double() if targets.is_floating_point() else targets


def loss_of(name, kind, logits, targets, **options):
    cls = LOSSES.get(name)
    loss = cls(validate(cls.Options, options, name))
    texts = tuple("a " * 3 for _ in LABELS[kind])
    split = Split("train", texts, tuple(LABELS[kind]), NAMES, kind=KINDS[kind])
    loss.prepare(SimpleNamespace(split=split, device="cpu"))
    encoder = SimpleNamespace(kind=KINDS[kind], classify=lambda batch: logits)
    return loss.loss(encoder, SimpleNamespace(targets=targets), None)


def words_of(logits, targets):
    here = targets.flatten() != NO_TAG
    return logits.detach().flatten(0, 1)[here], targets.flatten()[here]


@pytest.mark.parametrize(
    "kind", ["multi_label", "token_classification", "dependency", "regression"]
)
def test_the_default_is_the_loss_of_the_kind(kind):
    if kind == "dependency":
        draws = torch.Generator().manual_seed(0)
        logits = torch.randn(1, 4, 4, 3, generator=draws)
        targets = torch.tensor([[[NO_TAG] * 3, [1, 0, 0], [2, 1, 1], [3, 1, 1]]])
        LABELS.setdefault(kind, [((0, 0), (1, 1), (1, 1))])
    else:
        logits, targets = case(kind)
    expected = KINDS[kind].loss(logits, targets)
    assert loss_of("cross_entropy", kind, logits, targets).equal(expected)


def test_the_weight_of_a_label_is_torchs_of_positives():
    logits, targets = case("multi_label")
    found = loss_of("cross_entropy", "multi_label", logits, targets, class_weights=LISTED)
    expected = nn.functional.binary_cross_entropy_with_logits(
        logits, targets, pos_weight=torch.tensor([2.0, 0.5, 3.0])
    )
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


def test_balanced_weights_of_labels_are_scikit_learns_of_each_label():
    logits, targets = case("multi_label")
    found = loss_of("cross_entropy", "multi_label", logits, targets, class_weights="balanced")
    truth = targets.numpy().astype(int)
    weights = np.ones((3, 2))
    for label in (0, 1, 2):
        weights[label] = compute_class_weight("balanced", classes=np.arange(2), y=truth[:, label])
    each = nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    expected = np.mean(weights[np.arange(3), truth] * each.detach().numpy())
    assert found.item() == pytest.approx(expected, rel=1e-6)


def test_smoothing_of_labels_moves_targets_to_a_half():
    logits, targets = case("multi_label")
    found = loss_of("cross_entropy", "multi_label", logits, targets, label_smoothing=0.2)
    smooth = 0.8 * targets + 0.1
    expected = nn.functional.binary_cross_entropy_with_logits(logits, smooth)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


def test_focal_loss_of_labels_is_the_papers_of_sigmoids():
    logits, targets = case("multi_label")
    found = loss_of("focal", "multi_label", logits, targets, class_weights=LISTED, gamma=1.5)
    p = 1 / (1 + np.exp(-logits.detach().numpy()))
    y = targets.numpy()
    right = np.where(y == 1, p, 1 - p)
    weights = np.where(y == 1, [2.0, 0.5, 3.0], 1)
    expected = (-weights * (1 - right) ** 1.5 * np.log(right)).mean()
    assert found.item() == pytest.approx(expected, rel=1e-12)


def test_weights_and_smoothing_of_tags_are_torchs_over_words():
    logits, targets = case("token_classification")
    words, tags = words_of(logits, targets)
    found = loss_of("cross_entropy", "token_classification", logits, targets, label_smoothing=0.3)
    expected = nn.functional.cross_entropy(words, tags, label_smoothing=0.3)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    each = nn.functional.cross_entropy(words, tags, reduction="none")
    for given, weights in (
        (LISTED, [2.0, 0.5, 3.0]),
        ("balanced", compute_class_weight("balanced", classes=np.arange(3), y=[0, 0, 1, 2, 0, 1])),
    ):
        found = loss_of(
            "cross_entropy", "token_classification", logits, targets, class_weights=given
        )
        expected = (torch.as_tensor(weights)[tags] * each).mean()
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_focal_loss_of_tags_is_the_mean_over_words():
    logits, targets = case("token_classification")
    words, tags = words_of(logits, targets)
    right = words.softmax(-1).numpy()[np.arange(len(tags)), tags]
    found = loss_of("focal", "token_classification", logits, targets)
    assert found.item() == pytest.approx((-((1 - right) ** 2) * np.log(right)).mean(), rel=1e-12)


@pytest.mark.parametrize("name", ["cross_entropy", "focal"])
@pytest.mark.parametrize("options", [{}, {"class_weights": "balanced"}])
def test_a_part_of_a_batch_without_words_has_a_loss_of_zero(name, options):
    logits, targets = case("token_classification")
    found = loss_of(
        name, "token_classification", logits, torch.full_like(targets, NO_TAG), **options
    )
    found.backward()
    assert found.item() == 0
    assert not logits.grad.any()


def test_huber_by_hand_and_beside_the_absolute_error():
    logits, targets = case("regression")
    errors = np.abs(logits.detach().numpy()[:, 0] - targets.numpy())
    for delta in (0.5, 1.0, 4.0):
        found = loss_of("huber", "regression", logits, targets, delta=delta)
        each = np.where(errors <= delta, errors**2 / 2, delta * (errors - delta / 2))
        assert found.item() == pytest.approx(each.mean(), rel=1e-12)
    small = loss_of("huber", "regression", logits, targets, delta=1e-6)
    assert small.item() / 1e-6 == pytest.approx(errors.mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("focal", "multi_label", {"class_weights": "balanced"}),
        ("focal", "token_classification", {"gamma": 0.5}),
        ("cross_entropy", "multi_label", {"class_weights": LISTED, "label_smoothing": 0.1}),
        ("cross_entropy", "token_classification", {"class_weights": LISTED}),
        ("huber", "regression", {"delta": 0.7}),
    ],
)
def test_gradients_by_finite_differences(name, kind, options):
    logits, targets = case(kind)
    assert torch.autograd.gradcheck(lambda x: loss_of(name, kind, x, targets, **options), (logits,))


@pytest.mark.parametrize("kind", ["regression", "dependency"])
def test_options_of_classes_are_refused_by_name(kind):
    LABELS.setdefault("dependency", [((0, 0), (1, 1), (1, 1))])
    for options in ({"class_weights": "balanced"}, {"label_smoothing": 0.1}):
        with pytest.raises(ConfigError, match=f"class weights and label smoothing: not .* {kind}"):
            loss_of("cross_entropy", kind, None, None, **options)
