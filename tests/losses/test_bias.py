"""Bias models: every kind, their folds, the cache, the seed, files, and a line for each mistake."""

import json
import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from auxlearn.core.errors import ConfigError, DataError, UserError
from auxlearn.core.validation import validate
from auxlearn.data.dataset import Split
from auxlearn.data.splits import assign_folds
from auxlearn.losses import bias, bias_models
from auxlearn.losses.bias import FLOOR, BiasOptions, bias_scores, encoder_scores
from auxlearn.losses.bias_models import cross_fit, overlap_features, segment_fit
from auxlearn.objectives.context import InputTracker
from tests import helpers
from tests.losses.common import context_of, normalise, split_of, unchanged


def options(**values):
    return validate(BiasOptions, values, "loss")


def scored(context, **values):
    return bias_scores(context, options(**values))


@pytest.fixture
def pairs(tiny_bert, tmp_path):
    return context_of(tiny_bert, tmp_path / "cache", split_of(12, pairs=True))


@pytest.fixture
def biased(tiny_bert, tmp_path):
    """Pairs whose class is whether the second text is part of the first."""
    first = helpers.LINES
    labels = tuple(number % 2 for number in range(len(first)))
    second = tuple(
        " ".join(line.split()[:4]) if label else f"nothing number {number} of this"
        for number, (line, label) in enumerate(zip(first, labels, strict=True))
    )
    split = Split("train", first, labels, ("no", "yes"), second)
    return context_of(tiny_bert, tmp_path / "cache", split)


def test_overlap_finds_overlap(biased, caplog):
    caplog.set_level(logging.INFO, "auxlearn")
    scores = scored(biased, bias="overlap", bias_folds=3)
    assert scores.accuracy == 1.0
    assert scores.probabilities.argmax(1).tolist() == list(biased.split.labels)
    assert "bias model overlap: accuracy on the training examples 1.000, majority" in caplog.text


@pytest.mark.parametrize(("segment", "better"), [("second", True), ("first", False)])
def test_a_segment_alone(biased, segment, better, caplog):
    scores = scored(biased, bias="segment", bias_segment=segment, bias_folds=4)
    assert (scores.accuracy > 0.9) == better
    assert ("no better than the majority class" in caplog.text) == (not better)


def test_equal_segments_are_in_one_fold(tiny_bert, tmp_path, monkeypatch):
    """The model of one text would know the label of a text that it has read in another pair."""
    same = tuple(f"only word{number // 2}" for number in range(12))
    split = Split("train", helpers.LINES[:12], (0, 0, 1, 1) * 3, ("a", "b"), same)
    folds = []
    real = bias.assign_folds
    monkeypatch.setattr(bias, "assign_folds", lambda *a: folds.append(real(*a)) or folds[-1])
    scored(context_of(tiny_bert, tmp_path, split), bias="segment", bias_folds=3)
    assert folds[0][::2] == folds[0][1::2]
    assert set(folds[0]) == {0, 1, 2}


@pytest.mark.parametrize("kind", ["overlap", "segment", "weak"])
def test_cached_seeded_and_floored(kind, pairs, tiny_bert, tmp_path, one_layer, monkeypatch):
    chosen = {"bias": kind, "bias_folds": 2, "bias_encoder": str(one_layer), "bias_examples": 4}
    fitted = []
    real = bias.cross_fit
    monkeypatch.setattr(bias, "cross_fit", lambda *a: fitted.append(1) or real(*a))
    before = torch.default_generator.get_state()
    first, again = (scored(pairs, **chosen, bias_epochs=1).probabilities for _ in range(2))
    assert len(fitted) == 1  # the second came from the cache
    other_cache = context_of(tiny_bert, tmp_path / "other", pairs.split)
    fresh = scored(other_cache, **chosen, bias_epochs=1).probabilities
    assert len(fitted) == 2
    assert torch.equal(first, again)
    assert torch.equal(first, fresh)
    other_seed = context_of(tiny_bert, tmp_path / "cache", pairs.split, seed=1)
    assert not torch.equal(first, scored(other_seed, **chosen, bias_epochs=1).probabilities)
    assert torch.equal(before, torch.default_generator.get_state())
    assert (first.shape, first.dtype) == ((12, 3), torch.float64)
    assert first.sum(1).tolist() == pytest.approx([1.0] * 12, abs=1e-12)
    assert float(first.min()) > 0.99 * FLOOR


