"""Bias models: every kind, the cache, the seed, files, and one line for each mistake."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch

from auxlearn.core.cache import content_key
from auxlearn.core.errors import ConfigError, DataError, UserError
from auxlearn.core.validation import validate
from auxlearn.data.dataset import Split
from auxlearn.losses import bias, bias_models
from auxlearn.losses.bias import FLOOR, BiasOptions, bias_scores, encoder_scores
from auxlearn.objectives.context import InputTracker
from tests import helpers
from tests.losses.common import context_of, split_of


def options(**values):
    return validate(BiasOptions, values, "loss")


@pytest.fixture
def pairs(tiny_bert, tmp_path):
    return context_of(tiny_bert, tmp_path / "cache", split_of(12, pairs=True))


@pytest.fixture
def biased(tiny_bert, tmp_path):
    """Pairs whose class is whether the second text is part of the first."""
    first, second, labels = [], [], []
    for number, line in enumerate(helpers.LINES):
        words = line.split()
        label = number % 2
        first.append(line)
        second.append(" ".join(words[:4]) if label else f"nothing number {number} of this")
        labels.append(label)
    split = Split("train", tuple(first), tuple(labels), ("no", "yes"), tuple(second))
    return context_of(tiny_bert, tmp_path / "cache", split)


def test_overlap_finds_overlap(biased):
    scores = bias_scores(biased, options(bias="overlap", bias_folds=3))
    assert scores.accuracy == 1.0
    assert bool((scores.probabilities.argmax(1) == torch.tensor(biased.split.labels)).all())


@pytest.mark.parametrize(("segment", "better"), [("second", True), ("first", False)])
def test_a_segment_alone(biased, segment, better):
    scores = bias_scores(biased, options(bias="segment", bias_segment=segment, bias_folds=4))
    assert (scores.accuracy > 0.9) == better


def test_equal_segments_are_in_one_fold(tiny_bert, tmp_path, monkeypatch):
    """The model of one text would know the label of a text that it has read in another pair."""
    same = tuple(f"only word{number // 2}" for number in range(12))
    split = Split("train", helpers.LINES[:12], (0, 0, 1, 1) * 3, ("a", "b"), same)
    folds = []
    real = bias.assign_folds
    monkeypatch.setattr(bias, "assign_folds", lambda *a: folds.append(real(*a)) or folds[-1])
    bias_scores(context_of(tiny_bert, tmp_path, split), options(bias="segment", bias_folds=3))
    assert folds[0][::2] == folds[0][1::2]
    assert set(folds[0]) == {0, 1, 2}


@pytest.mark.parametrize("kind", ["overlap", "segment"])
def test_one_line_for_single_texts(kind, tiny_bert, tmp_path):
    with helpers.one_line(ConfigError, f"bias: {kind} needs pairs of texts"):
        bias_scores(context_of(tiny_bert, tmp_path), options(bias=kind))


@pytest.mark.parametrize("kind", ["overlap", "segment", "weak"])
def test_cached_seeded_and_floored(kind, pairs, tiny_bert, tmp_path, one_layer, monkeypatch):
    chosen = options(
        bias=kind, bias_folds=2, bias_encoder=str(one_layer), bias_examples=4, bias_epochs=1
    )
    fitted = []
    real = bias.cross_fit
    monkeypatch.setattr(bias, "cross_fit", lambda *a: fitted.append(1) or real(*a))
    before = torch.default_generator.get_state()
    first = bias_scores(pairs, chosen)
    again = bias_scores(pairs, chosen)
    assert len(fitted) == 1  # the second came from the cache
    other_cache = context_of(tiny_bert, tmp_path / "other", pairs.split)
    fresh = bias_scores(other_cache, chosen)
    assert len(fitted) == 2
    assert torch.equal(first.probabilities, again.probabilities)
    assert torch.equal(first.probabilities, fresh.probabilities)
    other_seed = context_of(tiny_bert, tmp_path / "cache", pairs.split, seed=1)
    assert not torch.equal(first.probabilities, bias_scores(other_seed, chosen).probabilities)
    assert torch.equal(before, torch.default_generator.get_state())
    assert first.probabilities.shape == (12, 3)
    assert first.probabilities.dtype == torch.float64
    assert first.probabilities.sum(1).tolist() == pytest.approx([1.0] * 12, abs=1e-12)
    assert float(first.probabilities.min()) > 0.99 * FLOOR


def test_the_cache_key_has_all_that_matters(pairs, tiny_bert, tmp_path, one_layer, monkeypatch):
    keys = []
    monkeypatch.setattr(
        type(pairs.cache), "get", lambda self, key, compute: keys.append(key) or _uniform()
    )
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
    monkeypatch.setattr(bias.Tokenization, "tokenize_split", lambda *given: pairs.texts)
    for case in cases:
        bias_scores(pairs, options(**case))
    split = split_of(12, pairs=True)
    relabelled = Split(
        "train", split.texts, split.labels[::-1], split.label_names, split.text_pairs
    )
    bias_scores(context_of(tiny_bert, tmp_path, relabelled), options(bias="overlap"))
    with torch.no_grad():
        next(tiny_bert.classifier.parameters()).add_(1)
    for steps in (1, 2):
        encoder_scores(pairs, "teacher", 2, bias_models.FineTuning(steps, 1e-3), pairs.encoder)
    assert len(set(keys)) == len(keys) == len(cases) + 3


def _uniform():
    return {"probabilities": torch.full((12, 3), 1 / 3, dtype=torch.float64)}


def test_the_weak_learner_sees_a_subset_of_the_other_folds(pairs, one_layer, monkeypatch):
    seen = []
    real = bias_models.fine_tune

    def remember(encoder, texts, *rest):
        seen.append(len(texts))
        real(encoder, texts, *rest)

    monkeypatch.setattr(bias_models, "fine_tune", remember)
    chosen = {"bias": "weak", "bias_encoder": str(one_layer), "bias_folds": 3, "bias_epochs": 1}
    bias_scores(pairs, options(**chosen, bias_examples=5))
    assert seen == [5, 5, 5]
    seen.clear()
    bias_scores(pairs, options(**chosen, bias_examples=100))
    assert seen == [8, 8, 8]


def test_a_weak_learner_with_fewer_positions_reads_less(tiny_bert, tmp_path, one_layer):
    """The run's texts have up to 200 tokens; the weak learner has positions for 128."""
    long = tuple(f"{line} " * 20 for line in helpers.LINES[:4])
    split = Split("train", long, (0, 1, 2, 0), helpers.LABELS)
    context = context_of(tiny_bert, tmp_path, split)
    context.max_length = 200
    chosen = options(bias="weak", bias_encoder=str(one_layer), bias_folds=2, bias_epochs=1)
    assert bias_scores(context, chosen).probabilities.shape == (4, 3)


