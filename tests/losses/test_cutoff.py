"""Span Cutoff and HiddenCut: the formula, exactly the span, and an encoder left as it was."""

import math
from collections import Counter
from contextlib import contextmanager, nullcontext

import higher
import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.data.batches import collate
from auxlearn.encoders import cutting
from auxlearn.encoders.families import FAMILIES as SUPPORTED
from auxlearn.losses.cutoff import CutoffOptions, cutoff_loss
from auxlearn.losses.hidden_cut import HiddenCut, attended_spans
from auxlearn.losses.span_cutoff import SpanCutoff, random_spans
from tests import helpers
from tests.losses import common
from tests.losses.common import batch_of, context_of, draws, random_logits, softmax

CUTTABLE = tuple(family for family in helpers.FAMILIES if SUPPORTED[family].cut_points)


@pytest.fixture(params=CUTTABLE)
def encoder(request, loaded):
    return loaded(request.param)


def prepared(*given, **options):
    loss, context = common.prepared(*given, **options)
    return loss, batch_of(context)


def hooks_of(encoder):
    return [hook for module in encoder.modules() for hook in module._forward_hooks.values()]


@contextmanager
def unhooked_again(encoder):
    """Expect that hooks and attention of an encoder are afterwards as they were."""
    implementation = encoder.config._attn_implementation
    yield
    assert hooks_of(encoder) == []
    assert encoder.config._attn_implementation == implementation
    assert not encoder.config.output_attentions


@pytest.mark.parametrize("divergence", ["js", "released"])
def test_the_loss_by_the_formula_and_gradients_of_both_passes(divergence):
    logits, labels = random_logits(1)
    other = random_logits(2)[0]
    p, q = softmax(logits), softmax(other)
    m, rows = (p + q) / 2, np.arange(len(p))
    d = (
        jensenshannon(p, q, axis=1) ** 2
        if divergence == "js"
        else (entropy(m, p, axis=1) + entropy(m, q, axis=1)) / 2
    )
    expected = np.mean(-np.log(p[rows, labels]) - 0.5 * np.log(q[rows, labels]) + 3 * d)
    options = CutoffOptions(cut_weight=0.5, divergence_weight=3.0, divergence=divergence)
    found = cutoff_loss(logits, other, labels, options)
    assert float(found) == pytest.approx(expected, abs=1e-10)
    both = (logits.requires_grad_(), other.requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: cutoff_loss(a, b, labels, options), both)


def ragged_batch(*lengths):
    texts = helpers.ragged(lengths)
    return collate(texts, torch.arange(len(lengths)))


def runs(row):
    return [i for i, one in enumerate(row) if one and (i == 0 or not row[i - 1])]


def test_random_spans_are_one_run_of_the_given_length_anywhere_in_the_text():
    batch, generator = ragged_batch(30, 20, 9), draws()
    starts = [Counter(), Counter()]
    for _ in range(2000):
        span = random_spans(batch, 0.1, generator)
        assert span.sum(1).tolist() == [3, 2, 0]
        for number in range(2):
            (start,) = runs(span[number].tolist())
            starts[number][start] += 1
    assert set(starts[0]) == set(range(28))  # the last token is in the span of the last start
    assert set(starts[1]) == set(range(19))
    counts = np.array([starts[1][i] for i in range(19)])
    assert np.abs(counts - 2000 / 19).max() < 5 * math.sqrt(2000 / 19)


def test_attended_spans_begin_at_the_most_attended_tokens():
    batch, generator = ragged_batch(20, 10, 4), draws()
    received = torch.zeros(3, 20)
    received[0, [3, 5, 7, 9, 11, 13, 15, 19]] = 1.0  # eight of twenty: 40%
    received[1, [0, 9, 5, 2]] = torch.tensor([4.0, 3.0, 2.0, 1.0])
    received[1, 10:] = 9.0  # padding
    received[2, 1] = 1.0
    seen = [set(), set(), set()]
    for _ in range(300):
        span = attended_spans(received, batch, 0.1, 0.4, generator)
        for number, row in enumerate(span.tolist()):
            (start,) = runs(row)
            seen[number].add((start, sum(row)))
    assert seen[0] == {(s, 1 if s == 19 else 2) for s in (3, 5, 7, 9, 11, 13, 15, 19)}
    assert seen[1] == {(s, 1) for s in (0, 9, 5, 2)}
    assert seen[2] == {(1, 1)}


def span_of_the_embeddings(encoder, folder):
    batch = batch_of(context_of(encoder, folder))
    span = random_spans(batch, 0.2, draws())
    seen = []
    for cut in (nullcontext(), cutting.embeddings_cut(encoder, span)):
        with torch.no_grad(), cut:
            look = getattr(
                encoder.body, "embeddings", encoder.body.get_input_embeddings()
            ).register_forward_hook(lambda *a: seen.append(a[2]))
            encoder.encode(batch)
            look.remove()
    usual, found = seen
    assert span.any()
    assert not found[span].any()
    assert torch.equal(found[~span], usual[~span])
    assert hooks_of(encoder) == []


