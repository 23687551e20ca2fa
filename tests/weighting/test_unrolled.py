"""Unrolls of several steps: against loops by hand, central differences, and the one-step rule."""

from __future__ import annotations

import gc
from contextlib import nullcontext

import pytest
import torch

from auxlearn.encoders.load import load_encoder
from auxlearn.weighting.meta import Meta
from auxlearn.weighting.unrolling import unrolled_gradient
from tests.helpers import LABELS, slopes, without_dropout
from tests.training.harness import Harness, MaskedWords
from tests.weighting.network import (
    NAMES,
    RATE,
    Network,
    NetworkStep,
    adamw,
    meta_options,
    sgd,
    stepped_by_hand,
)

CHOSEN = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)


class Module(torch.nn.Module):
    """The parameters of a network; called with a function of them."""

    def __init__(self, start):
        super().__init__()
        self.parts = torch.nn.ParameterList([p.clone() for p in start])

    def forward(self, compute):
        return compute(list(self.parts))


class FunctionalNetworkStep(NetworkStep):
    """The network of three losses as a module that can be copied."""

    placements = ("encoder", "encoder", "primary_head", "other_head")

    def __init__(self, network, optimizer, max_grad_norm):
        super().__init__(network, optimizer, max_grad_norm)
        self.model = Module(network.start)
        self.parameters = list(self.model.parameters())
        self.optimizer = optimizer(self.parameters)

    def functional_losses(self, model, lookahead):
        return torch.stack(
            model(lambda params: self.network.losses(params, self.number + lookahead))
        )

    def functional_validation_loss(self, model, batches=1):
        loss = model(self.network.validation_loss)
        self.losses["validation"] = loss.detach()
        return loss

    def summed(self, gradient, like):
        return gradient

    def learning_rates(self, lookahead):
        return [RATE / (1 + lookahead)]

    def twice_differentiable(self):
        return nullcontext()


def by_hand(network, kind, max_grad_norm, weights, before, steps):
    """Validation loss after ``steps`` steps with a graph, which follow ``before`` others."""
    params = [p.clone().requires_grad_() for p in network.start]
    moments = [[torch.zeros_like(p), torch.zeros_like(p)] for p in params]
    for step in range(before + steps):
        taped = step >= before
        rate = RATE / (1 + step - before) if taped else RATE
        given = weights if taped else torch.full((3,), 1 / 3, dtype=torch.float64)
        total = sum(w * loss for w, loss in zip(given, network.losses(params, step), strict=True))
        grads = torch.autograd.grad(total, params, create_graph=taped)
        new = stepped_by_hand(kind, params, grads, moments, step, max_grad_norm, rate)
        params = new if taped else [p.detach().requires_grad_() for p in new]
    return network.validation_loss(params)


def ready(kind, max_grad_norm, before):
    fake = FunctionalNetworkStep(Network(), kind, max_grad_norm)
    for step in range(before):
        fake.number = step
        fake.backward(torch.full((3,), 1 / 3, dtype=torch.float64))
        fake.optimizer_step()
    fake.number = before
    return fake


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.05])
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("kind", [sgd, adamw])
def test_an_unroll_equals_a_loop_by_hand_and_central_differences(kind, steps, max_grad_norm):
    fake = ready(kind, max_grad_norm, before=3)
    found, first = unrolled_gradient(fake, CHOSEN, steps)
    weights = CHOSEN.clone().requires_grad_()
    loss = by_hand(fake.network, kind, max_grad_norm, weights, 3, steps)
    (expected,) = torch.autograd.grad(loss, weights)
    assert expected.abs().min() > 1e-6
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(fake.losses["validation"], loss.detach(), rtol=1e-12, atol=0)

    numeric = slopes(
        lambda moved: by_hand(fake.network, kind, max_grad_norm, moved, 3, steps).detach(), CHOSEN
    )
    torch.testing.assert_close(found, numeric, rtol=1e-6, atol=1e-12)

    fake.backward(CHOSEN)
    for given, parameter in zip(first, fake.parameters, strict=True):
        torch.testing.assert_close(given, parameter.grad, rtol=1e-12, atol=1e-15)


def test_unrolled_weights_change_and_the_step_is_the_first_of_the_unroll():
    fake, other = ready(adamw, 0.05, 3), ready(adamw, 0.05, 3)
    rule = Meta(meta_options(unroll=3), NAMES)
    rule.step(fake)
    other.backward(torch.full((3,), 1 / 3, dtype=torch.float64))
    other.optimizer_step()
    for p, q in zip(fake.parameters, other.parameters, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-13)
    assert rule.weights.std() > 1e-3


def test_an_unroll_over_the_heads_freezes_the_encoder():
    fake = ready(sgd, 0.0, 3)
    found, first = unrolled_gradient(fake, CHOSEN, 2, heads_only=True)
    assert [part is None for part in first] == [True, True, False, False]
    # The auxiliary losses share no head with the primary one, so that they get no gradient.
    assert found[0] != 0
    assert found[1:].tolist() == [0, 0]
    before = [p.detach().clone() for p in fake.parameters]
    Meta(meta_options(unroll=2, unroll_over="heads"), NAMES).step(fake)
    assert all(not torch.equal(p, b) for p, b in zip(fake.parameters, before, strict=True))


