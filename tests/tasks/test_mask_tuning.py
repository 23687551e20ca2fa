"""Mask-tuning: its loss, its gradients, and the batch of the primary task."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import TASKS
from auxlearn.data.batches import BatchStream
from auxlearn.training.optimizer import LinearSchedule
from auxlearn.training.step import RunStep
from auxlearn.training.terms import Auxiliary
from auxlearn.weighting.fixed import Fixed, FixedOptions
from tests import helpers
from tests.helpers import HARD_TEXTS, LINES, collated, tokenized

LABELS = [0, 1, 2, 0, 1, 2, 0]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def task_for(encoder, texts, tmp_path, **options):
    cls = TASKS.get("mask_tuning")
    task = cls(cls.Options(**options))
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
    logits, total, count = logits.detach(), 0.0, 0
    for row, place in result.replaced.nonzero().tolist():
        scores = logits[row, place].double()
        total += float(scores.logsumexp(0) - scores[batch.input_ids[row, place]])
        count += 1
    assert result.loss.item() == pytest.approx(total / count, rel=1e-5)


def test_the_result_depends_on_the_generator(encoder, texts, tmp_path):
    batch = collated(texts)
    for options in ({}, {"predictions": "sample", "temperature": 2.0}):
        task = task_for(encoder, texts, tmp_path, **options)

        def written(seed, task=task):
            return task.loss(encoder, batch, generator(seed)).primary.input_ids

        assert torch.equal(written(1), written(1))
        assert not torch.equal(written(1), written(2))


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


def training_step_for(encoder, texts, task):
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    training_step = RunStep(
        encoder,
        primary=BatchStream(texts, len(texts), 0, "primary"),
        primary_loss=helpers.cross_entropy(),
        auxiliaries=[Auxiliary("mask_tuning", task, None)],
        schedule=LinearSchedule(optimizer, 10, 0.0),
        max_grad_norm=0.0,
        autocast=lambda: torch.autocast("cpu", enabled=False),
    )
    training_step.begin(0)
    return training_step


def expected_losses(encoder, texts, task):
    """Both losses of the first step, put together by hand."""
    from auxlearn.core import rng

    batch = BatchStream(texts, len(texts), 0, "primary").batch(0)
    result = task.loss(encoder, batch, rng.generator(0, "mask_tuning", "draws", 0, 0))
    logits = encoder.classifier(
        input_ids=result.primary.input_ids,
        attention_mask=batch.attention_mask,
        token_type_ids=batch.token_type_ids,
    ).logits
    return result.loss, nn.functional.cross_entropy(logits, batch.labels)


def gradients(encoder, loss):
    found = torch.autograd.grad(loss, list(encoder.parameters()), allow_unused=True)
    return [
        torch.zeros_like(p) if g is None else g
        for p, g in zip(encoder.parameters(), found, strict=True)
    ]


def test_fixed_weights_give_equation_1(encoder, texts, tmp_path):
    task = task_for(encoder, texts, tmp_path, probability=0.2)
    training_step = training_step_for(encoder, texts, task)
    training_step.backward(Fixed(FixedOptions(alpha=0.6), ("primary", "mask_tuning")).weights)
    mlm, classification = expected_losses(encoder, texts, task)
    assert float(training_step.losses["mask_tuning"]) == pytest.approx(mlm.item(), rel=1e-6)
    assert float(training_step.losses["primary"]) == pytest.approx(classification.item(), rel=1e-6)
    expected = gradients(encoder, 0.6 * mlm + 0.4 * classification)
    for parameter, gradient in zip(encoder.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("alpha", "tolerance"), [((0.0,), 1e-6), (1e-6, 1e-4)])
def test_with_alpha_near_zero_only_the_perturbed_text_is_left(
    encoder, texts, tmp_path, alpha, tolerance
):
    task = task_for(encoder, texts, tmp_path, probability=0.3)
    training_step = training_step_for(encoder, texts, task)
    training_step.backward(Fixed(FixedOptions(alpha=alpha), ("primary", "mask_tuning")).weights)
    _, classification = expected_losses(encoder, texts, task)
    expected = gradients(encoder, classification)
    for parameter, gradient in zip(encoder.parameters(), expected, strict=True):
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(found, gradient, atol=tolerance, rtol=tolerance)
    original = BatchStream(texts, len(texts), 0, "primary").batch(0)
    unperturbed = nn.functional.cross_entropy(encoder.classify(original), original.labels)
    assert unperturbed.item() != pytest.approx(classification.item(), abs=1e-4)


def test_no_gradient_flows_through_the_replacement_tokens(encoder, texts, tmp_path):
    """The token head decides the replacement tokens; the classification loss must not reach it."""
    task = task_for(encoder, texts, tmp_path, probability=0.3)
    _, classification = expected_losses(encoder, texts, task)
    body = {id(parameter) for parameter in encoder.body.parameters()}
    head = [p for p in encoder.language_model.parameters() if id(p) not in body]
    assert head
    found = torch.autograd.grad(classification, head, allow_unused=True)
    assert all(gradient is None for gradient in found)


def test_a_batch_without_maskable_tokens_has_zero_loss(encoder, tmp_path):
    texts = tokenized(encoder, ["日 語", "語"], labels=[0, 1])
    result = task_for(encoder, texts, tmp_path).loss(encoder, collated(texts), generator())
    assert result.loss.item() == 0.0
    assert result.loss.requires_grad
    assert torch.equal(result.primary.input_ids, collated(texts).input_ids)


@pytest.mark.parametrize("share", [0, -0.1, 1.01, math.nan])
def test_a_share_outside_its_range_is_refused(share):
    config = RunConfig.model_validate({"aux": [{"mask_tuning": {"probability": share}}]})
    with pytest.raises(ConfigError, match="mask_tuning: probability: "):
        config.resolved()


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
    options = TASKS.get("mask_tuning").Options()
    assert (options.probability, options.predictions) == (0.05, "argmax")
