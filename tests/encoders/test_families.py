"""Every supported architecture against the native models of transformers."""

import logging
from dataclasses import replace

import pytest
import torch
import transformers
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from auxlearn.core.errors import EncoderError
from auxlearn.data.batches import Batch
from auxlearn.encoders.families import FAMILIES as SUPPORTED, family_of
from auxlearn.encoders.load import load_encoder
from auxlearn.training.terms import placements_of
from tests import helpers
from tests.helpers import FAMILIES, HARD_TEXTS, LABELS, tokenized

TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def encoder(family, loaded):
    """For tests that change nothing of it."""
    return loaded(family)


@pytest.fixture
def own(family, loaded):
    """Loaded for one test."""
    return loaded(family)


def batch_of(encoder, texts=HARD_TEXTS):
    return helpers.collated(tokenized(encoder, texts))


def masked(encoder, batch):
    draws = torch.rand(batch.input_ids.shape, generator=torch.Generator().manual_seed(2))
    positions = (draws < 0.3) & batch.maskable
    ids = batch.input_ids.masked_fill(positions, encoder.tokenizer.mask_token_id)
    return replace(batch, input_ids=ids), positions


def native_inputs(encoder, batch):
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    if batch.token_type_ids is not None:
        inputs["token_type_ids"] = batch.token_type_ids
    return inputs


def as_if_trained(encoder):
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.01)


def test_loading_gives_no_warning_and_both_models_share_one_body(family, encoder_folder, caplog):
    before = torch.random.get_rng_state()
    with caplog.at_level(logging.WARNING):
        encoder = load_encoder(str(encoder_folder(family)), LABELS, seed=3)
    assert caplog.records == []
    assert torch.equal(torch.random.get_rng_state(), before)
    prefix = encoder.classifier.base_model_prefix
    assert getattr(encoder.language_model, prefix) is encoder.body is encoder.classifier.base_model
    embedding = encoder.body.get_input_embeddings().weight
    output = encoder.language_model.get_output_embeddings().weight
    if encoder.config.tie_word_embeddings:
        assert output is embedding
    names = [name for name, parameter in encoder.named_parameters() if parameter is embedding]
    assert len(names) == 1


@pytest.mark.parametrize("pairs", [None, HARD_TEXTS[::-1]])
def test_classify_equals_the_native_classifier(encoder, pairs):
    batch = helpers.collated(tokenized(encoder, HARD_TEXTS, pairs=pairs))
    with torch.no_grad():
        ours = encoder.classify(batch)
        native = encoder.classifier(**native_inputs(encoder, batch)).logits
    torch.testing.assert_close(ours, native, **TOLERANCE)
    assert ours.shape == (len(HARD_TEXTS), 3)
    assert ours.std(0).min() > 1e-3  # equal rows would prove nothing


def test_predict_tokens_equals_the_native_language_model(encoder, family, encoder_folder):
    batch, positions = masked(encoder, batch_of(encoder))
    cls = transformers.BartForConditionalGeneration if family == "bart" else AutoModelForMaskedLM
    native = cls.from_pretrained(encoder_folder(family)).eval()
    with torch.no_grad():
        ours = encoder.predict_tokens(batch, positions)
        inputs = native_inputs(encoder, batch)
        if family == "bart":
            inputs["use_cache"] = False
        theirs = native(**inputs).logits[positions]
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    assert ours.shape == (int(positions.sum()), native.config.vocab_size)
    assert ours.std() > 0.1


def test_results_do_not_depend_on_padding(encoder):
    batch, positions = masked(encoder, batch_of(encoder))
    pad = torch.nn.functional.pad
    wide = Batch(
        input_ids=pad(batch.input_ids, (0, 7), value=encoder.tokenizer.pad_token_id),
        attention_mask=pad(batch.attention_mask, (0, 7)),
        maskable=pad(batch.maskable, (0, 7)),
        words=pad(batch.words, (0, 7), value=-1),
        indices=batch.indices,
        token_type_ids=None if batch.token_type_ids is None else pad(batch.token_type_ids, (0, 7)),
    )
    with torch.no_grad():
        narrow_classes, wide_classes = encoder.classify(batch), encoder.classify(wide)
        narrow_tokens = encoder.predict_tokens(batch, positions)
        wide_tokens = encoder.predict_tokens(wide, pad(positions, (0, 7)))
    torch.testing.assert_close(wide_classes, narrow_classes, **TOLERANCE)
    torch.testing.assert_close(wide_tokens, narrow_tokens, **TOLERANCE)
    shortest = int(batch.attention_mask.sum(1).argmin())
    alone = batch_of(encoder, [HARD_TEXTS[shortest]])
    with torch.no_grad():
        alone_classes = encoder.classify(alone)
        together = encoder.classify(batch_of(encoder))[shortest]
    torch.testing.assert_close(alone_classes[0], together, **TOLERANCE)


def test_the_export_is_a_plain_transformers_folder(own, tmp_path):
    batch = batch_of(own)
    as_if_trained(own)
    with torch.no_grad():
        logits = own.classify(batch)
    length_before = own.tokenizer.model_max_length
    own.save(tmp_path / "model", max_length=20)
    assert own.tokenizer.model_max_length == length_before
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    with torch.no_grad():
        reloaded = model(**native_inputs(own, batch)).logits
    torch.testing.assert_close(reloaded, logits, atol=1e-6, rtol=1e-6)
    assert model.config.id2label == dict(enumerate(LABELS))
    assert model.config.label2id == {name: number for number, name in enumerate(LABELS)}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.model_max_length == 20
    text = f"The {tokenizer.mask_token} stays {tokenizer.sep_token} text."
    assert tokenizer(text)["input_ids"] == own.tokenizer(text)["input_ids"]
    for stored in (*HARD_TEXTS, "one " * 50):
        short = tokenizer(stored, truncation=True)["input_ids"]
        assert short == own.tokenizer(stored, truncation=True, max_length=20)["input_ids"]


