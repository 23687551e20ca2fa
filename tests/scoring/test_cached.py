"""Cached scores: sharded, resumed, shared between runs."""

from __future__ import annotations

import logging

import pytest
import torch

from auxlearn.core.cache import TensorCache
from auxlearn.scoring import pseudo_likelihood as cached
from auxlearn.scoring.pseudo_likelihood import pseudo_log_likelihood, score_texts
from tests.helpers import LINES, tokenized


def test_scores_of_packed_and_plain_linear_layers_are_cached_apart(
    trained_bert, tmp_path, monkeypatch
):
    """In bfloat16 they differ in the first decimal place."""
    texts = tokenized(trained_bert, LINES[:3])
    made = []
    for packed in (True, False, True, False):
        monkeypatch.setattr("auxlearn.scoring.forward.packing_works", lambda dtype, p=packed: p)
        monkeypatch.setattr(
            cached,
            "pseudo_log_likelihood",
            lambda *_, p=packed: made.append(p) or torch.zeros(len(texts.words)),
        )
        score_texts(trained_bert, texts, TensorCache(tmp_path), dtype=torch.bfloat16)
    assert made == [True, False]


def counted(monkeypatch):
    scored = []

    def counting(encoder, texts, *arguments):
        scored.append(len(texts))
        return pseudo_log_likelihood(encoder, texts, *arguments)

    monkeypatch.setattr(cached, "pseudo_log_likelihood", counting)
    return scored


def scores(encoder, texts, folder):
    return score_texts(encoder, texts, TensorCache(folder))


def test_scores_of_other_weights_are_computed(trained_bert, tmp_path, monkeypatch):
    texts = tokenized(trained_bert, LINES)
    scored = counted(monkeypatch)
    scores(trained_bert, texts, tmp_path)
    with torch.no_grad():
        trained_bert.language_model.cls.predictions.bias[7] += 0.1
    scores(trained_bert, texts, tmp_path)
    assert scored == [len(LINES)] * 2


def test_an_interrupted_scoring_resumes_at_the_next_shard(trained_bert, tmp_path, monkeypatch):
    texts = tokenized(trained_bert, LINES)
    monkeypatch.setattr(cached, "SHARD_TEXTS", 6)
    undisturbed = scores(trained_bert, texts, tmp_path / "other")
    calls = []

    def interrupted(encoder, shard, advance, *options):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(len(shard))
        return pseudo_log_likelihood(encoder, shard, advance, *options)

    monkeypatch.setattr(cached, "pseudo_log_likelihood", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scores(trained_bert, texts, tmp_path / "cache")
    scored = counted(monkeypatch)
    assert torch.equal(scores(trained_bert, texts, tmp_path / "cache"), undisturbed)
    assert scored == [6, 6]


def test_damaged_scores_are_computed_again(trained_bert, tmp_path, caplog):
    texts = tokenized(trained_bert, LINES)
    undisturbed = scores(trained_bert, texts, tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    with caplog.at_level(logging.WARNING):
        assert torch.equal(scores(trained_bert, texts, tmp_path), undisturbed)
    assert "is damaged: its content is computed again" in caplog.text
