"""Whole runs of which only a part of the encoder is trained."""

import pytest
import torch
from safetensors.torch import load_file

from auxlearn import train
from auxlearn.core.errors import ConfigError
from auxlearn.encoders.load import load_encoder
from tests import helpers

UNROLLED = {"meta": {"horizon": "steps", "unroll": 2, "mix": "gradients", "warmup_steps": 0}}
SLOW = pytest.mark.slow
#: The conformance tests have steps of every weighting with frozen parts and with adapters.
PARTS = [({"freeze": "1"}, UNROLLED), ({"lora_rank": 2}, "fixed")]
PARTS += [pytest.param({"freeze": "1"}, w, marks=SLOW) for w in ("meta", "tartan", "metabalance")]
PARTS += [pytest.param({"lora_rank": 2}, w, marks=SLOW) for w in ("meta", "tartan", "metabalance")]


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


def test_a_killed_run_with_adapters_resumes_to_the_same_files(config, tmp_path):
    settings = {"lora_rank": 2, "lora_dropout": 0.1, "weights": "fixed", "epochs": 1}
    settings |= {"eval_steps": 2}
    whole = train(config(output=str(tmp_path / "whole"), **settings))
    helpers.kill_before_step(3, config(**settings))
    resumed = train(config(**settings))
    names = ("model/model.safetensors", "adapter/adapter_model.safetensors", "metrics.jsonl")
    helpers.assert_same_files(resumed.folder, whole.folder, *names)


def test_pairs_that_make_no_sense_are_refused(config):
    with pytest.raises(ValueError, match=r"lora_rank: .* leave freeze out"):
        config(lora_rank=2, freeze="body")
    with pytest.raises(ValueError, match="it is none, embeddings, body or a number of layers"):
        config(freeze="some")
    with pytest.raises(ConfigError, match="lora_rank: optimizer steps cannot be unrolled"):
        train(config(lora_rank=2, weights=UNROLLED))
    with pytest.raises(ConfigError, match="more than the"):
        train(config(freeze=50))


@pytest.mark.parametrize("part", ["body", "2"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weights": "meta"}, r"^freeze: {} leaves no .* meta has nothing .*: use weights fixed$"),
        ({"compile": True, "weights": "fixed"}, r"^compile: freeze {} leaves no .* --compile out$"),
    ],
)
def test_a_body_without_trained_parameters_is_refused(
    config, tmp_path, monkeypatch, part, given, message
):
    """However it is frozen: the encoder has two layers."""
    monkeypatch.setattr("auxlearn.training.run.check_compiler", lambda *_: None)
    with pytest.raises(ConfigError, match=message.format(part)):
        train(config(freeze=part, **given))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("family", ["bert", pytest.param("bart", marks=SLOW)])
def test_objectives_that_compare_dropout_need_some(config, encoder_folder, tmp_path, family):
    without = helpers.copy_without_dropout(encoder_folder(family), tmp_path / "still")
    for given, name in (
        ({"aux": ["consistency"]}, "consistency"),
        ({"aux": [], "loss": "r_drop"}, "r_drop"),
    ):
        given |= {"weights": "fixed", "epochs": 1}
        with pytest.raises(ConfigError, match=f"^{name} compares passes .* are 0: "):
            train(config(encoder=without, **given))
        train(config(encoder=str(encoder_folder(family)), output=str(tmp_path / name), **given))
    adapted = {"lora_rank": 2, "lora_dropout": 0.1, "weights": "fixed", "epochs": 1}
    train(config(encoder=without, aux=["consistency"], output=str(tmp_path / "lora"), **adapted))
