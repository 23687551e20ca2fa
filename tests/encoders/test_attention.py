"""Attention of half-precision training on a CPU: precision, gradients, exports."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from auxlearn.data.batches import collate
from auxlearn.encoders.device import SINGLE, attend_in_single_precision
from auxlearn.encoders.load import load_encoder
from tests.helpers import LABELS, LINES, tokenized, without_dropout

FAMILIES = ("bert", "roberta", "distilbert", "electra", "modernbert", "bart")


@pytest.fixture
def asked(monkeypatch):
    """Types in which torch's attention is called."""
    types = []
    ordinary = torch.nn.functional.scaled_dot_product_attention

    def attention(query, *arguments, **settings):
        types.append(query.dtype)
        return ordinary(query, *arguments, **settings)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    return types


def half():
    return torch.autocast("cpu", torch.bfloat16)


def batch_of(encoder):
    """Texts of different lengths, so that there is padding."""
    return collate(tokenized(encoder, LINES[:3]), torch.arange(3))


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_is_single_where_it_is_differentiated_without_dropout(
    family, encoder_folder, asked
):
    encoder = load_encoder(str(encoder_folder(family)), LABELS)
    attend_in_single_precision(encoder.body)
    with half():
        encoder.classify(batch_of(encoder))
    assert set(asked) == {torch.float32}
    asked.clear()
    with half(), torch.inference_mode():
        encoder.classify(batch_of(encoder))
    assert set(asked) == {torch.bfloat16}


def test_attention_with_dropout_is_unchanged(encoder_folder, asked):
    encoder = load_encoder(str(encoder_folder("bert")), LABELS, attention_dropout=0.1).train()
    asked.clear()  # loading tries the encoder out
    attend_in_single_precision(encoder.body)
    with half():
        encoder.classify(batch_of(encoder))
    assert set(asked) == {torch.bfloat16}
    asked.clear()
    encoder(lambda model: model.classify(batch_of(model)))
    assert set(asked) == {torch.float32}


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_single_precision_but_for_rounding(family, encoder_folder):
    encoder = without_dropout(load_encoder(str(encoder_folder(family)), LABELS))
    batch = batch_of(encoder)
    parameters = [p for p in encoder.parameters() if p.requires_grad]

    def gradient():
        loss = encoder.classify(batch).logsumexp(-1).sum()
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return torch.cat([part.flatten() for part in found if part is not None])

    exact = gradient()
    attend_in_single_precision(encoder.body)
    torch.testing.assert_close(gradient(), exact)
    with half():
        rounded = gradient()
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    # bfloat16 keeps 8 bits: single figures are off by some per cent, the direction is not.
    assert torch.nn.functional.cosine_similarity(rounded, exact, dim=0) > 0.995


def test_another_attention_implementation_is_unchanged(encoder_folder):
    encoder = load_encoder(str(encoder_folder("deberta-v2")), LABELS)
    before = encoder.config._attn_implementation
    attend_in_single_precision(encoder.body)
    assert encoder.config._attn_implementation == before == "eager"


def test_the_second_derivative_is_that_of_the_ordinary_attention(tiny_bert):
    weight = tiny_bert.body.encoder.layer[0].attention.self.query.weight

    def second():
        with tiny_bert.twice_differentiable() as otherwise:
            assert otherwise
            loss = tiny_bert.classify(batch_of(tiny_bert)).logsumexp(-1).sum()
            (first,) = torch.autograd.grad(loss, weight, create_graph=True)
        return torch.autograd.grad(first.square().sum(), weight)[0]

    ordinary = second()
    attend_in_single_precision(tiny_bert.body)
    torch.testing.assert_close(second(), ordinary)
    assert ordinary.abs().sum() > 0


def test_an_export_does_not_mention_the_implementation(tiny_bert, tmp_path):
    attend_in_single_precision(tiny_bert.body)
    assert tiny_bert.config._attn_implementation == SINGLE
    tiny_bert.save(tmp_path, max_length=64)
    assert SINGLE not in json.dumps(json.loads((tmp_path / "config.json").read_text()))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert model.config._attn_implementation == "sdpa"
