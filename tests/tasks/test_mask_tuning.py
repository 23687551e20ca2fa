"""Mask-tuning: its loss, its gradients, and the batch of the primary task."""

import pytest
import torch
from torch import nn

from auxlearn.core import rng
from auxlearn.tasks.mask_tuning import MaskTuning
from auxlearn.weighting.fixed import Fixed, FixedOptions
from tests import helpers
from tests.helpers import HARD_TEXTS, LINES, collated, generator, tokenized
from tests.training.harness import CLASSES, Harness

LABELS = [0, 1, 2, 0, 1, 2, 0]


def task_for(encoder, texts, tmp_path, **options):
    task = MaskTuning(MaskTuning.Options(**options))
    task.prepare(helpers.context(encoder, texts, tmp_path))
    return task


@pytest.fixture
def encoder(tiny_bert):
    return helpers.without_dropout(tiny_bert)


@pytest.fixture
def texts(encoder):
    return tokenized(encoder, HARD_TEXTS, labels=LABELS)


def test_the_loss_is_the_mean_cross_entropy_of_the_masked_tokens(encoder, texts, tmp_path):
    batch = collated(texts)
    task = task_for(encoder, texts, tmp_path, probability=0.2)
    result = task.loss(encoder, batch, generator())
    masked = batch.input_ids.masked_fill(result.replaced, encoder.tokenizer.mask_token_id)
    logits = encoder.language_model(
        input_ids=masked, attention_mask=batch.attention_mask, token_type_ids=batch.token_type_ids
    ).logits
    losses = []
    for row, place in result.replaced.nonzero().tolist():
        scores = logits[row, place].detach().double()
        losses.append(float(scores.logsumexp(0) - scores[batch.input_ids[row, place]]))
    assert result.loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_sampling_substitutes_other_tokens_than_argmax(encoder, texts, tmp_path):
    batch = collated(texts)
    sampled = task_for(encoder, texts, tmp_path, predictions="sample", temperature=5.0)
    best = task_for(encoder, texts, tmp_path)
    one, other = (task.loss(encoder, batch, generator()) for task in (sampled, best))
    assert torch.equal(one.replaced, other.replaced)
    assert not torch.equal(one.primary.input_ids, other.primary.input_ids)
    assert one.loss.item() == other.loss.item()


def test_labels_and_segments_of_a_pair_survive_and_either_text_can_be_masked(encoder, tmp_path):
    texts = tokenized(encoder, LINES[:12], labels=[0, 1] * 6, pairs=LINES[12:])
    batch = collated(texts)
    task = task_for(encoder, texts, tmp_path)
    hit = set()
    for seed in range(6):
        result = task.loss(encoder, batch, generator(seed))
        hit |= set(batch.token_type_ids[result.replaced].tolist())
        assert torch.equal(result.primary.labels, batch.labels)
        assert torch.equal(result.primary.token_type_ids, batch.token_type_ids)
        special = ~batch.maskable
        assert torch.equal(result.primary.input_ids[special], batch.input_ids[special])
    assert hit == {0, 1}


@pytest.fixture
def first_step(encoder, tmp_path):
    """A step before its first losses, both losses put together by hand, and the batch."""
    texts = tokenized(encoder, LINES, CLASSES)
    task = task_for(encoder, texts, tmp_path, probability=0.3)
    harness = Harness(encoder, [("mask_tuning", task)], len(LINES), max_grad_norm=0.0)
    step = harness.training_step
    step.begin(0)
    batch = step.primary.batch(0)
    result = task.loss(encoder, batch, rng.generator(0, "mask_tuning", "draws", 0, 0))
    logits = encoder.classifier(
        input_ids=result.primary.input_ids,
        attention_mask=batch.attention_mask,
        token_type_ids=batch.token_type_ids,
    ).logits
    return step, (nn.functional.cross_entropy(logits, batch.labels), result.loss), batch


@pytest.mark.parametrize("alpha", [0.6, (0.0,)])
def test_fixed_weights_give_equation_1(encoder, first_step, alpha):
    """With alpha 0 only the perturbed text is left."""
    step, losses, batch = first_step
    weights = Fixed(FixedOptions(alpha=alpha), ("primary", "mask_tuning")).weights
    step.backward(weights)
    found = [float(step.losses[name]) for name in ("primary", "mask_tuning")]
    assert found == pytest.approx([loss.item() for loss in losses], rel=1e-6)
    total = sum(weight * loss for weight, loss in zip(weights.tolist(), losses, strict=True))
    expected = torch.autograd.grad(
        total, step.parameters, allow_unused=True, materialize_grads=True, retain_graph=True
    )
    for parameter, gradient in zip(step.parameters, expected, strict=True):
        given = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(given, gradient, atol=1e-6, rtol=1e-5)
    unperturbed = nn.functional.cross_entropy(encoder.classify(batch), batch.labels)
    assert unperturbed.item() != pytest.approx(losses[0].item(), abs=1e-4)


def test_no_gradient_flows_through_the_replacement_tokens(encoder, first_step):
    """The token head decides the replacement tokens; the classification loss must not reach it."""
    _, (classification, _), _ = first_step
    body = {id(parameter) for parameter in encoder.body.parameters()}
    head = [p for p in encoder.language_model.parameters() if id(p) not in body]
    assert head
    found = torch.autograd.grad(classification, head, allow_unused=True)
    assert all(gradient is None for gradient in found)


def test_an_exact_share_can_be_masked(encoder, tmp_path):
    texts = tokenized(encoder, LINES, labels=[0] * len(LINES))
    batch = collated(texts)
    task = task_for(encoder, texts, tmp_path, selection="share")
    for seed in range(3):
        result = task.loss(encoder, batch, generator(seed))
        counts = [max(1, round(0.05 * n)) for n in batch.maskable.sum(1).tolist()]
        assert result.replaced.sum(1).tolist() == counts
        assert task.items(batch, generator(seed)) == sum(counts)


def test_the_defaults_are_the_settings_of_the_paper():
    options = MaskTuning.Options()
    assert (options.probability, options.predictions) == (0.05, "argmax")
