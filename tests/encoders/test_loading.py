"""Error messages for encoders that cannot be loaded."""

from __future__ import annotations

import shutil

import pytest
import torch
import transformers

from auxlearn.core.errors import EncoderError
from auxlearn.core.settings import ENCODERS, encoder_source, recommended_learning_rate
from auxlearn.encoders.load import check_length, load_classifier, load_encoder
from tests import helpers
from tests.helpers import LABELS


@pytest.fixture
def folder(encoder_folder, tmp_path):
    return shutil.copytree(encoder_folder("bert"), tmp_path / "bert")


def refusal(name, load=load_encoder):
    with pytest.raises(EncoderError) as caught:
        load(str(name), LABELS) if load is load_encoder else load(name)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_pickled_weights_are_not_read(folder):
    """Other faults of a folder are among the bad inputs."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    assert "weights in other formats are not read" in refusal(folder)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"pad_token": "[PAD]"}, "has no mask token: masked language modelling needs one"),
        ({"mask_token": "[MASK]"}, "has no padding token"),
    ],
)
def test_a_tokenizer_without_a_token_that_is_needed(folder, tokens, message):
    known = transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=known, unk_token="[UNK]", **tokens
    ).save_pretrained(folder)
    assert message in refusal(folder)


def test_of_a_run_folder_its_model_is_meant(folder):
    shutil.move(folder, folder.parent / "run" / "model")
    run = folder.parent / "run"
    assert refusal(run) == f"{run} holds no config.json: name {run / 'model'}"


def test_an_unknown_short_name_gets_a_suggestion():
    message = refusal("sciber")
    assert message.startswith("unknown encoder 'sciber': did you mean 'scibert'?")
    assert "FacebookAI/roberta-base" in message
    assert "did you mean 'bert'?" in refusal("bert-base-uncased")


def test_a_folder_that_does_not_exist(tmp_path):
    assert refusal(tmp_path / "nowhere") == f"encoder folder {tmp_path}/nowhere does not exist"
    assert "does not exist" in refusal("./nowhere")
    assert "does not exist" in refusal("models/of/mine")


@pytest.mark.parametrize("name", ["someone/something", "roberta"])
def test_a_hub_that_cannot_be_reached(name, monkeypatch, tmp_path):
    # The suite runs with HF_HUB_OFFLINE; nothing is in this cache.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    message = refusal(name)
    assert f"encoder '{name}' ({encoder_source(name)}) cannot be fetched from the hub" in message
    assert "--encoder" in message


def test_a_run_folder_without_a_model(tmp_path):
    assert "does not exist" in refusal(tmp_path / "model", load_classifier)


def test_load_classifier_gives_what_was_exported(tiny_bert, tmp_path):
    tiny_bert.save(tmp_path / "model", max_length=32)
    state = torch.random.get_rng_state()
    model, tokenizer = load_classifier(tmp_path / "model")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not model.training
    assert list(model.config.id2label.values()) == list(LABELS)
    assert tokenizer("the [SEP]")["input_ids"] == tiny_bert.tokenizer("the [SEP]")["input_ids"]


@pytest.mark.parametrize("family", ["bert", "roberta", "bart"])
def test_texts_longer_than_the_positions_are_refused(family, encoder_folder):
    limit = 128
    encoder = load_encoder(str(encoder_folder(family)), LABELS)
    check_length(encoder.config, limit)
    with pytest.raises(EncoderError, match=f"use --max-length {limit} or less"):
        check_length(encoder.config, limit + 1)
    # The limit is the true one: it works, and one more does not.
    texts = helpers.tokenized(encoder, ["the " * 200], max_length=limit)
    batch = helpers.collated(texts)
    with torch.no_grad():
        assert encoder.classify(batch).isfinite().all()
    longer = helpers.collated(helpers.tokenized(encoder, ["the " * 200], max_length=limit + 1))
    with torch.no_grad(), pytest.raises((IndexError, RuntimeError)):
        encoder.classify(longer)


def test_short_names():
    assert encoder_source("scibert") == "allenai/scibert_scivocab_uncased"
    assert encoder_source("some/where") == "some/where"
    assert recommended_learning_rate("tiny") == ENCODERS["tiny"].learning_rate
    assert recommended_learning_rate("some/where") == recommended_learning_rate("bert")


@pytest.mark.parametrize(
    ("family", "rate_of"),
    [
        ("bert", lambda body: body.encoder.layer[0].attention.self.dropout.p),
        ("roberta", lambda body: body.encoder.layer[1].attention.self.dropout.p),
        ("distilbert", lambda body: body.transformer.layer[0].attention.dropout.p),
        ("deberta-v2", lambda body: body.encoder.layer[0].attention.self.dropout.p),
        ("bart", lambda body: body.decoder.layers[0].self_attn.dropout),
    ],
)
def test_attention_dropout_is_replaced(family, rate_of, encoder_folder):
    folder = str(encoder_folder(family))
    own = load_encoder(folder, LABELS)
    other = load_encoder(folder, LABELS, attention_dropout=0.25)
    assert rate_of(own.body) == (0.0 if family == "bart" else 0.1)
    assert rate_of(other.body) == rate_of(other.language_model.base_model) == 0.25
    # Dropout takes no part in a score, so scores are found again.
    assert own.language_model_fingerprint() == other.language_model_fingerprint()
