"""Whole runs of which only a part of the encoder is trained."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from auxlearn import train
from auxlearn.encoders.load import load_encoder
from auxlearn.errors import ConfigError
from tests import helpers

UNROLLED = {"meta": {"horizon": "steps", "unroll": 2, "mix": "gradients", "warmup_steps": 0}}
WEIGHTINGS = ["fixed", "meta", "tartan", "metabalance"]
PARTS = [({"freeze": "1"}, w) for w in [*WEIGHTINGS, UNROLLED]]
PARTS += [({"lora_rank": 2}, w) for w in WEIGHTINGS]


@pytest.mark.parametrize(("part", "weights"), PARTS, ids=str)
def test_what_is_frozen_stays_as_pretrained(config, tmp_path, part, weights):
    one = config(weights=weights, epochs=1, **part)
    results = train(one)
    before = load_encoder(one.encoder, helpers.LABELS).classifier.state_dict()
    after = load_file(tmp_path / "run" / "model" / "model.safetensors")
    same = {name for name in after if torch.equal(after[name], before[name])}
    layer = ".0." if "freeze" in part else "word_embeddings"
    frozen = {name for name in after if layer in name or "embeddings" in name}
    assert frozen
    assert frozen <= same
    assert any(".1." in name and name not in same for name in after)
    assert results.steps == 6


def test_a_killed_run_with_adapters_resumes_to_the_same_files(config, tmp_path, monkeypatch):
    settings = {"lora_rank": 2, "lora_dropout": 0.1, "weights": "fixed", "epochs": 1}
    train(config(output=str(tmp_path / "whole"), eval_steps=2, **settings))
    with monkeypatch.context() as patch:
        helpers.stop_before_step(patch, 3, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            train(config(output=str(tmp_path / "killed"), eval_steps=2, **settings))
    train(config(output=str(tmp_path / "killed"), eval_steps=2, **settings))
    for name in ("model/model.safetensors", "adapter/adapter_model.safetensors", "metrics.jsonl"):
        first, second = ((tmp_path / run / name).read_bytes() for run in ("whole", "killed"))
        assert first == second, name


def test_pairs_that_make_no_sense_are_refused(config):
    with pytest.raises(ValueError, match=r"lora_rank: .* leave freeze out"):
        config(lora_rank=2, freeze="body")
    with pytest.raises(ValueError, match=r"freeze: body leaves no .* use weights fixed"):
        config(freeze="body", weights="meta")
    with pytest.raises(ValueError, match="freeze"):
        config(freeze="some")
    with pytest.raises(ConfigError, match="lora_rank: optimizer steps cannot be unrolled"):
        train(config(lora_rank=2, weights=UNROLLED))
    with pytest.raises(ConfigError, match="more than the"):
        train(config(freeze=50))