def test_exactly_the_span_is_zero_and_the_encoder_is_left_as_it_was(encoder, tmp_path, monkeypatch):
    """In the embeddings and in every layer, and after an error as well."""
    span_of_the_embeddings(encoder, tmp_path)
    span_of_every_layer(encoder, tmp_path)
    for cls in (SpanCutoff, HiddenCut):
        loss, batch = prepared(cls, encoder, tmp_path)
        before = encoder.encode(batch).last_hidden_state.detach()
        encoder.train()
        values = []
        with unhooked_again(encoder):
            for _ in range(2):
                with rng.seeded(0, "dropout"):
                    values.append(loss.loss(encoder, batch, draws()))
        assert torch.equal(*values)
        assert torch.equal(encoder.eval().encode(batch).last_hidden_state, before)
        last = encoder.family.cut_points(encoder.body)[1][1]
        with monkeypatch.context() as patch, unhooked_again(encoder):
            patch.setattr(last, "forward", lambda *given: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                loss.cut_logits(encoder, batch, draws())


def span_of_every_layer(encoder, folder):
    loss, batch = prepared(HiddenCut, encoder, folder, share=0.2)
    layers = encoder.family.cut_points(encoder.body)
    assert len(layers) == 2
    real, chosen, outputs, hooks = attended_spans, [], [], []

    def remember(*given):
        chosen.append(real(*given))
        return chosen[-1]

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr("auxlearn.losses.hidden_cut.attended_spans", remember)
        for _, last in layers:  # registered first: sees the output before the cut
            hooks.append(last.register_forward_hook(lambda *a: outputs.append((a[0], a[1][0]))))
        loss.cut_logits(encoder, batch, draws())
        for hook in hooks:
            hook.remove()
    assert len(chosen) == 2  # one span per layer
    wanted = (batch.attention_mask.sum(1) * 0.2).long().clamp_min(1)
    for span in chosen:
        assert bool(((span.sum(1) >= 1) & (span.sum(1) <= wanted)).all())
        assert not span[batch.attention_mask == 0].any()
    # With the same spans, the hooks give what a hand-written cut of the linear maps gives.
    spans, cut = iter(chosen), []

    def by_hand(module, inputs, output):
        result = output.clone()
        result[next(spans)] = 0
        cut.append(result)
        return result

    usual = encoder.config._attn_implementation
    encoder.body.set_attn_implementation("eager")
    hooks = [last.register_forward_hook(by_hand) for _, last in layers]
    with torch.no_grad():
        expected = encoder.classify(batch)
    for hook in hooks:
        hook.remove()
    encoder.body.set_attn_implementation(usual)
    with torch.no_grad():
        found = loss.cut_logits(encoder, batch, draws())
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(found, encoder.classify(batch), atol=1e-4)


def test_attention_is_that_of_the_layer_without_padding_and_after_cuts(tiny_bert, tmp_path):
    """Against the attentions that transformers returns for the same cut hidden states."""
    loss, batch = prepared(HiddenCut, tiny_bert, tmp_path)
    received, real = [], attended_spans

    def remember(values, *given):
        received.append(values)
        return real(values, *given)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr("auxlearn.losses.hidden_cut.attended_spans", remember)
        loss.cut_logits(tiny_bert, batch, draws())
    tiny_bert.body.set_attn_implementation("eager")
    with torch.no_grad():
        inputs = {"input_ids": batch.input_ids, "token_type_ids": batch.token_type_ids}
        inputs |= {"attention_mask": batch.attention_mask, "output_attentions": True}
        weights = tiny_bert.body(**inputs).attentions[0]
    mask = batch.attention_mask.bool()
    expected = torch.stack([weights[n, :, mask[n]].mean(0).sum(0) for n in range(len(batch))])
    assert torch.allclose(received[0], expected, atol=1e-6)
    lengths = mask.sum(1).tolist()
    assert received[0].sum(1).tolist() == pytest.approx(lengths, abs=1e-3)


@pytest.mark.parametrize("cls", [SpanCutoff, HiddenCut])
def test_one_line_for_an_encoder_that_cannot_be_cut(cls, loaded, tmp_path):
    bart, chunked = (loaded(one) for one in ("bart", "bert"))
    with helpers.one_line(ConfigError, f"'{cls.name}'", "architecture 'bart': use one of bert"):
        prepared(cls, bart, tmp_path)
    chunked.config.chunk_size_feed_forward = 4
    with pytest.raises(ConfigError, match="set it to 0"):
        prepared(cls, chunked, tmp_path)


@pytest.mark.parametrize("cls", [SpanCutoff, HiddenCut])
def test_functional_copies_are_cut_too(cls, tiny_bert, tmp_path):
    """Learned weights compute losses with copies by ``higher``, whose parameters are tensors."""
    loss, batch = prepared(cls, tiny_bert, tmp_path, share=0.2)
    with torch.no_grad():
        expected = loss.cut_logits(tiny_bert, batch, draws())
        usual = tiny_bert.classify(batch)
    with tiny_bert.twice_differentiable():
        copy = higher.monkeypatch(tiny_bert)
        found = copy(loss.cut_logits, batch, draws())
        assert torch.allclose(found, expected, atol=1e-5)
        assert not torch.allclose(found, usual, atol=1e-4)
        value = copy(loss.loss, batch, draws())
        weight = copy.classifier.bert.encoder.layer[0].output.dense.weight
        (gradient,) = torch.autograd.grad(value, weight, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), weight)
    assert bool((second != 0).any())
    assert hooks_of(copy) == hooks_of(tiny_bert) == []