def test_fine_tuning_learns_and_leaves_the_encoder_as_it_was(pairs, tiny_bert):
    before = helpers.snapshot(tiny_bert)
    texts, everything = pairs.texts, list(range(12))
    settings = bias_models.FineTuning(epochs=40, learning_rate=5e-3)
    fit = bias_models.encoder_fit(tiny_bert, texts, settings, 0, "model", pairs.progress)
    found = fit(0, everything, everything)
    assert (found.argmax(1) == pairs.split.labels).mean() == 1.0  # it has seen them
    assert np.allclose(found.sum(1), 1)
    after = helpers.snapshot(tiny_bert)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not tiny_bert.training
    assert all(parameter.grad is None for parameter in tiny_bert.parameters())


def test_an_error_leaves_the_encoder_as_it_was(pairs, tiny_bert, monkeypatch):
    before = helpers.snapshot(tiny_bert)

    real = torch.optim.AdamW.step

    def step_and_fail(optimizer):
        real(optimizer)
        assert any(bool((before[n] != t).any()) for n, t in tiny_bert.tensors().items())
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.optim.AdamW, "step", step_and_fail)
    with pytest.raises(KeyboardInterrupt):
        encoder_scores(pairs, "teacher", 2, bias_models.FineTuning(1, 1e-2), pairs.encoder)
    after = helpers.snapshot(tiny_bert)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not tiny_bert.training


def test_the_teacher_is_the_runs_encoder_cross_fitted(pairs, monkeypatch):
    trained = []
    monkeypatch.setattr(bias_models, "fine_tune", lambda *a: trained.append(len(a[1])))
    scores = encoder_scores(pairs, "teacher", 4, bias_models.FineTuning(1, 1e-3), pairs.encoder)
    assert trained == [9, 9, 9, 9]
    with torch.no_grad():  # untrained copies: the encoder's own predictions
        expected = bias_models.class_probabilities(pairs.encoder, pairs.texts)
    assert np.allclose(scores.probabilities.numpy(), expected, atol=1e-5)


