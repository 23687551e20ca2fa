"""Losses against a bias model: the formulas, their gradients, and what they do with an encoder."""

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from torch import nn

from auxlearn.losses.bias import FLOOR
from auxlearn.losses.confidence import Confidence, smoothed_targets
from auxlearn.losses.debiased_focal import DebiasedFocal, debiased_focal_loss
from auxlearn.losses.learned_mixin import LearnedMixin, learned_mixin_loss
from auxlearn.losses.poe import PoE, poe_loss
from tests import helpers
from tests.losses.common import (
    LABEL_LIST,
    batch_of,
    draws,
    normalise,
    prepared,
    random_logits,
    softmax,
    unchanged,
)

ROWS = np.arange(6)


@pytest.fixture
def given():
    logits, labels = random_logits(1)
    bias = random_logits(2)[0].softmax(-1)
    return logits, bias, labels


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0, 2.0])
def test_product_of_experts(strength, given):
    logits, bias, labels = given
    product = normalise(softmax(logits) * bias.numpy() ** strength)
    expected = -np.log(product[ROWS, labels]).mean()
    assert float(poe_loss(logits, bias, labels, strength)) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("penalty", [0.0, 0.03, 1.0])
def test_learned_mixin(penalty, given):
    logits, bias, labels = given
    factors = torch.linspace(0, 3, 6, dtype=torch.float64)[:, None]
    part = bias.numpy() ** factors.numpy()
    product = normalise(softmax(logits) * part)
    expected = -np.log(product[ROWS, labels]).mean()
    expected += penalty * entropy(normalise(part), axis=1).mean()
    found = learned_mixin_loss(logits, bias, factors, labels, penalty)
    assert float(found) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_debiased_focal(gamma, given):
    logits, bias, labels = given
    expected = -((1 - bias.numpy()[ROWS, labels]) ** gamma) * np.log(softmax(logits)[ROWS, labels])
    found = debiased_focal_loss(logits, bias, labels, gamma)
    assert float(found) == pytest.approx(expected.mean(), abs=1e-10)


def test_targets_of_confidence_regularisation(given):
    teacher, bias, labels = given[0].softmax(-1), given[1], given[2]
    exponents = 1 - bias.numpy()[ROWS, labels][:, None]
    expected = normalise(teacher.numpy() ** exponents)
    assert smoothed_targets(teacher, bias, labels).numpy() == pytest.approx(expected, abs=1e-12)
    certain = nn.functional.one_hot(labels, 3).double()
    assert smoothed_targets(teacher, certain, labels).numpy() == pytest.approx(1 / 3)
    never = normalise(1 - certain)
    assert torch.allclose(smoothed_targets(teacher, never, labels), teacher)


@pytest.fixture
def bias_file(tmp_path):
    """Probabilities of the eight training examples, one of them certain."""
    values = softmax(random_logits(3, rows=8)[0]).tolist()
    values[2] = [0.0, 0.0, 1.0]
    rows = [dict(zip(helpers.LABELS, row, strict=True)) for row in values]
    helpers.write_splits(tmp_path, bias=rows)
    return tmp_path / "bias.jsonl", normalise(np.maximum(values, FLOOR))


EXPECTED = {
    PoE: lambda p, b: -np.log(normalise(p * b)),
    DebiasedFocal: lambda p, b: -((1 - b) ** 2) * np.log(p),
}


@pytest.mark.parametrize("cls", EXPECTED)
def test_each_example_gets_the_bias_of_its_own_row(cls, tiny_bert, tmp_path, bias_file):
    path, bias = bias_file
    loss, context = prepared(cls, tiny_bert, tmp_path, bias=str(path))
    for chosen in ([0, 1, 2, 3, 4, 5, 6, 7], [6, 2, 3]):
        batch = batch_of(context, *chosen)
        with torch.no_grad():
            found = float(loss.loss(tiny_bert, batch, draws()))
            p = softmax(tiny_bert.classify(batch).numpy())
        labels = [LABEL_LIST[number] for number in chosen]
        expected = EXPECTED[cls](p, bias[chosen])[range(len(chosen)), labels]
        assert found == pytest.approx(expected.mean(), abs=1e-5)


def test_learned_mixin_uses_the_vector_of_the_text(tiny_bert, tmp_path, bias_file):
    path, bias = bias_file
    loss, context = prepared(
        LearnedMixin, tiny_bert, tmp_path, bias=str(path), entropy_penalty=0.03
    )
    head = tiny_bert.heads["primary/mixin"]
    batch = batch_of(context)
    value = loss.loss(tiny_bert, batch, draws())
    with torch.no_grad():
        hidden = tiny_bert.features(batch)
        factors = np.log1p(np.exp(head(hidden).double().numpy()))
        p = softmax(tiny_bert.classify(batch).numpy())
    part = bias**factors
    expected = -np.log(normalise(p * part)[range(8), LABEL_LIST]).mean()
    expected += 0.03 * entropy(normalise(part), axis=1).mean()
    assert value.item() == pytest.approx(expected, abs=1e-5)
    gradients = torch.autograd.grad(value, list(head.parameters()))
    assert all(bool((one != 0).all()) for one in gradients)


def test_confidence_with_files(tiny_bert, tmp_path, bias_file):
    path, bias = bias_file
    loss, context = prepared(Confidence, tiny_bert, tmp_path, bias=str(path), teacher=str(path))
    batch = batch_of(context, 6, 2, 3)
    with torch.no_grad():
        found = float(loss.loss(tiny_bert, batch, draws()))
        p = softmax(tiny_bert.classify(batch).numpy())
    own, labels = bias[[6, 2, 3]], [1, 2, 2]
    targets = normalise(own ** (1 - own[range(3), labels][:, None]))
    assert found == pytest.approx(-(targets * np.log(p)).sum(1).mean(), abs=1e-5)
    assert targets[1] == pytest.approx(1 / 3, abs=1e-4)  # the bias model is certain and right


def test_the_teacher_of_confidence_is_cross_fitted(tiny_bert, tmp_path, bias_file):
    def targets(folder=tmp_path, **more):
        options = {"bias": str(bias_file[0]), "bias_folds": 2, "teacher_epochs": 1} | more
        return prepared(Confidence, tiny_bert, folder, **options)[0].targets.values

    with unchanged(tiny_bert):
        found = targets()
        assert torch.equal(found, targets(tmp_path / "elsewhere"))
        assert not torch.equal(found, targets(teacher_learning_rate=1e-2))
    assert found.sum(1).tolist() == pytest.approx([1] * 8, abs=1e-9)