def test_the_cache_key_has_all_that_matters(pairs, tiny_bert, tmp_path, one_layer, monkeypatch):
    keys, uniform = [], torch.full((12, 3), 1 / 3, dtype=torch.float64)

    def get(self, key, compute):
        keys.append(key)
        return {"probabilities": uniform}

    monkeypatch.setattr(type(pairs.cache), "get", get)
    monkeypatch.setattr(bias.Tokenization, "tokenize_split", lambda *given: pairs.texts)
    weak = {"bias": "weak", "bias_encoder": str(one_layer), "bias_folds": 2}
    cases = [
        {"bias": "overlap"},
        {"bias": "overlap", "bias_folds": 3},
        {"bias": "segment"},
        {"bias": "segment", "bias_segment": "first"},
        weak,
        {**weak, "bias_examples": 3},
        {**weak, "bias_epochs": 1},
        {**weak, "bias_learning_rate": 1e-2},
    ]
    for case in cases:
        scored(pairs, **case)
    relabelled = replace(pairs.split, labels=pairs.split.labels[::-1])
    scored(context_of(tiny_bert, tmp_path, relabelled), bias="overlap")
    with torch.no_grad():
        next(tiny_bert.classifier.parameters()).add_(1)
    for steps in (1, 2):
        encoder_scores(pairs, "teacher", 2, bias_models.FineTuning(steps, 1e-3), pairs.encoder)
    assert len(set(keys)) == len(keys) == len(cases) + 3


@pytest.mark.parametrize(("examples", "expected"), [(5, 5), (100, 8)])
def test_the_weak_learner_sees_a_subset_of_the_other_folds(
    pairs, one_layer, monkeypatch, examples, expected
):
    seen = []
    monkeypatch.setattr(bias_models, "fine_tune", lambda _, texts, *rest: seen.append(len(texts)))
    weak = {"bias": "weak", "bias_encoder": str(one_layer), "bias_folds": 3, "bias_epochs": 1}
    scored(pairs, **weak, bias_examples=examples)
    assert seen == [expected] * 3


def test_a_weak_learner_with_fewer_positions_reads_less(tiny_bert, tmp_path, one_layer):
    """The run's texts have up to 200 tokens; the weak learner has positions for 128."""
    long = tuple(f"{line} " * 20 for line in helpers.LINES[:4])
    split = Split("train", long, (0, 1, 2, 0), helpers.LABELS)
    context = context_of(tiny_bert, tmp_path, split)
    context.max_length = 200
    weak = {"bias": "weak", "bias_encoder": str(one_layer), "bias_folds": 2, "bias_epochs": 1}
    assert scored(context, **weak).probabilities.shape == (4, 3)


def test_fine_tuning_learns_and_leaves_the_encoder_as_it_was(pairs, tiny_bert):
    everything = list(range(12))
    settings = bias_models.FineTuning(epochs=40, learning_rate=5e-3)
    with unchanged(tiny_bert):
        fit = bias_models.encoder_fit(tiny_bert, pairs.texts, settings, 0, "model", pairs.progress)
        found = fit(0, everything, everything)
    assert (found.argmax(1) == pairs.split.labels).mean() == 1.0  # it has seen them
    assert np.allclose(found.sum(1), 1)


def test_an_error_leaves_the_encoder_as_it_was(pairs, tiny_bert, monkeypatch):
    before = helpers.snapshot(tiny_bert)
    real = torch.optim.AdamW.step

    def step_and_fail(optimizer):
        real(optimizer)
        assert any(bool((before[n] != t).any()) for n, t in tiny_bert.tensors().items())
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.optim.AdamW, "step", step_and_fail)
    with unchanged(tiny_bert), pytest.raises(KeyboardInterrupt):
        encoder_scores(pairs, "teacher", 2, bias_models.FineTuning(1, 1e-2), pairs.encoder)


