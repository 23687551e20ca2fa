"""Scoring passes against the forward pass of transformers, for every architecture."""

from unittest.mock import Mock

import pytest
import torch

from auxlearn.encoders.load import load_encoder
from auxlearn.scoring import forward as packed
from auxlearn.scoring.forward import (
    TargetPass,
    UnpaddedBatch,
    WholePass,
    inference_linear,
    numerical_variant,
    packing_works,
    scoring_pass,
)
from auxlearn.scoring.pseudo_likelihood import log_probability
from tests.helpers import FAMILIES, HARD_TEXTS, LABELS, tokenized


@pytest.fixture(params=FAMILIES)
def encoder(request, loaded):
    return loaded(request.param)


@pytest.fixture(params=["packed", "plain"])
def linear_kind(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(packed, "packing_works", lambda dtype: False)
    return request.param


def batches_of(encoder, pairs=None):
    """Some copies of each text, read at one position, at several, or at different numbers."""
    texts = tokenized(encoder, HARD_TEXTS, pairs=pairs)
    draws = torch.Generator().manual_seed(3)
    batches = []
    for row in range(len(texts)):
        start, end = texts.offsets[row : row + 2].tolist()
        ids = texts.input_ids[start:end].long().expand(3, -1).clone()
        ids[0, 1] = encoder.tokenizer.mask_token_id
        targets = torch.rand(ids.shape, generator=draws) < 0.3
        targets[:, 1] = True
        if row == 0:
            targets[:, 2:] = False
        types = texts.token_type_ids
        types = None if types is None else types[start:end].long().expand(3, -1)
        batches.append(UnpaddedBatch(ids, targets, types))
    return batches


def native_states(encoder, batches):
    """Last hidden states at the targets, by transformers' own forward pass."""
    found = []
    for batch in batches:
        inputs = {"input_ids": batch.input_ids}
        if batch.token_type_ids is not None:
            inputs["token_type_ids"] = batch.token_type_ids
        if encoder.config.is_encoder_decoder:
            inputs["use_cache"] = False
        found.append(encoder.body(**inputs).last_hidden_state[batch.targets])
    return torch.cat(found)


def test_states_and_probabilities_equal_those_of_transformers(encoder, linear_kind):
    """Of pairs of texts, whose segments must be told apart; those of bfloat16 are close."""
    batches = batches_of(encoder, pairs=HARD_TEXTS[::-1])
    with torch.inference_mode():
        ready, near = scoring_pass(encoder), scoring_pass(encoder, torch.bfloat16)
        states, native = ready.states(batches), native_states(encoder, batches)
        ids = torch.arange(len(states)) % len(encoder.tokenizer)
        found = log_probability(ready.logits(states), ids)
        logits = encoder.family.token_logits(encoder.language_model, native)
        expected = logits.log_softmax(-1)[torch.arange(len(ids)), ids]
        half = log_probability(near.logits(near.states(batches)), ids)
    torch.testing.assert_close(states, native, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert native.std(0).min() > 1e-3  # equal rows would prove nothing
    known = encoder.config.model_type in ("bert", "roberta", "electra", "distilbert")
    assert isinstance(ready, TargetPass if known else WholePass)
    assert half.dtype == torch.float32
    difference = (half.exp() - expected.exp()).abs()
    assert 0 < difference.max() < 0.1
    assert difference.mean() < 0.01


def check_states(encoder, batches):
    with torch.inference_mode():
        states = scoring_pass(encoder).states(batches)
        torch.testing.assert_close(states, native_states(encoder, batches), atol=1e-5, rtol=1e-5)


def test_an_encoder_of_one_layer(one_layer):
    encoder = load_encoder(str(one_layer), LABELS)
    check_states(encoder, batches_of(encoder))


def test_an_activation_other_than_gelu(loaded, linear_kind):
    encoder = loaded("bert")
    for layer in encoder.body.encoder.layer:
        layer.intermediate.intermediate_act_fn = torch.nn.SiLU()
    check_states(encoder, batches_of(encoder))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_linear_layers_equal_those_of_torch(linear_kind, dtype, gelu, biased):
    draws = torch.Generator().manual_seed(4)
    x, weight, bias, residual = (
        torch.randn(shape, generator=draws).to(dtype)
        for shape in ((33, 24), (40, 24), (40,), (33, 40))
    )
    bias = bias if biased else None
    with torch.inference_mode():
        linear = inference_linear(weight, bias, dtype, gelu)
        wide = torch.nn.functional.linear(
            x.double(), weight.double(), None if bias is None else bias.double()
        )
        tolerance = (
            {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 0.06, "rtol": 0.01}
        )
        wanted = torch.nn.functional.gelu(wide) if gelu else wide
        torch.testing.assert_close(linear(x).double(), wanted, **tolerance)
        if not gelu:
            summed = linear(x, residual).double()
            torch.testing.assert_close(summed, wide + residual.double(), **tolerance)
    assert linear(x).dtype == dtype


@pytest.mark.parametrize("fault", ["absent", "refuses", "wrong"])
def test_packing_is_used_only_if_it_is_correct(monkeypatch, fault):
    def wrong(*arguments):
        right = packed._plain(*arguments)
        return lambda *inputs: right(*inputs) * 1.01

    raised = {"absent": AttributeError("_linear_pointwise"), "refuses": RuntimeError("no")}
    found = Mock(side_effect=raised.get(fault, wrong))
    monkeypatch.setattr(packed, "_packed", found)
    packing_works.cache_clear()
    try:
        assert not packing_works(torch.float32)
    finally:
        packing_works.cache_clear()


def test_numerical_variant_names_device_dtype_and_linear_layers(trained_bert, loaded, monkeypatch):
    whole = loaded("modernbert")
    assert numerical_variant(whole, torch.float32) == ("cpu", "torch.float32", "whole pass")
    monkeypatch.setattr("auxlearn.scoring.forward.packing_works", lambda dtype: True)
    assert numerical_variant(trained_bert, torch.bfloat16) == ("cpu", "torch.bfloat16", "packed")
    # Packed layers are for the CPU; parameters on another device never take them.
    elsewhere = trained_bert.to("meta")
    assert numerical_variant(elsewhere, torch.bfloat16) == ("meta", "torch.bfloat16", "plain")
