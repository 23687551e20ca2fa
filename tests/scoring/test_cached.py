"""Cached scores: sharded, resumed, shared between runs, computed on several devices."""

from __future__ import annotations

import logging
import threading

import pytest
import torch

from auxlearn.core.cache import TensorCache
from auxlearn.core.errors import EncoderError
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.scoring import cached
from auxlearn.scoring.cached import score_texts
from auxlearn.scoring.forward import TargetPass
from auxlearn.scoring.pseudo_likelihood import pseudo_log_likelihood
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


def test_texts_are_scored_shard_by_shard(trained_bert, tmp_path, monkeypatch):
    scored = counted(monkeypatch)
    monkeypatch.setattr(cached, "SHARD_TEXTS", 4)
    texts = tokenized(trained_bert, LINES[:11])
    score_texts(trained_bert, texts, TensorCache(tmp_path), passes=2)
    assert scored == [4, 4, 3]


def counted(monkeypatch):
    """Record how many texts each later call of the scorer is passed."""
    scored = []

    def counting(encoder, texts, *arguments):
        scored.append(len(texts))
        return pseudo_log_likelihood(encoder, texts, *arguments)

    monkeypatch.setattr(cached, "pseudo_log_likelihood", counting)
    return scored


def on_devices(monkeypatch, count):
    monkeypatch.setattr(cached, "scoring_devices", lambda encoder: [torch.device("cpu")] * count)
    monkeypatch.setattr(cached, "SHARD_TEXTS", 4)


def scores(encoder, texts, folder):
    return score_texts(encoder, texts, TensorCache(folder))


def test_two_devices_compute_the_scores_of_one(trained_bert, tmp_path, monkeypatch):
    texts = tokenized(trained_bert, LINES[:19])
    on_devices(monkeypatch, 1)
    alone = scores(trained_bert, texts, tmp_path / "one")
    on_devices(monkeypatch, 2)
    both_at_work, seen = threading.Barrier(2, timeout=60), []

    def spy(encoder, shard, *arguments):
        seen.append(encoder)
        if len(seen) <= 2:
            both_at_work.wait()  # passes only if two threads are scoring at once
        return pseudo_log_likelihood(encoder, shard, *arguments)

    monkeypatch.setattr(cached, "pseudo_log_likelihood", spy)
    assert torch.equal(scores(trained_bert, texts, tmp_path / "two"), alone)
    assert len(seen) == 5
    assert len(set(map(id, seen))) == 2
    names = [
        sorted(path.name for path in (tmp_path / n).glob("*.safetensors")) for n in ("one", "two")
    ]
    assert names[0] == names[1]
    seen.clear()
    assert torch.equal(scores(trained_bert, texts, tmp_path / "two"), alone)
    assert not seen, "scored again in spite of the cache"


def test_a_device_short_of_memory_halves_its_own_batches(trained_bert, tmp_path, monkeypatch):
    texts = tokenized(trained_bert, LINES[:16])
    on_devices(monkeypatch, 1)
    alone = scores(trained_bert, texts, tmp_path / "one")
    on_devices(monkeypatch, 2)
    both_at_work, small, sizes = threading.Barrier(2, timeout=60), [], {}
    plain = TargetPass.states

    def states(self, batches):
        me = threading.get_ident()
        if me not in sizes:
            sizes[me] = []
            small.append(me)
            both_at_work.wait()
        size = sum(batch.input_ids.numel() for batch in batches)
        if me == small[0] and size > 100:
            raise torch.OutOfMemoryError("no memory")
        sizes[me].append(size)
        return plain(self, batches)

    monkeypatch.setattr(TargetPass, "states", states)
    found = scores(trained_bert, texts, tmp_path / "two")
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=0)
    assert max(sizes[small[0]]) <= 100
    assert max(sizes[small[1]]) > 500


def without_memory(monkeypatch, lacks):
    """Let scoring run out of memory on the replicas that ``lacks`` selects; both take part."""
    both_at_work, seen = threading.Barrier(2, timeout=60), []

    def spy(encoder, shard, *arguments):
        if encoder not in seen:
            seen.append(encoder)
            if len(seen) <= 2:
                both_at_work.wait()
        if lacks(encoder):
            raise EncoderError("no memory to score one text") from torch.OutOfMemoryError()
        return pseudo_log_likelihood(encoder, shard, *arguments)

    monkeypatch.setattr(cached, "pseudo_log_likelihood", spy)
    return seen


def test_a_replica_without_memory_is_left_out(trained_bert, tmp_path, monkeypatch, caplog):
    texts = tokenized(trained_bert, LINES[:16])
    on_devices(monkeypatch, 1)
    alone = scores(trained_bert, texts, tmp_path / "one")
    on_devices(monkeypatch, 2)
    seen = without_memory(monkeypatch, lambda encoder: encoder is not trained_bert)
    found = scores(trained_bert, texts, tmp_path / "two")
    assert torch.equal(found, alone)
    assert len(seen) == 2
    assert caplog.text.count("cpu is not used for scoring: no memory") == 1


def test_no_memory_on_the_own_device_is_an_error(trained_bert, tmp_path, monkeypatch):
    texts = tokenized(trained_bert, LINES[:16])
    on_devices(monkeypatch, 2)
    without_memory(monkeypatch, lambda encoder: encoder is trained_bert)
    with pytest.raises(EncoderError, match="no memory to score one text"):
        scores(trained_bert, texts, tmp_path)


def test_a_device_without_room_for_a_replica_is_left_out(
    trained_bert, tmp_path, monkeypatch, caplog
):
    texts = tokenized(trained_bert, LINES[:8])
    on_devices(monkeypatch, 1)
    alone = scores(trained_bert, texts, tmp_path / "one")
    on_devices(monkeypatch, 2)
    message = "CUDA error: out of memory\nCUDA kernel errors might be reported later"
    with monkeypatch.context() as patch:
        patch.setattr(SharedEncoder, "to", lambda *_: (_ for _ in ()).throw(RuntimeError(message)))
        found = scores(trained_bert, texts, tmp_path / "two")
    assert torch.equal(found, alone)
    assert "cpu is not used for scoring: CUDA error: out of memory\n" in caplog.text


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
