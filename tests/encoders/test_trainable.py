"""Frozen layers and low-rank adapters, for every architecture."""

import json
import sys
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from auxlearn.core.errors import ConfigError
from auxlearn.data.batches import collate
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.trainable import LowRankAdapters, describe_trained, freeze, layers_of
from tests.helpers import FAMILIES, LABELS, LINES, tokenized


@pytest.fixture(params=sorted(FAMILIES))
def encoder(request, loaded):
    return loaded(request.param)


def trained(encoder):
    return {name for name, p in encoder.named_parameters() if p.requires_grad}


def spread(encoder):
    """Draw the second factor of the adapters, which is zero at first."""
    draws = torch.Generator().manual_seed(2)
    for name, parameter in encoder.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.3, generator=draws)


def batch_of(encoder):
    return collate(tokenized(encoder, LINES[:3]), torch.arange(3))


def test_embeddings_are_frozen_and_nothing_else(encoder):
    config = encoder.config
    number = (
        config.encoder_layers + config.decoder_layers
        if config.is_encoder_decoder
        else config.num_hidden_layers
    )
    if encoder.config.model_type == "albert":
        number = 1  # its layers share their parameters
    assert len(layers_of(encoder.body)) == number
    everything = trained(encoder)
    freeze(encoder, "embeddings")
    frozen = everything - trained(encoder)
    assert not encoder.body.get_input_embeddings().weight.requires_grad
    layers = {id(p) for layer in layers_of(encoder.body) for p in layer.parameters()}
    assert all(p.requires_grad for p in encoder.parameters() if id(p) in layers)
    assert all("embed" in name or "shared" in name or "decoder" in name for name in frozen)


def test_lowest_layers_or_the_body_are_frozen(encoder):
    with pytest.raises(ConfigError, match=r"freeze: 99 layers are more than the \d+ of this"):
        freeze(encoder, "99")
    freeze(encoder, "1")
    first, *rest = layers_of(encoder.body)
    assert not any(p.requires_grad for p in first.parameters())
    assert all(p.requires_grad for layer in rest for p in layer.parameters())
    assert not encoder.body.get_input_embeddings().weight.requires_grad
    freeze(encoder, "body")
    assert not any(p.requires_grad for p in encoder.body_parameters())
    assert all(p.requires_grad for p in encoder.classification_parameters())
    number = sum(p.numel() for p in encoder.classification_parameters())
    assert describe_trained(encoder).startswith(f"{number:,} of ")
    encoder.require_language_model("an auxiliary task")
    own = set(encoder.language_model.parameters()) - set(encoder.body.parameters())
    number += sum(p.numel() for p in own)
    assert describe_trained(encoder).startswith(f"{number:,} of ")


def test_adapters_change_nothing_at_first_and_are_merged_exactly(encoder):
    batch = batch_of(encoder)
    with torch.no_grad():
        plain = encoder.classify(batch)
        heads = {id(p) for p in encoder.head_parameters()}
        adapters = LowRankAdapters(encoder, 2, 4.0, 0.5, seed=1)
        encoder.eval()
        torch.testing.assert_close(encoder.classify(batch), plain, rtol=0, atol=0)
        names = [name for name in trained(encoder) if "lora_" in name]
        body = {id(p) for p in encoder.body_parameters()}
        assert names
        for name, parameter in encoder.named_parameters():
            if id(parameter) in body:
                assert parameter.requires_grad == ("lora_" in name), name
            elif id(parameter) in heads:
                assert parameter.requires_grad, name
        spread(encoder)
        adapted = encoder.classify(batch)
        assert (adapted - plain).abs().max() > 1e-3
        adapters.merge()
        torch.testing.assert_close(encoder.classify(batch), adapted, rtol=1e-4, atol=1e-5)
    assert not [name for name in encoder.tensors() if "lora_" in name]


# The library asks transformers for a name that will go.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_saved_adapters_and_their_head_are_read_by_peft(
    encoder_folder, tmp_path, family, monkeypatch
):
    folder = encoder_folder(family)
    encoder = load_encoder(str(folder), LABELS)
    adapters = LowRankAdapters(encoder, 2, 4.0, 0.0, seed=1)
    spread(encoder)
    with torch.no_grad():
        for parameter in encoder.classification_parameters():
            parameter.normal_(0.0, 0.3)
    monkeypatch.setattr("socket.create_connection", None)
    adapters.save(tmp_path, "tiny")
    written = json.loads((tmp_path / "adapter_config.json").read_text())
    assert Path(written["base_model_name_or_path"]).is_dir()  # the package's own
    layers = [name for name, _ in encoder.body.named_modules()]
    places = [layers.index(name) for name in written["target_modules"]]
    assert places == sorted(places), "their order is that of the layers, and not by chance"
    base = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(LABELS), dtype=torch.float32
    )
    loaded = PeftModel.from_pretrained(base, str(tmp_path)).eval()
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    spreads = [one.abs().sum() > 0 for name, one in loaded.named_parameters() if "lora_B" in name]
    assert spreads
    assert all(spreads)
    assert len(spreads) == sum("lora_B" in name for name in tensors)
    batch = batch_of(encoder.eval())
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    if batch.token_type_ids is not None:
        inputs["token_type_ids"] = batch.token_type_ids
    with torch.no_grad():
        found = loaded(**inputs).logits
        torch.testing.assert_close(found, encoder.classify(batch), rtol=1e-4, atol=1e-5)


def test_the_error_without_peft_says_what_to_install(tiny_bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"pip install 'auxlearn\[lora\]'"):
        LowRankAdapters(tiny_bert, 2, 4.0, 0.0, seed=1)