def test_the_teacher_is_the_runs_encoder_cross_fitted(pairs, monkeypatch):
    trained = []
    monkeypatch.setattr(bias_models, "fine_tune", lambda *a: trained.append(len(a[1])))
    scores = encoder_scores(pairs, "teacher", 4, bias_models.FineTuning(1, 1e-3), pairs.encoder)
    assert trained == [9, 9, 9, 9]
    with torch.no_grad():  # untrained copies: the encoder's own predictions
        expected = bias_models.class_probabilities(pairs.encoder, pairs.texts)
    assert np.allclose(scores.probabilities.numpy(), expected, atol=1e-5)


ROWS = [
    {"background": 0.5, "method": 0.25, "result": 0.25},
    {"background": 0, "method": 1, "result": 0},
    {"background": 0.3334, "method": 0.3333, "result": 0.3333},
    {"background": 0.1, "method": 0.1, "result": 0.8},
]


class Tracker(InputTracker):
    def __init__(self):
        self.files = []

    def file(self, objective, path):
        self.files.append((objective, path))


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_file_of_probabilities(suffix, tiny_bert, tmp_path):
    path = tmp_path / f"bias{suffix}"
    rows = [{**row, "text": line} for row, line in zip(ROWS, helpers.LINES, strict=False)]
    if suffix == ".csv":
        pd.DataFrame(rows).assign(id="x").to_csv(path, index=False)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    tracker = Tracker()
    context = context_of(tiny_bert, tmp_path, split_of(4), tracker=tracker)
    scores = scored(context, bias=str(path))
    assert tracker.files == [("primary", path)]
    expected = normalise(np.maximum([list(row.values()) for row in ROWS], FLOOR))
    assert scores.probabilities.numpy() == pytest.approx(expected, abs=1e-9)
    assert scores.accuracy == 0.75  # the third row finds the wrong class most probable


FAULTS = [
    ([*ROWS[:3]], "bias.jsonl has 3 rows, but there are 4 training examples"),
    ([*ROWS[:3], {"background": 1.0, "method": 0.0}], "bias.jsonl:4: the probabilities of"),
    (
        [*ROWS[:3], ROWS[0] | {"method": -0.25, "result": 0.75}],
        "bias.jsonl:4: the probabilities of",
    ),
    ([ROWS[0], ROWS[0] | {"method": 0.27}, *ROWS[:2]], ":2: the probabilities of"),
    ([{"background": 1.0, "other": 0.0}] * 4, "has no column 'method'"),
    ([ROWS[0] | {"text": "another"}] * 4, ":1: the text is not that of training example 1"),
]


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("missing.csv", UserError, "missing.csv"),
        ("overlapp", ConfigError, "expected overlap, segment, weak or a file"),
        ("bias.txt", ConfigError, "expected overlap, segment, weak or a file"),
        ("overlap", ConfigError, "bias: overlap needs pairs of texts"),
        ("segment", ConfigError, "bias: segment needs pairs of texts"),
    ],
)
def test_one_line_for_a_kind_that_is_none_or_does_not_fit(
    value, kind, message, tiny_bert, tmp_path
):
    with helpers.one_line(kind, message):
        scored(context_of(tiny_bert, tmp_path, split_of(4)), bias=value)


@pytest.mark.parametrize(("rows", "message"), FAULTS)
def test_one_line_for_a_file_that_does_not_fit(rows, message, tiny_bert, tmp_path):
    path = tmp_path / "bias.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with helpers.one_line(DataError, message):
        scored(context_of(tiny_bert, tmp_path, split_of(4)), bias=str(path))


KEYS = [(f"text {number % 70}",) for number in range(100)]  # thirty texts occur twice
LABELS = [0 if number % 70 < 40 else 1 + number % 2 for number in range(100)]


def test_each_example_is_scored_once_by_a_model_of_the_others():
    folds = assign_folds(LABELS, KEYS, 5, seed=0)
    assert set(folds) == set(range(5))
    smallest = assign_folds([0, 1, 0, 0, 1, 2, 0, 0], list(range(8)), 8, seed=3)
    assert sorted(smallest) == list(range(8))  # no fold is empty
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