@pytest.fixture
def harness(one_layer):
    def make(folder=one_layer):
        encoder = without_dropout(load_encoder(str(folder), LABELS)).double()
        return Harness(encoder, [("every3", MaskedWords(3))], max_grad_norm=0.5)

    return make


def advance(harness, steps):
    for step in range(steps):
        harness.training_step.begin(step)
        harness.training_step.backward((0.5, 0.5))
        harness.training_step.optimizer_step()
    harness.training_step.begin(steps)


@pytest.mark.parametrize(
    "family", ["bert", pytest.param("roberta", marks=pytest.mark.slow), "distilbert"]
)
def test_one_step_of_an_encoder_by_both_ways(harness, encoder_folder, family):
    """Shared encoder, tied embeddings, fused attention on one side and unfused on the other."""
    weights = torch.tensor([0.6, 0.4], dtype=torch.float64)
    one, other = harness(encoder_folder(family)), harness(encoder_folder(family))
    assert one.encoder.config._attn_implementation == "sdpa"
    for made in (one, other):
        advance(made, 3)
    weight_gradient, _ = unrolled_gradient(one.training_step, weights, 1, batches=3)
    rule = Meta(meta_options(initial=(0.6, 0.4), batches=3), other.training_step.names)
    rule.step(other.training_step)
    expected = weights * (weight_gradient - (weights * weight_gradient).sum())
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-8, atol=0)


def test_two_steps_of_an_encoder_by_central_differences(harness):
    def after(weights):
        made = harness()
        advance(made, 3)
        validation = made.training_step
        for step in (3, 4):
            validation.begin(step)
            validation.backward(weights)
            validation.optimizer_step()
        validation.number = 3
        validation.validation_gradient()
        return float(validation.losses["validation"])

    weights = torch.tensor([0.6, 0.4], dtype=torch.float64)
    made = harness()
    advance(made, 3)
    found, _ = unrolled_gradient(made.training_step, weights, 2)
    torch.testing.assert_close(found, slopes(after, weights, 1e-4), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("over", ["all", "heads"])
def test_an_unroll_records_each_loss_once(harness, over):
    made, plain = harness(), harness()
    advance(made, 1)
    advance(plain, 1)
    plain.training_step.backward((0.5, 0.5))
    Meta(
        meta_options(unroll=2, unroll_over=over, initial=None, floor=0), made.training_step.names
    ).step(made.training_step)
    for name, loss in plain.training_step.losses.items():
        torch.testing.assert_close(made.training_step.losses[name], loss, rtol=1e-9, atol=0)


def state_of(harness):
    encoder = harness.encoder
    return (
        {name: tensor.clone() for name, tensor in encoder.state_dict().items()},
        [parameter.requires_grad for parameter in encoder.parameters()],
        [module.training for module in encoder.modules()],
        [len(module._forward_hooks) + len(module._backward_hooks) for module in encoder.modules()],
        encoder.config._attn_implementation,
        torch.backends.cuda.flash_sdp_enabled(),
        [parameter.grad is None for parameter in encoder.parameters()],
    )


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_the_model_is_left_changed(harness, monkeypatch, fails):
    made = harness()
    advance(made, 1)
    made.encoder.body.embeddings.word_embeddings.weight.requires_grad_(False)
    made.training_step.parameters = [p for p in made.encoder.parameters() if p.requires_grad]
    before = state_of(made)
    if fails:

        def fail(model, batches=1):
            raise MemoryError("in the middle of an unroll")

        monkeypatch.setattr(made.training_step, "functional_validation_loss", fail)
        with pytest.raises(MemoryError):
            unrolled_gradient(made.training_step, torch.tensor([0.6, 0.4]), 2)
    else:
        unrolled_gradient(made.training_step, torch.tensor([0.6, 0.4]), 2)
    after = state_of(made)
    assert before[0].keys() == after[0].keys()
    assert all(torch.equal(tensor, after[0][name]) for name, tensor in before[0].items())
    assert before[1:] == after[1:]


def live_tensors():
    """Numbers held by tensors that Python can reach, without asking the collector to free any."""
    objects = gc.get_objects()
    return sum(one.numel() for one in objects if issubclass(type(one), torch.Tensor))


@pytest.mark.parametrize("unroll", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_memory_does_not_grow_over_meta_steps(harness, unroll):
    made = harness()
    rule = Meta(meta_options(unroll=unroll, initial=None), made.training_step.names)
    gc.collect()
    gc.disable()  # what is freed only by the collector would show
    try:
        sizes = []
        for step in range(14):
            made.training_step.begin(step)
            rule.step(made.training_step)
            if step in (4, 9, 13):
                sizes.append(live_tensors())
    finally:
        gc.enable()
    assert max(sizes) == sizes[0], sizes


def test_unfused_attention_is_logged_once(harness, caplog):
    made = harness()
    advance(made, 1)
    with caplog.at_level("INFO", logger="auxlearn"):
        for _ in range(2):
            unrolled_gradient(made.training_step, torch.tensor([0.6, 0.4]), 1)
    assert sum("attention is computed unfused" in line for line in caplog.messages) == 1