@torch.no_grad()
def test_the_language_model_is_exported_with_its_head(own, tmp_path):
    batch, positions = masked(own, batch_of(own))
    as_if_trained(own)
    own.save_language_model(tmp_path / "model")
    reloaded = load_encoder(str(tmp_path / "model"), LABELS).predict_tokens(batch, positions)
    logits = own.predict_tokens(batch, positions)
    torch.testing.assert_close(reloaded, logits, atol=1e-6, rtol=1e-6)


def headless(family, encoder_folder, folder):
    body = AutoModel.from_pretrained(encoder_folder(family))
    return helpers.write(folder, body, AutoTokenizer.from_pretrained(encoder_folder(family)))


def heads_of(model, encoder):
    """The parameters of a model that are not those of the body, by name."""
    body = {id(parameter) for parameter in encoder.body.parameters()}
    return {name: p.detach() for name, p in model.named_parameters() if id(p) not in body}


def test_a_missing_language_model_head_is_initialised_from_the_seed(
    family, encoder_folder, tmp_path
):
    folder = headless(family, encoder_folder, tmp_path)
    one = load_encoder(str(folder), LABELS, seed=1)
    # BART's output layer is its embedding: there is no head to miss.
    assert one.new_language_model_head == (family != "bart")
    same, other = (load_encoder(str(folder), LABELS, seed=seed) for seed in (1, 2))
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, same.tensors()[name]), name
    for kind in ("language_model", "classifier"):
        first, second = (heads_of(getattr(made, kind), made) for made in (one, other))
        weights = [name for name, tensor in first.items() if tensor.ndim > 1]
        assert all(not torch.equal(first[name], second[name]) for name in weights)
        assert bool(weights) == (kind == "classifier" or family != "bart")


def test_heads_are_kept_for_the_same_labels(own, tmp_path):
    first = own
    assert first.kept_classifier is None
    with torch.no_grad():
        heads = *first.classification_parameters(), *first.language_model_head().values()
        for parameter in heads:
            parameter.add_(torch.rand_like(parameter))
    first.save(tmp_path, 32)
    same = load_encoder(str(tmp_path), LABELS, seed=1)
    other = load_encoder(str(tmp_path), [*LABELS[:-1], "other"], seed=1)
    assert (same.kept_classifier, other.kept_classifier) == (True, False)
    batch = batch_of(first, HARD_TEXTS[:3])
    with torch.inference_mode():
        logits = first.classify(batch)
        assert torch.equal(same.classify(batch), logits)
        assert not torch.isclose(other.classify(batch), logits).all(0).any()

        tokens = first.predict_tokens(batch, batch.attention_mask.bool())
        same.load_language_model_head(first.language_model_head())
        assert torch.equal(same.predict_tokens(batch, batch.attention_mask.bool()), tokens)


def test_body_parameters_are_those_that_both_objectives_use(encoder):
    """A part that one objective alone reaches is that one's head, wherever transformers has it."""
    batch = batch_of(encoder)
    with_mask, positions = masked(encoder, batch)
    names, parameters = zip(*encoder.named_parameters(), strict=True)
    reached = []
    for loss in (
        encoder.classify(batch).logsumexp(-1).sum(),
        encoder.predict_tokens(with_mask, positions).logsumexp(-1).sum(),
    ):
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        reached.append([gradient is not None for gradient in found])
    expected = {(True, True): "encoder", (True, False): "primary_head"}
    for name, part, *by in zip(names, placements_of(encoder, parameters), *reached, strict=True):
        assert part == expected.get(tuple(by), "other_head"), name
        assert any(by), name
    assert set(placements_of(encoder, parameters)) >= {"encoder", "primary_head"}


def test_class_logits_are_computed_in_single_precision(encoder):
    """Under autocast the body alone runs in half precision."""
    batch = batch_of(encoder)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            found = encoder.classify(batch)
            hidden = encoder.encode(batch).last_hidden_state
        expected = encoder.family.class_logits(encoder.classifier, hidden.float(), batch)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_every_supported_family_is_tested():
    # XLM-RoBERTa and CamemBERT are RoBERTa under another name.
    assert set(SUPPORTED) == {*FAMILIES, "xlm-roberta", "camembert"}
    with pytest.raises(EncoderError, match=r"architecture 'gpt2' is not supported: use one of ber"):
        family_of("gpt2")


@pytest.mark.parametrize("legacy", [True, False])
def test_deberta_has_two_kinds_of_heads(legacy, encoder_folder, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder("deberta-v2"))
    config = transformers.AutoConfig.from_pretrained(encoder_folder("deberta-v2"))
    config.legacy = legacy
    with torch.random.fork_rng():
        torch.manual_seed(3)
        native = transformers.DebertaV2ForMaskedLM(config).eval()
    helpers.write(tmp_path, native, tokenizer)
    encoder = load_encoder(str(tmp_path), LABELS)
    batch, positions = masked(encoder, batch_of(encoder))
    with torch.no_grad():
        theirs = native(**native_inputs(encoder, batch)).logits[positions]
        ours = encoder.predict_tokens(batch, positions)
    torch.testing.assert_close(ours, theirs, **TOLERANCE)


def test_modernbert_pools_by_mean_as_well(loaded):
    encoder = loaded("modernbert")
    encoder.config.classifier_pooling = "mean"
    batch = batch_of(encoder)
    with torch.no_grad():
        native = encoder.classifier(**native_inputs(encoder, batch)).logits
        ours = encoder.classify(batch)
    torch.testing.assert_close(ours, native, **TOLERANCE)