def test_probabilities_of_an_encoder_are_kept_by_device(pairs, monkeypatch):
    """``meta`` stands for an accelerator, whose rounding is another."""
    monkeypatch.setattr(bias_models, "fine_tune", lambda *_: None)
    keys = []
    monkeypatch.setattr(
        "auxlearn.losses.bias.content_key", lambda *values: keys.append(content_key(*values)) or "k"
    )
    encoder_scores(pairs, "teacher", 4, bias_models.FineTuning(1, 1e-3), pairs.encoder)
    monkeypatch.setattr(type(pairs.encoder), "device", torch.device("meta"))
    encoder_scores(pairs, "teacher", 4, bias_models.FineTuning(1, 1e-3), pairs.encoder)
    assert len(set(keys)) == 2


def test_a_bias_model_is_reported(biased, caplog):
    caplog.set_level(logging.INFO, "auxlearn")
    bias_scores(biased, options(bias="overlap", bias_folds=3))
    assert "bias model overlap: accuracy on the training examples 1.000, majority" in caplog.text
    caplog.clear()
    bias_scores(biased, options(bias="segment", bias_segment="first", bias_folds=4))
    (warning,) = (one for one in caplog.records if one.levelno == logging.WARNING)
    assert "no better than the majority class" in warning.getMessage()


# ----------------------------------------------------------------------------------------- files

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
        cells = [",".join((*row, "id")) for row in rows[:1]]
        cells += [",".join((*(f'"{v}"' for v in row.values()), "x")) for row in rows]
        path.write_text("\n".join(cells))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    tracker = Tracker()
    context = context_of(tiny_bert, tmp_path, split_of(4), tracker=tracker)
    scores = bias_scores(context, options(bias=str(path)))
    assert tracker.files == [("primary", path)]
    expected = np.maximum([list(row.values()) for row in ROWS], FLOOR)
    expected /= expected.sum(1, keepdims=True)
    assert scores.probabilities.numpy() == pytest.approx(expected, abs=1e-9)
    assert scores.accuracy == 0.75  # the third row finds the wrong class most probable


FAULTS = [
    ([*ROWS[:3]], "bias.jsonl has 3 rows, but there are 4 training examples"),
    ([*ROWS, ROWS[0]], "has 5 rows"),
    ([*ROWS[:3], {"background": 1.0, "method": 0.0}], "bias.jsonl:4: a number from 0 to 1"),
    ([*ROWS[:3], {**ROWS[0], "method": "much"}], "bias.jsonl:4: a number from 0 to 1"),
    ([*ROWS[:3], {**ROWS[0], "method": -0.25, "result": 0.75}], "bias.jsonl:4: a number from 0"),
    (
        [ROWS[0], {**ROWS[0], "method": 0.27}, *ROWS[:2]],
        "bias.jsonl:2: the probabilities sum to 1.02",
    ),
    ([{"background": 1.0, "other": 0.0}] * 4, "has no column 'method'"),
    (
        [{**ROWS[0], "text": "another"}] * 4,
        "bias.jsonl:1: the text is not that of training example 1",
    ),
]


@pytest.mark.parametrize(("rows", "message"), FAULTS)
def test_one_line_for_a_file_that_does_not_fit(rows, message, tiny_bert, tmp_path):
    path = tmp_path / "bias.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with helpers.one_line(DataError, message):
        bias_scores(context_of(tiny_bert, tmp_path, split_of(4)), options(bias=str(path)))


def test_one_line_for_a_missing_file_and_for_an_unknown_kind(tiny_bert, tmp_path):
    context = context_of(tiny_bert, tmp_path, split_of(4))
    missing = options(bias=str(tmp_path / "missing.csv"))
    with helpers.one_line(UserError, "missing.csv"):
        bias_scores(context, missing)
    for value, said in (
        ("overlapp", "expected overlap, segment, weak or a file"),
        ("bias.txt", "expected overlap, segment, weak or a file"),
        ("", "not an empty text"),
    ):
        with helpers.one_line(ConfigError, said):
            options(bias=value)
