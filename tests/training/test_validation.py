"""The validation objective: smooth accuracy and macro-F1, balanced batches, heads for dev."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics import accuracy_score, f1_score
from torch.utils._python_dispatch import TorchDispatchMode

from auxlearn.core.errors import DataError
from auxlearn.core.rng import generator
from auxlearn.data.batches import UniformStream, collate
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.training.validation import ValidationObjective, balanced_sample, members_by_class
from tests.helpers import LINES, tokenized

SURE = 1e4  # a softmax over logits this far apart is exactly 0 and 1


CLASS = st.integers(0, 4)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(CLASS, CLASS), min_size=1, max_size=30))
def test_of_sure_predictions_they_are_the_metrics_themselves(rows):
    labels, predicted = torch.tensor(rows).T
    logits = SURE * torch.nn.functional.one_hot(predicted, 5).double()
    present = sorted(set(labels.tolist()))
    expected = {
        "macro_f1": f1_score(labels, predicted, labels=present, average="macro", zero_division=0),
        "accuracy": accuracy_score(labels, predicted),
    }
    for metric, value in expected.items():
        found = 1 - float(CLASSIFICATION.smooth(logits, labels, metric))
        assert found == pytest.approx(value, abs=1e-12)


def test_by_hand():
    # Two rows of class 0 with probabilities 0.8 and 0.5, one of class 1 with 0.4; class 2 absent.
    probabilities = torch.tensor(
        [[0.8, 0.1, 0.1], [0.5, 0.2, 0.3], [0.6, 0.4, 0.0]], dtype=torch.float64
    )
    found = 1 - CLASSIFICATION.smooth(probabilities.log(), torch.tensor([0, 0, 1]), "macro_f1")
    first = 2 * (0.8 + 0.5) / ((0.8 + 0.5 + 0.6) + 2)
    second = 2 * 0.4 / ((0.1 + 0.2 + 0.4) + 1)
    assert float(found) == pytest.approx((first + second) / 2, abs=1e-12)


COUNTS = {0: 14, 1: 7, 2: 2, 3: 1}
LABELS = [label for label, count in COUNTS.items() for _ in range(count)]


@pytest.fixture
def drawn(monkeypatch):
    """The texts and rows of every batch that is collated from now on."""
    batches = []
    monkeypatch.setattr(
        "auxlearn.training.validation.collate",
        lambda texts, rows: batches.append((texts, rows)) or collate(texts, rows),
    )
    return batches


@pytest.fixture
def objective(tiny_bert):
    def make(metric, batch_size, seed=0):
        texts = tokenized(tiny_bert, LINES, LABELS)
        return ValidationObjective(texts, batch_size, metric, seed)

    return make


@pytest.mark.parametrize(
    ("batch_size", "expected"),
    [
        (4, [1, 1, 1, 1]),
        (8, [3, 2, 2, 1]),
        (12, [5, 4, 2, 1]),
        (24, [14, 7, 2, 1]),
        (99, [14, 7, 2, 1]),
    ],
)
def test_samples_hold_the_classes_in_equal_numbers(batch_size, expected):
    labels, seen = torch.tensor(LABELS), set()
    members = members_by_class(labels)
    for seed in range(20):
        rows = balanced_sample(labels, members, batch_size, generator(seed)).tolist()
        assert len(rows) == len(set(rows)) == min(batch_size, len(LINES))
        drawn = Counter(LABELS[row] for row in rows)
        counts = sorted(drawn.values(), reverse=True)
        assert counts[0] - expected[0] in (-1, 0, 1)
        assert sum(counts) == sum(expected)
        # No class is short while another that has rows left is ahead of it by more than one.
        for label, total in COUNTS.items():
            assert drawn[label] == total or drawn[label] >= counts[0] - 1
        assert rows == balanced_sample(labels, members, batch_size, generator(seed)).tolist()
        seen.add(tuple(sorted(rows)))
    assert (len(seen) > 10) == (batch_size < len(LINES))


def test_the_loss_for_macro_f1(tiny_bert):
    texts = tokenized(tiny_bert, LINES, [label % 3 for label in LABELS])
    made = ValidationObjective(texts, 8, "macro_f1", 0)
    members = members_by_class(made.labels)
    rows = balanced_sample(made.labels, members, 8, generator(0, "validation", "balanced", 5))
    labels = made.labels[rows]
    logits = tiny_bert.classify(collate(made.texts, rows))
    expected = CLASSIFICATION.smooth(logits, labels, "macro_f1")
    loss = made.loss(tiny_bert, 5)
    assert torch.equal(loss, expected)
    assert loss.requires_grad


@pytest.mark.parametrize("surrogate", ["accuracy", "cross_entropy", "macro_f1"])
def test_the_loss_of_the_best_constant_prediction(surrogate, objective):
    """Against a search over constant predictions, on labels in the shares of the batches."""
    made = objective(surrogate, 7)
    made.labels = torch.tensor([0, 0, 0, 1, 1, 2])
    labels = torch.tensor([0, 1, 2]) if surrogate == "macro_f1" else made.labels
    grid = torch.tensor([0, 1e-9, 1 / 6, 1 / 3, 1 / 2, 1 - 1e-9, 1], dtype=torch.float64)
    tried = torch.cartesian_prod(grid, grid)
    rows = torch.cat([tried, 1 - tried.sum(1, keepdim=True)], 1)
    rows = rows[(rows >= 0).all(1)]
    logits = [row.log().expand(len(labels), 3) for row in rows]
    found = [float(CLASSIFICATION.surrogate(one, labels, surrogate)) for one in logits]
    lowest = min(value for value in found if value == value)
    assert made.constant_loss == pytest.approx(lowest, abs=1e-6)


def test_the_loss_of_the_best_constant_prediction_for_batches_without_all_classes(objective):
    """Against gradient ascent on the mean macro-F1 of all batches, whose classes are not known."""
    made = objective("macro_f1", 3)
    made.labels = torch.tensor([0, 1, 2, 3, 4] * 2)
    logits = torch.randn(5, generator=generator(0), dtype=torch.float64).requires_grad_()
    batches = [torch.tensor(batch) for batch in itertools.combinations(range(5), 3)]
    optimizer = torch.optim.LBFGS([logits], max_iter=200, tolerance_grad=1e-12)

    def loss():
        optimizer.zero_grad()
        repeated = logits.expand(3, 5)
        found = [CLASSIFICATION.surrogate(repeated, batch, "macro_f1") for batch in batches]
        mean = torch.stack(found).mean()
        mean.backward()
        return mean

    optimizer.step(loss)
    assert made.constant_loss == pytest.approx(loss().item(), abs=1e-9)
    assert made.constant_loss == pytest.approx(0.75)


@pytest.mark.parametrize("surrogate", ["accuracy", "cross_entropy"])
def test_the_loss_for_accuracy_is_the_mean_probability_of_other_classes(
    surrogate, objective, tiny_bert
):
    made = objective(surrogate, 7)
    made.labels = torch.tensor(LABELS) % 3
    made.texts = replace(made.texts, labels=made.labels)
    stream = UniformStream(made.texts, 7, 0, "validation")
    for step in (0, 3, 9):
        rows = stream.indices(step)
        logits = tiny_bert.classify(collate(made.texts, rows))
        right = logits.softmax(-1)[torch.arange(len(rows)), made.labels[rows]]
        expected = (1 - right if surrogate == "accuracy" else -right.log()).mean()
        torch.testing.assert_close(made.loss(tiny_bert, step), expected)


def test_every_class_has_the_same_chance_in_a_balanced_batch():
    size = 8
    labels = torch.tensor([0] * 40 + [1] * 30 + [2] * 20 + [3] * 5 + [4] * 5)
    drawn, members = torch.zeros(5), members_by_class(labels)
    for seed in range(500):
        rows = balanced_sample(labels, members, size, generator(seed))
        counts = labels[rows].bincount(minlength=5)
        assert int(counts.max() - counts.min()) <= 1
        drawn += counts
    torch.testing.assert_close(drawn / 500, torch.full((5,), size / 5), rtol=0, atol=0.1)


def test_balanced_batches_of_many_examples_leave_out_those_of_the_head():
    labels = torch.arange(20_000) % 3
    labels[:2] = 3  # a class of two, of which one is left out
    barred, members = torch.tensor([0, *range(3, 33)]), members_by_class(labels)
    touched, drawn = [], set()

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            made = function(*arguments, **(keywords or {}))
            touched.append(made.numel() if isinstance(made, torch.Tensor) else 1)
            return made

    with Sizes():
        for seed in range(20):
            rows = balanced_sample(labels, members, 32, generator(seed), barred)
            assert sorted(labels[rows].bincount().tolist()) == [1, 10, 10, 11]
            assert len(rows.unique()) == 32
            drawn |= set(rows.tolist())
    assert not drawn & set(barred.tolist())
    assert 1 in drawn
    assert len(drawn) > 500
    assert max(touched) < 1000, "time that grows with the number of examples"


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
@pytest.mark.parametrize(("count", "size"), [(96, 8), (6, 32), (2, 1)])
def test_a_dev_head_is_fitted_to_other_examples(tiny_bert, drawn, metric, count, size):
    rows = (LINES * 4)[:count]
    texts = tokenized(tiny_bert, rows, [row % 2 for row in range(count)])
    made = ValidationObjective(texts, size, metric, 0, "closed", batches_per_step=2)
    seen = set()
    for step in range(6):
        with tiny_bert.evaluating():
            for index in range(2):
                made.loss(tiny_bert, step, index)
        second, first = ([set(rows.tolist()) for _, rows in drawn[n::2]] for n in (-4, -3))
        assert first[0] == first[1]
        assert not first[0] & (second[0] | second[1])
        assert len(first[0]) == min(32, count // 2)
        assert [len(one) for one in second] == [min(size, count - len(first[0]))] * 2
        seen |= first[0]
    assert len(seen) > len(first[0])


@pytest.mark.parametrize("head", ["own", "fitted"])
def test_no_batch_is_sorted_by_length(tiny_bert, drawn, head):
    """Length tells the class here, so that batches of like length would hold one class each."""
    rows = LINES * 4
    lengths = tokenized(tiny_bert, rows).lengths
    texts = tokenized(tiny_bert, rows, (lengths > lengths.median()).long().tolist())
    made = ValidationObjective(texts, 8, "accuracy", 0, head=head)
    with tiny_bert.evaluating():
        for step in range(12):
            made.loss(tiny_bert, step)
    assert len(drawn) == (12 if head == "own" else 24)
    for drawn_from, places in drawn:
        labels = drawn_from.labels[places]
        assert len(labels) in (8, 32)
        assert int(labels.bincount(minlength=2).min()) >= len(labels) // 5


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_parts_of_several_batches_need_less_padding_where_the_mean_allows_it(
    tiny_bert, drawn, metric
):
    texts = tokenized(tiny_bert, LINES * 4, [row % 3 for row in range(len(LINES) * 4)])
    made = ValidationObjective(texts, 8, metric, 0, batches_per_step=4)
    with tiny_bert.evaluating():
        apart = torch.stack([made.loss(tiny_bert, 5, index) for index in (1, 2, 3)])
        together = torch.stack([made.loss(tiny_bert, 5, 1, 3, part) for part in range(3)])
    rows = [places for _, places in drawn]
    batches, parts = rows[:3], rows[3:]
    assert [len(part) for part in parts] == [8, 8, 8]
    torch.testing.assert_close(together.mean(), apart.mean(), rtol=1e-6, atol=0)
    if metric == "macro_f1":
        assert all(map(torch.equal, batches, parts))
        return
    assert sorted(torch.cat(parts).tolist()) == sorted(torch.cat(batches).tolist())
    lengths = texts.lengths[torch.cat(parts)].tolist()
    assert lengths == sorted(lengths, reverse=True)
    assert not any(map(torch.equal, batches, parts))


def test_validation_texts_are_labelled_and_at_least_two_for_a_dev_head(tiny_bert):
    with pytest.raises(ValueError, match="needs labelled texts"):
        ValidationObjective(tokenized(tiny_bert, LINES), 8, "accuracy", 0)
    with pytest.raises(DataError, match="at least two, or choose the dev head own"):
        ValidationObjective(tokenized(tiny_bert, LINES[:1], [0]), 8, "accuracy", 0, "fitted")
