"""How l3mask scores: its options reach the scorer, and the cache keeps them apart."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import pytest
import torch

from auxlearn.config import validate
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.errors import ConfigError, EncoderError
from auxlearn.masking.probabilities import rescale_to_mean
from auxlearn.scoring.forward import TargetPass, scoring_route
from auxlearn.scoring.pseudo_likelihood import score
from auxlearn.scoring.replicas import devices_beside, share_out
from auxlearn.tasks import l3mask
from auxlearn.tasks.l3mask import L3Mask, L3MaskOptions
from tests import helpers
from tests.helpers import LINES, tokenized

WAYS = (
    ({}, None, torch.float32),
    ({"passes": 3}, 3, torch.float32),
    ({"precision": "bf16"}, None, torch.bfloat16),
    ({"passes": 3, "precision": "bf16"}, 3, torch.bfloat16),
)


def test_options_reach_the_scorer_and_the_cache_keeps_them_apart(trained_bert, tmp_path):
    texts = tokenized(trained_bert, LINES[:3])
    found = []
    for options, passes, dtype in WAYS * 2:  # the second time out of the cache
        task = L3Mask(L3MaskOptions(**options))
        task.prepare(helpers.context(trained_bert, texts, tmp_path))
        logprobs = score(trained_bert, texts, passes=passes, dtype=dtype)
        for row, own in enumerate(task.probabilities.split(texts.lengths.tolist())):
            inside = slice(*texts.offsets[row : row + 2].tolist())
            where = texts.maskable[inside][None]
            wanted = rescale_to_mean(-torch.expm1(logprobs[inside].double())[None], where, 0.15)
            torch.testing.assert_close(own[None], wanted, atol=1e-6, rtol=0)
        found.append(task.probabilities)
    assert len(list(tmp_path.glob("*.safetensors"))) == len(WAYS)
    assert all(not torch.equal(found[0], other) for other in found[1 : len(WAYS)])


def test_scores_of_packed_and_plain_layers_are_kept_apart(trained_bert, tmp_path, monkeypatch):
    """In bf16 they differ in the first digit after the point."""
    texts = tokenized(trained_bert, LINES[:3])
    made = []
    for packed in (True, False, True, False):
        monkeypatch.setattr("auxlearn.scoring.forward.packing_works", lambda dtype, p=packed: p)
        monkeypatch.setattr(
            l3mask, "score", lambda *_, p=packed: made.append(p) or torch.zeros(len(texts.words))
        )
        task = L3Mask(L3MaskOptions(precision="bf16"))
        task.prepare(helpers.context(trained_bert, texts, tmp_path))
    assert made == [True, False]


def test_the_route_of_the_scores_names_what_computes(trained_bert, encoder_folder, monkeypatch):
    whole = load_encoder(str(encoder_folder("modernbert")), helpers.LABELS)
    assert scoring_route(whole, torch.float32) == ("cpu", "torch.float32", "whole pass")
    monkeypatch.setattr("auxlearn.scoring.forward.packing_works", lambda dtype: True)
    assert scoring_route(trained_bert, torch.bfloat16) == ("cpu", "torch.bfloat16", "packed")
    # Packed layers are for the CPU; parameters on another device never take them.
    elsewhere = trained_bert.to("meta")
    assert scoring_route(elsewhere, torch.bfloat16) == ("meta", "torch.bfloat16", "plain")


def test_the_scorer_never_sees_more_than_a_shard(trained_bert, tmp_path, monkeypatch):
    seen = []

    def spy(encoder, texts, *arguments):
        seen.append(len(texts))
        return score(encoder, texts, *arguments)

    monkeypatch.setattr(l3mask, "score", spy)
    monkeypatch.setattr(l3mask, "SHARD", 4)
    texts = tokenized(trained_bert, LINES[:11])
    task = L3Mask(L3MaskOptions(passes=2))
    task.prepare(helpers.context(trained_bert, texts, tmp_path))
    assert seen == [4, 4, 3]


def test_a_single_pass_is_refused():
    with pytest.raises(ConfigError, match=r"l3mask: passes: .* greater than or equal to 2, got 1"):
        validate(L3MaskOptions, {"passes": 1}, "l3mask")


def on_devices(monkeypatch, count):
    monkeypatch.setattr(l3mask, "devices_beside", lambda encoder: [torch.device("cpu")] * count)
    monkeypatch.setattr(l3mask, "SHARD", 4)


def probabilities(encoder, texts, folder):
    task = L3Mask(L3MaskOptions())
    task.prepare(helpers.context(encoder, texts, folder))
    return task.probabilities


def test_two_devices_score_what_one_does(trained_bert, tmp_path, monkeypatch):
    texts = tokenized(trained_bert, LINES[:19])
    on_devices(monkeypatch, 1)
    alone = probabilities(trained_bert, texts, tmp_path / "one")
    on_devices(monkeypatch, 2)
    both_at_work, seen = threading.Barrier(2, timeout=60), []

    def spy(encoder, shard, *arguments):
        seen.append(encoder)
        if len(seen) <= 2:
            both_at_work.wait()  # passes only if two threads are scoring at once
        return score(encoder, shard, *arguments)

    monkeypatch.setattr(l3mask, "score", spy)
    assert torch.equal(probabilities(trained_bert, texts, tmp_path / "two"), alone)
    assert len(seen) == 5
    assert len(set(map(id, seen))) == 2
    names = [
        sorted(path.name for path in (tmp_path / n).glob("*.safetensors")) for n in ("one", "two")
    ]
    assert names[0] == names[1]
    seen.clear()
    assert torch.equal(probabilities(trained_bert, texts, tmp_path / "two"), alone)
    assert not seen, "the cache was not asked"


def test_no_memory_on_one_device_halves_its_own_batches(trained_bert, tmp_path, monkeypatch):
    texts = tokenized(trained_bert, LINES[:16])
    on_devices(monkeypatch, 1)
    alone = probabilities(trained_bert, texts, tmp_path / "one")
    on_devices(monkeypatch, 2)
    both_at_work, small, sizes = threading.Barrier(2, timeout=60), [], {}
    plain = TargetPass.states

    def states(self, blocks):
        me = threading.get_ident()
        if me not in sizes:
            sizes[me] = []
            small.append(me)
            both_at_work.wait()
        size = sum(block.input_ids.numel() for block in blocks)
        if me == small[0] and size > 100:
            raise torch.OutOfMemoryError("no memory")
        sizes[me].append(size)
        return plain(self, blocks)

    monkeypatch.setattr(TargetPass, "states", states)
    found = probabilities(trained_bert, texts, tmp_path / "two")
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=0)
    assert max(sizes[small[0]]) <= 100
    assert max(sizes[small[1]]) > 500


def without_memory(monkeypatch, lacks):
    """Let scoring run out of memory for the encoders that ``lacks`` picks; both take part."""
    both_at_work, seen = threading.Barrier(2, timeout=60), []

    def spy(encoder, shard, *arguments):
        if encoder not in seen:
            seen.append(encoder)
            if len(seen) <= 2:
                both_at_work.wait()
        if lacks(encoder):
            raise EncoderError("no memory to score one text") from torch.OutOfMemoryError()
        return score(encoder, shard, *arguments)

    monkeypatch.setattr(l3mask, "score", spy)
    return seen


def test_another_device_without_memory_is_left_out(trained_bert, tmp_path, monkeypatch, caplog):
    texts = tokenized(trained_bert, LINES[:16])
    on_devices(monkeypatch, 1)
    alone = probabilities(trained_bert, texts, tmp_path / "one")
    on_devices(monkeypatch, 2)
    seen = without_memory(monkeypatch, lambda encoder: encoder is not trained_bert)
    found = probabilities(trained_bert, texts, tmp_path / "two")
    assert torch.equal(found, alone)
    assert len(seen) == 2
    assert caplog.text.count("cpu does not take part in scoring: no memory") == 1


def test_no_memory_on_the_devices_of_the_run_ends_it(trained_bert, tmp_path, monkeypatch):
    texts = tokenized(trained_bert, LINES[:16])
    on_devices(monkeypatch, 2)
    without_memory(monkeypatch, lambda encoder: encoder is trained_bert)
    with pytest.raises(EncoderError, match="no memory to score one text"):
        probabilities(trained_bert, texts, tmp_path)


def test_a_device_without_room_for_a_replica_is_left_out(
    trained_bert, tmp_path, monkeypatch, caplog
):
    texts = tokenized(trained_bert, LINES[:8])
    on_devices(monkeypatch, 1)
    alone = probabilities(trained_bert, texts, tmp_path / "one")
    on_devices(monkeypatch, 2)
    message = "CUDA error: out of memory\nCUDA kernel errors might be reported later"
    with monkeypatch.context() as patch:
        patch.setattr(SharedEncoder, "to", lambda *_: (_ for _ in ()).throw(RuntimeError(message)))
        found = probabilities(trained_bert, texts, tmp_path / "two")
    assert torch.equal(found, alone)
    assert "cpu does not take part in scoring: CUDA error: out of memory\n" in caplog.text


def test_replicas_and_their_memory_are_given_back(trained_bert, monkeypatch):
    alive, emptied = [], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def empty():
        emptied.append([encoder() for encoder in alive if encoder() is not trained_bert])

    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    monkeypatch.setattr(SharedEncoder, "to", lambda self, device: self)
    both_at_work = threading.Barrier(2, timeout=60)

    def work(encoder, item):
        both_at_work.wait()
        alive.append(weakref.ref(encoder))
        return item

    cpu = torch.device("cpu")
    gc.disable()  # what only the collector finds is not given back in time
    try:
        assert share_out(trained_bert, [cpu, cpu], work, [0, 1]) == [0, 1]
    finally:
        gc.enable()
    assert len(alive) == 2
    assert emptied == [[None]]


def test_other_gpus_help_only_where_the_run_is_on_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)

    def devices(name):
        return [str(d) for d in devices_beside(SimpleNamespace(device=torch.device(name)))]

    assert devices("cpu") == ["cpu"]
    assert devices("cuda:1") == ["cuda:1", "cuda:0", "cuda:2"]
