"""Error messages for encoders that cannot be loaded."""

import shutil

import pytest
import torch
import transformers

from auxlearn.core.errors import EncoderError
from auxlearn.core.files import write_manifest
from auxlearn.core.settings import encoder_source
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


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"pad_token": "[PAD]"}, "has no mask token: masked language modelling needs one"),
        ({"mask_token": "[MASK]"}, "has no padding token"),
    ],
)
def test_a_tokenizer_without_a_token_that_is_needed(folder, tokens, message):
    known = transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer
    given = {"tokenizer_object": known, "unk_token": "[UNK]", **tokens}
    transformers.PreTrainedTokenizerFast(**given).save_pretrained(folder)
    assert message in refusal(folder)


def test_what_a_folder_lacks_is_named(folder, tmp_path):
    """Other faults of a folder are among the bad inputs."""
    export = shutil.copytree(folder, tmp_path / "export")
    write_manifest(export)
    (export / "tokenizer.json").unlink()
    assert "is damaged (tokenizer.json: No such file or directory)" in refusal(export)
    (folder / "model.safetensors").unlink()
    assert "holds no weights that are read: model.safetensors or pytorch_model" in refusal(folder)
    run = tmp_path / "run"
    shutil.move(folder, run / "model")
    assert refusal(run) == f"{run} holds no config.json: name {run / 'model'}"
    shutil.copy(run / "model" / "config.json", run)  # as in sentence-transformers' first folders
    assert refusal(run) == f"{run} holds no tokenizer: name {run / 'model'}"
    (run / "model").rename(run / "weights")
    (run / "1_Pooling").mkdir()
    (run / "1_Pooling" / "config.json").write_text("{}")
    assert refusal(run) == f"{run} holds no tokenizer: name {run / 'weights'}"
    assert refusal(tmp_path / "nowhere") == f"encoder folder {tmp_path}/nowhere does not exist"
    for name in ("./nowhere", "models/of/mine", "my models/bert", "a:b/c"):
        assert "does not exist" in refusal(name)
    assert "does not exist" in refusal(tmp_path / "model", load_classifier)


def test_an_unknown_short_name_gets_a_suggestion():
    message = refusal("sciber")
    assert message.startswith("unknown encoder 'sciber': did you mean 'scibert'?")
    assert "FacebookAI/roberta-base" in message
    assert "did you mean 'bert-base-uncased'?" in refusal("bert-base-uncase")


@pytest.mark.parametrize("name", ["someone/something", "roberta"])
def test_a_hub_that_cannot_be_reached(name, monkeypatch, tmp_path):
    # The suite runs with HF_HUB_OFFLINE; nothing is in this cache.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    message = refusal(name)
    assert f"encoder '{name}' ({encoder_source(name)}) is no folder and not in the cache" in message
    assert f"HF_HUB_OFFLINE is set): run `hf download {encoder_source(name)}`" in message


def test_load_classifier_gives_what_was_exported(tiny_bert, tmp_path):
    tiny_bert.save(tmp_path / "model", max_length=32)
    state = torch.random.get_rng_state()
    model, tokenizer = load_classifier(tmp_path / "model")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not model.training
    assert list(model.config.id2label.values()) == list(LABELS)
    assert tokenizer("the [SEP]")["input_ids"] == tiny_bert.tokenizer("the [SEP]")["input_ids"]


@pytest.mark.parametrize("family", ["bert", "roberta", "bart"])
def test_texts_longer_than_the_positions_are_refused(family, loaded):
    encoder = loaded(family)
    check_length(encoder.config, 128)
    with pytest.raises(EncoderError, match="use --max-length 128 or less"):
        check_length(encoder.config, 129)
    # The limit is the true one: it works, and one more does not.
    batch, longer = (
        helpers.collated(helpers.tokenized(encoder, ["the " * 200], max_length=length))
        for length in (128, 129)
    )
    with torch.no_grad():
        assert encoder.classify(batch).isfinite().all()
        with pytest.raises((IndexError, RuntimeError)):
            encoder.classify(longer)


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
