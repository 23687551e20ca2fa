"""Replicas of an encoder on several devices."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import torch

from auxlearn.encoders.shared import SharedEncoder
from auxlearn.scoring.replicas import map_on_replicas, scoring_devices


def test_replicas_and_their_memory_are_freed(trained_bert, monkeypatch):
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
        assert map_on_replicas(trained_bert, [cpu, cpu], work, [0, 1]) == [0, 1]
    finally:
        gc.enable()
    assert len(alive) == 2
    assert emptied == [[None]]


def test_other_gpus_are_used_only_if_the_encoder_is_on_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)

    def devices(name):
        return [str(d) for d in scoring_devices(SimpleNamespace(device=torch.device(name)))]

    assert devices("cpu") == ["cpu"]
    assert devices("cuda:1") == ["cuda:1", "cuda:0", "cuda:2"]
