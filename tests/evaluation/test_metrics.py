"""Class probabilities, and the metrics of predictions."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

from auxlearn.core.errors import DataError
from auxlearn.core.settings import OODSource
from auxlearn.data.batches import collate
from auxlearn.data.dataset import Split
from auxlearn.data.ood import OODSet
from auxlearn.evaluation.metrics import (
    above_chance,
    evaluate,
    no_better_than_chance,
    predictions_of,
    score,
    true_labels,
)
from auxlearn.kinds.base import kind_of
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.kinds.predictions import LabelMap
from auxlearn.objectives.base import outputs_of
from tests.helpers import LINES, tokenized

NAMES = ("a", "b", "c")


def score_predictions(labels, predicted, names, outputs=(), whole=True):
    return score(CLASSIFICATION, labels, predicted, outputs, names, whole)


def set_of(labels, names=NAMES, known=None):
    """A set with the labels of a model, of which it may lack the last ones."""
    split = Split("test", tuple(map(str, range(len(labels)))), tuple(labels), names)
    known, numbers = known or len(names), tuple(range(len(names)))
    source = OODSource(dataset="test", name="test")
    return OODSet(source, split, LabelMap(names, numbers[:known], numbers, known))


def predictions(outputs, labels, names=NAMES, known=None):
    ood = set_of(labels, names, known)
    return predictions_of(outputs, ood, ood.split)


@pytest.mark.parametrize(("classes", "known"), [(2, 2), (5, 5), (7, 4), (300, 300)])
def test_metrics_are_those_of_scikit_learn_to_the_last_digit(classes, known):
    draw = np.random.default_rng(classes)
    names = [f"class {number}" for number in range(classes)]
    for examples in (1, 3, 40, 997):
        truth, said = draw.integers(classes, size=examples), draw.integers(known, size=examples)
        scores = score_predictions(truth.tolist(), said, names)
        found = precision_recall_fscore_support(truth, said, labels=range(classes), zero_division=0)
        by_class = [list(one.values()) for one in scores.per_class.values()]
        assert by_class == [list(one) for one in zip(*found, strict=True)]
        assert scores.accuracy == accuracy_score(truth, said)
        assert scores.macro_f1 == f1_score(truth, said, average="macro", zero_division=0)


def test_the_majority_class_does_not_depend_on_the_order_of_the_examples():
    assert CLASSIFICATION.constant([2, 0, 1, 1, 2]) == CLASSIFICATION.constant([1, 2, 2, 0, 1]) == 1


def test_metrics_on_all_examples_on_unseen_examples_and_of_the_majority_class():
    probabilities = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    labels = [0, 1, 1, 2]
    found = predictions(probabilities, labels)
    found = evaluate(set_of(labels), found, None, [True, False, False, True], 1)
    assert found.all.accuracy == 0.75
    assert found.all.examples == 4
    assert found.unseen.accuracy == 0.5
    assert found.unseen.examples == 2
    assert found.seen_examples == 2
    assert found.majority.accuracy == 0.5
    assert found.majority.macro_f1 == pytest.approx((2 * 0.5 / 1.5) / 3)
    assert found.loss == pytest.approx(-np.log([0.7, 0.5, 0.3, 0.8]).mean())


def test_a_set_without_unseen_examples():
    found = predictions(np.array([[1.0, 0.0, 0.0]]), [1])
    found = evaluate(set_of([1]), found, None, [True], 0)
    assert found.unseen is None
    assert found.seen_examples == 1
    assert np.isfinite(found.loss)  # although the true class has probability zero


@pytest.mark.parametrize("batch_size", [1, 5, 100])
def test_probabilities_are_in_the_order_of_the_texts(tiny_bert, batch_size):
    texts = tokenized(tiny_bert, LINES)
    found = outputs_of(CLASSIFICATION, tiny_bert.classify, texts, (), None, batch_size=batch_size)
    assert found.dtype == np.float64
    for row in range(len(LINES)):
        with torch.no_grad():
            logits = tiny_bert.classify(collate(texts, torch.tensor([row])))
        np.testing.assert_allclose(found[row], logits[0].softmax(-1).numpy(), atol=1e-6)
    assert found.std(0).min() > 0.01


def test_labels_are_matched_by_name_and_none_are_an_error():
    split = Split("test", ("x", "y", "z"), (0, 1, 1), ("c", "a"))
    assert true_labels(split, set_of([0])) == [2, 0, 0]
    with pytest.raises(DataError, match="'test' has no labels to evaluate against"):
        true_labels(Split("test", ("x",), None, ()), set_of([0]))


def test_many_labels_have_a_sparse_confusion_matrix():
    names = [f"label {number}" for number in range(150)]
    truth = np.arange(300) % 150
    predicted = np.where(np.arange(300) < 200, truth, 7)
    scores = score_predictions(truth, predicted, names)
    dense = np.zeros((150, 150), dtype=int)
    for true, chosen in zip(truth, predicted, strict=True):
        dense[true, chosen] += 1
    sparse = np.zeros_like(dense)
    sparse[scores.confusion["true"], scores.confusion["predicted"]] = scores.confusion["count"]
    assert (sparse == dense).all()
    true_counts, predicted_counts = scores.class_counts()
    assert true_counts == dict.fromkeys(range(150), 2)
    assert predicted_counts == dict(enumerate(dense.sum(0).tolist()))
    part = score_predictions(truth, predicted, names, None, False)
    assert (part.per_class, part.confusion) == ({}, {})
    assert (part.accuracy, part.macro_f1) == (scores.accuracy, scores.macro_f1)
    # A dense matrix counts alike.
    few = score_predictions([0, 0, 2], np.array([0, 1, 1]), NAMES)
    assert few.class_counts() == ({0: 2, 2: 1}, {0: 1, 1: 2})


@pytest.mark.parametrize("metric", ["", "accuracy", "macro_f1", "cross_entropy"])
@pytest.mark.parametrize("known", [5, 4])
def test_losses_are_of_the_examples_whose_label_the_model_knows(metric, known):
    """With four classes it has none for the last."""
    probabilities = np.random.default_rng(0).dirichlet(np.ones(known), 30)
    labels = [number % 5 for number in range(30)]
    found = predictions(probabilities, labels, tuple("abcde"), known)
    inside = torch.tensor(labels) < known
    logits = torch.from_numpy(probabilities).log()[inside]
    expected = CLASSIFICATION.surrogate(logits, torch.tensor(labels)[inside], metric)
    assert found.loss(metric) == pytest.approx(float(expected))
    assert found.unknown == (0 if known == 5 else 6)


def shuffled(agreement, draw, times=4000):
    """Standard deviations of an agreement above those of shuffled predictions, by shuffling."""
    found = [agreement(draw.permutation(60)) for _ in range(times)]
    return (agreement(np.arange(60)) - np.mean(found)) / np.std(found)


@pytest.mark.parametrize("strength", [0.0, 0.2, 0.6])
def test_agreement_above_chance_is_that_of_shuffled_predictions(strength):
    draw = np.random.default_rng(7)
    kept = draw.random((60, 5)) < strength
    true, noise = (draw.integers(0, 4, 60) for _ in range(2))
    told = np.where(kept[:, 0], true, noise)
    found = above_chance([(one,) for one in true], [(one,) for one in told])
    assert found == pytest.approx(shuffled(lambda o: (true == told[o]).sum(), draw), abs=0.12)

    several, others = (draw.random((60, 5)) < 0.3 for _ in range(2))
    others = np.where(kept, several, others)
    sets = ([tuple(np.flatnonzero(row)) for row in one] for one in (several, others))
    expected = shuffled(lambda order: (several & others[order]).sum(), draw)
    assert above_chance(*sets) == pytest.approx(expected, abs=0.12)

    x, y = 1e6 + 1e3 * draw.normal(size=60), draw.normal(size=60)
    y += strength * x / 1e3
    found = above_chance(x.tolist(), y.tolist())
    assert found == pytest.approx(np.corrcoef(x, y)[0, 1] * 59**0.5, rel=1e-9)


TREE, FLAT = ((2, 0), (0, 1), (2, 0)), ((0, 1), (1, 0), (1, 0))


@pytest.mark.parametrize(
    ("kind", "truth", "predicted", "expected"),
    [
        ("classification", [0, 1] * 20, [1] * 40, "predicts 'b' for every example"),
        ("classification", [1] * 40, [1] * 40, None),  # nothing else was to be found
        ("classification", [0, 1] * 20, [0, 1] * 20, None),
        ("classification", [0, 1] * 20, [0, 0, 1, 1] * 10, "no better than chance"),
        ("multi_label", [(0,), (0, 1)] * 20, [()] * 40, "predicts no label for every example"),
        ("multi_label", [(0,), (0, 1)] * 20, [(0, 2)] * 40, "predicts ['a', 'c'] for every"),
        ("multi_label", [(0,), (0, 1)] * 20, [(), (1,)] * 20, None),
        ("regression", [1.0, 2.0] * 20, [1.5] * 40, "predicts 1.5 for every example"),
        ("regression", [1.0, 2.0] * 20, [0.5, 0.51] * 20, None),
        ("regression", [1.0, 2.0] * 20, [2.0, 1.0] * 20, "no better than chance (z = -6.24"),
        ("token_classification", [(0, 1), (1,)] * 20, [(0, 0), (0,)] * 20, "same for every word"),
        ("token_classification", [(0, 1), (1,)] * 20, [(0, 1), (1,)] * 20, None),
        ("dependency", [TREE, FLAT] * 20, [TREE, FLAT] * 20, None),
        ("dependency", [TREE, TREE] * 20, [FLAT] * 40, "no better than chance"),
    ],
)
def test_predictions_that_say_nothing_of_the_labels(kind, truth, predicted, expected):
    found = no_better_than_chance(kind_of(kind), truth, predicted, NAMES)
    assert found is None if expected is None else expected in found
