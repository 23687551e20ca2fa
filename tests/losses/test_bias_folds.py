"""Folds: stratified, seeded, equal texts together, and nothing scored by what has seen it."""

from __future__ import annotations

import numpy as np
import pytest

from auxlearn.data.splits import assign_folds
from auxlearn.losses.bias_models import cross_fit, overlap_features, segment_fit

KEYS = [(f"text {number % 70}",) for number in range(100)]  # thirty texts occur twice
LABELS = [0 if number % 70 < 40 else 1 + number % 2 for number in range(100)]


def test_folds_depend_on_the_seed_and_not_on_the_order():
    folds = assign_folds(LABELS, KEYS, 5, seed=0)
    assert folds != assign_folds(LABELS, KEYS, 5, seed=1)
    assert folds[::-1] == assign_folds(LABELS[::-1], KEYS[::-1], 5, seed=0)


@pytest.mark.parametrize("folds", [2, 5, 8])
def test_no_fold_is_empty(folds):
    found = assign_folds([0, 1, 0, 0, 1, 2, 0, 0], list(range(8)), folds, seed=3)
    assert set(found) == set(range(folds))


def test_each_example_is_scored_once_by_a_model_of_the_others():
    folds = assign_folds(LABELS, KEYS, 5, seed=0)
    scored = []

    def fit(fold, train, held):
        assert sorted(train + held) == list(range(100))
        assert {KEYS[i] for i in train}.isdisjoint(KEYS[i] for i in held)
        scored.extend(held)
        return np.array([[i, fold] for i in held])

    found = cross_fit(folds, fit)
    assert sorted(scored) == list(range(100))
    assert found.tolist() == [[i, fold] for i, fold in enumerate(folds)]


def test_a_feature_of_one_example_cannot_leak():
    """Each text has a word of its own, and duplicates share it: labels are coin flips."""
    draws = np.random.default_rng(0)
    texts = [f"common words and unique{number}" for number in range(60)] * 2
    labels = draws.integers(0, 2, 60).tolist() * 2
    fit = segment_fit(texts, labels, 2)
    everything = list(range(120))
    seen = fit(0, everything, everything)
    assert (seen.argmax(1) == labels).mean() == 1.0  # the word gives every label away
    folds = assign_folds(labels, [(text,) for text in texts], 5, seed=0)
    honest = cross_fit(folds, fit)
    # With its own word unknown, a text is like every other one of its fold.
    for fold in range(5):
        rows = honest[[number for number in everything if folds[number] == fold]]
        assert np.ptp(rows, axis=0).max() < 1e-12
    # Without duplicates kept together the twin in another fold gives the label away.
    leaking = cross_fit([int(number >= 60) for number in everything], fit)
    assert (leaking.argmax(1) == labels).mean() == 1.0


def test_a_class_that_the_other_folds_lack_has_no_probability():
    fit = segment_fit(["a b", "a c", "b c", "d d"], [0, 1, 0, 2], 3)
    found = fit(0, [0, 1, 2], [3])
    assert found[0, 2] == 0
    assert found.sum() == pytest.approx(1)
    assert fit(0, [0, 2], [1, 3]).tolist() == [[1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("The doctor saw the actor .", "the doctor", (1, 1, 1, np.log(4))),
        ("The doctor saw the actor.", "The actor saw the doctor.", (0, 1, 1, 0)),
        ("The doctor slept.", "A doctor ran", (0, 0, 1 / 3, 0)),
        ("No", "The doctor saw it", (0, 0, 0, 0)),
        ("one two three four", "two four", (0, 1, 1, np.log(2))),
    ],
)
def test_overlap_features(first, second, expected):
    assert overlap_features(first, second) == pytest.approx(expected)
