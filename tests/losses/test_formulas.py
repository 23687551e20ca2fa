"""Cross-entropy, focal and Huber loss of every kind and R-Drop, against libraries and by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from sklearn.metrics import log_loss
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight
from torch import nn

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import LOSSES
from auxlearn.core.validation import validate
from auxlearn.data.dataset import Split
from auxlearn.kinds.base import kind_of
from auxlearn.kinds.words import NO_TAG
from auxlearn.losses import base
from auxlearn.losses.base import balanced_weights
from auxlearn.losses.cross_entropy import CrossEntropy
from auxlearn.losses.focal import Focal, focal_losses
from auxlearn.losses.r_drop import RDrop, r_drop_loss
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"background": 1, "method": 1}, "list every label once"),
        ({**LISTED, "other": 1}, "list every label once"),
        ({**LISTED, "result": -1}, "at least 0"),
        (dict.fromkeys(helpers.LABELS, 0), "one is more than 0"),
    ],
)
def test_weights_that_do_not_fit_the_labels(options, message, tiny_bert, tmp_path):
    with helpers.one_line(ConfigError, message):
        loss_of(CrossEntropy, tiny_bert, tmp_path, class_weights=options)


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


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_loss_of_a_certain_classifier_has_a_finite_gradient(gamma):
    logits = torch.tensor([[200.0, 0.0, -10.0], [0.0, 200.0, 0.0]], requires_grad=True)
    focal_losses(logits, torch.tensor([0, 0]), gamma).sum().backward()
    assert logits.grad.isfinite().all()


@pytest.fixture
def two():
    return random_logits(1)[0], random_logits(2)[0]


def logs(pair):
    return [one.log_softmax(-1) for one in pair]


def divergences(pair):
    """By name, those of scipy of two distributions by row, from their logits."""
    p, q = (softmax(one) for one in pair)
    m = (p + q) / 2
    return {
        "kl_divergence": entropy(p, q, axis=1),
        "symmetric_kl": (entropy(p, q, axis=1) + entropy(q, p, axis=1)) / 2,
        "jensen_shannon": jensenshannon(p, q, axis=1) ** 2,
        "reversed_jensen_shannon": (entropy(m, p, axis=1) + entropy(m, q, axis=1)) / 2,
    }


@pytest.mark.parametrize(
    "name", ["symmetric_kl", "jensen_shannon", "reversed_jensen_shannon", "kl_divergence"]
)
def test_divergences_are_scipys_and_gradients_reach_both_distributions(name, two):
    divergence = getattr(base, name)
    assert divergence(*logs(two)).numpy() == pytest.approx(divergences(two)[name], abs=1e-10)
    one, other = (x.clone().requires_grad_() for x in two)
    assert torch.autograd.gradcheck(lambda a, b: divergence(*logs((a, b))), (one, other))


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 4.0])
def test_the_sum_of_cross_entropies_and_half_of_both_divergences(weight, two):
    p, q = (softmax(one) for one in two)
    labels = random_logits(1)[1]
    rows = np.arange(len(labels))
    entropies = -np.log(p[rows, labels]) - np.log(q[rows, labels])
    expected = np.mean(entropies + weight * divergences(two)["symmetric_kl"])
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


NAMES = ("x", "y", "z")
OF_NAMES = {"x": 2.0, "y": 0.5, "z": 3.0}
OF_KIND = {
    "multi_label": [(0, 1), (), (1,), (1, 2), (0, 1, 2)],
    "token_classification": [(0, 0, 1), (2,), (0, 1)],
    "regression": [0.5, -2.0, 3.0, 0.25],
    "dependency": [((0, 0), (1, 1), (1, 1))],
}


def outputs_of(kind, seed=0):
    """Random logits in double precision, and targets; of words with tokens that begin none."""
    draws = torch.Generator().manual_seed(seed)
    targets = kind_of(kind).targets(OF_KIND[kind], 3)
    if kind == "token_classification":
        targets = torch.tensor([[NO_TAG, 0, 0, NO_TAG, 1], [2, 0, 1, NO_TAG, NO_TAG]])
    shape = (*targets.shape, 1 if kind == "regression" else 3)
    shape = targets.shape if kind == "multi_label" else shape
    logits = torch.randn(shape, generator=draws, dtype=torch.float64).requires_grad_()
    return logits, targets.double() if targets.is_floating_point() else targets


def value_of(name, kind, logits=None, targets=None, **options):
    cls = LOSSES.get(name)
    loss = cls(validate(cls.Options, options, name))
    texts = tuple("a " * 3 for _ in OF_KIND[kind])
    split = Split("train", texts, tuple(OF_KIND[kind]), NAMES, kind=kind_of(kind))
    loss.prepare(SimpleNamespace(split=split, device="cpu"))
    encoder = SimpleNamespace(kind=kind_of(kind), classify=lambda batch: logits)
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
    else:
        logits, targets = outputs_of(kind)
    expected = kind_of(kind).loss(logits, targets)
    assert value_of("cross_entropy", kind, logits, targets).equal(expected)


def test_weights_and_smoothing_of_labels_are_torchs():
    """Weights are those of positives; smoothing moves targets to a half."""
    logits, targets = outputs_of("multi_label")
    torchs = nn.functional.binary_cross_entropy_with_logits
    found = value_of("cross_entropy", "multi_label", logits, targets, class_weights=OF_NAMES)
    expected = torchs(logits, targets, pos_weight=torch.tensor([2.0, 0.5, 3.0]))
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    found = value_of("cross_entropy", "multi_label", logits, targets, label_smoothing=0.2)
    assert found.item() == pytest.approx(torchs(logits, 0.8 * targets + 0.1).item(), rel=1e-12)


def test_balanced_weights_of_labels_are_scikit_learns_of_each_label():
    logits, targets = outputs_of("multi_label")
    found = value_of("cross_entropy", "multi_label", logits, targets, class_weights="balanced")
    truth = targets.numpy().astype(int)
    weights = np.ones((3, 2))
    for label in (0, 1, 2):
        weights[label] = compute_class_weight("balanced", classes=np.arange(2), y=truth[:, label])
    each = nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    expected = np.mean(weights[np.arange(3), truth] * each.detach().numpy())
    assert found.item() == pytest.approx(expected, rel=1e-6)


def test_focal_loss_of_labels_is_the_papers_of_sigmoids():
    logits, targets = outputs_of("multi_label")
    found = value_of("focal", "multi_label", logits, targets, class_weights=OF_NAMES, gamma=1.5)
    p = 1 / (1 + np.exp(-logits.detach().numpy()))
    y = targets.numpy()
    right = np.where(y == 1, p, 1 - p)
    weights = np.where(y == 1, [2.0, 0.5, 3.0], 1)
    expected = (-weights * (1 - right) ** 1.5 * np.log(right)).mean()
    assert found.item() == pytest.approx(expected, rel=1e-12)


def test_weights_and_smoothing_of_tags_are_torchs_over_words():
    logits, targets = outputs_of("token_classification")
    words, tags = words_of(logits, targets)
    found = value_of("cross_entropy", "token_classification", logits, targets, label_smoothing=0.3)
    expected = nn.functional.cross_entropy(words, tags, label_smoothing=0.3)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    each = nn.functional.cross_entropy(words, tags, reduction="none")
    for given, weights in (
        (OF_NAMES, [2.0, 0.5, 3.0]),
        ("balanced", compute_class_weight("balanced", classes=np.arange(3), y=[0, 0, 1, 2, 0, 1])),
    ):
        options = {"class_weights": given}
        found = value_of("cross_entropy", "token_classification", logits, targets, **options)
        expected = (torch.as_tensor(weights)[tags] * each).mean()
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_focal_loss_of_tags_is_the_mean_over_words():
    logits, targets = outputs_of("token_classification")
    words, tags = words_of(logits, targets)
    right = words.softmax(-1).numpy()[np.arange(len(tags)), tags]
    found = value_of("focal", "token_classification", logits, targets)
    assert found.item() == pytest.approx((-((1 - right) ** 2) * np.log(right)).mean(), rel=1e-12)


@pytest.mark.parametrize("name", ["cross_entropy", "focal"])
@pytest.mark.parametrize("options", [{}, {"class_weights": "balanced"}])
def test_a_part_of_a_batch_without_words_has_a_loss_of_zero(name, options):
    logits, targets = outputs_of("token_classification")
    nothing = torch.full_like(targets, NO_TAG)
    found = value_of(name, "token_classification", logits, nothing, **options)
    found.backward()
    assert found.item() == 0
    assert not logits.grad.any()


def test_huber_by_hand_and_beside_the_absolute_error():
    logits, targets = outputs_of("regression")
    errors = np.abs(logits.detach().numpy()[:, 0] - targets.numpy())
    for delta in (0.5, 1.0, 4.0):
        found = value_of("huber", "regression", logits, targets, delta=delta)
        each = np.where(errors <= delta, errors**2 / 2, delta * (errors - delta / 2))
        assert found.item() == pytest.approx(each.mean(), rel=1e-12)
    small = value_of("huber", "regression", logits, targets, delta=1e-6)
    assert small.item() / 1e-6 == pytest.approx(errors.mean(), rel=1e-5)


@pytest.mark.parametrize("kind", ["regression", "dependency"])
def test_options_of_classes_are_refused_by_name(kind):
    for options in ({"class_weights": "balanced"}, {"label_smoothing": 0.1}):
        with pytest.raises(ConfigError, match=f"class weights and label smoothing: not .* {kind}"):
            value_of("cross_entropy", kind, **options)
