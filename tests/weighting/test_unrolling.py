"""Unrolls: against loops by hand, central differences, the one-step rule and torch's optimizers."""

import gc
from contextlib import nullcontext
from unittest.mock import Mock

import higher
import pytest
import torch

from auxlearn.encoders.load import load_encoder
from auxlearn.weighting.gradients import weighted_sum
from auxlearn.weighting.meta import Meta
from auxlearn.weighting.optimizer_steps import gram_matrices, weight_gradient
from auxlearn.weighting.unrolling import DifferentiableAdamW, clip, unrolled_gradient
from tests.helpers import LABELS, assert_close, generator, slopes, without_dropout
from tests.training.harness import Harness, MaskedWords
from tests.weighting.fakes import (
    NAMES,
    RATE,
    Network,
    NetworkStep,
    adamw,
    meta_options,
    sgd,
    unrolled_by_hand,
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


def network_after(kind, max_grad_norm, before):
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
    fake = network_after(kind, max_grad_norm, before=3)
    found, first = unrolled_gradient(fake, CHOSEN, steps)
    weights = CHOSEN.clone().requires_grad_()
    loss = unrolled_by_hand(fake.network, kind, max_grad_norm, weights, 3, steps)
    (expected,) = torch.autograd.grad(loss, weights)
    assert expected.abs().min() > 1e-6
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(fake.losses["validation"], loss.detach(), rtol=1e-12, atol=0)

    numeric = slopes(
        lambda moved: unrolled_by_hand(fake.network, kind, max_grad_norm, moved, 3, steps).detach(),
        CHOSEN,
    )
    torch.testing.assert_close(found, numeric, rtol=1e-6, atol=1e-12)

    fake.backward(CHOSEN)
    for given, parameter in zip(first, fake.parameters, strict=True):
        torch.testing.assert_close(given, parameter.grad, rtol=1e-12, atol=1e-15)


def test_unrolled_weights_change_and_the_step_is_the_first_of_the_unroll():
    fake, other = network_after(adamw, 0.05, 3), network_after(adamw, 0.05, 3)
    rule = Meta(meta_options(unroll=3), NAMES)
    rule.step(fake)
    other.backward(torch.full((3,), 1 / 3, dtype=torch.float64))
    other.optimizer_step()
    for p, q in zip(fake.parameters, other.parameters, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-13)
    assert rule.weights.std() > 1e-3


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
    by_weight, _ = unrolled_gradient(one.training_step, weights, 1, batches=3)
    rule = Meta(meta_options(initial=(0.6, 0.4), batches=3), other.training_step.names)
    rule.step(other.training_step)
    expected = weights * (by_weight - (weights * by_weight).sum())
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-8, atol=0)


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
    expected = nullcontext()
    if fails:  # in the middle of an unroll
        failing = Mock(side_effect=MemoryError)
        monkeypatch.setattr(made.training_step, "functional_validation_loss", failing)
        expected = pytest.raises(MemoryError)
    with expected:
        unrolled_gradient(made.training_step, torch.tensor([0.6, 0.4]), 2)
    after = state_of(made)
    assert before[0].keys() == after[0].keys()
    assert all(torch.equal(tensor, after[0][name]) for name, tensor in before[0].items())
    assert before[1:] == after[1:]


def live_tensors():
    """Numbers held by tensors that Python can reach, without asking the collector to free any."""
    objects = gc.get_objects()
    return sum(one.numel() for one in objects if issubclass(type(one), torch.Tensor))


def test_memory_does_not_grow_over_meta_steps(harness):
    made = harness()
    rule = Meta(meta_options(unroll=2, initial=None), made.training_step.names)
    gc.collect()
    gc.disable()  # what is freed only by the collector would show
    try:
        sizes = []
        for step in range(8):
            made.training_step.begin(step)
            rule.step(made.training_step)
            if step in (3, 5, 7):
                sizes.append(live_tensors())
    finally:
        gc.enable()
    assert max(sizes) == sizes[0], sizes


SHAPES = [(3, 4), (5,), (2, 2), (4,)]
UNUSED = 2  # this parameter never gets a gradient


def parameters(seed=0):
    draws = generator(seed)
    return [torch.randn(s, generator=draws, dtype=torch.float64).requires_grad_() for s in SHAPES]


def gradient(seed, scale=1.0):
    draws = generator(seed)
    found = [torch.randn(s, generator=draws, dtype=torch.float64) * scale for s in SHAPES]
    return [None if index == UNUSED else part for index, part in enumerate(found)]


def optimizer(params):
    """Two groups, to which the parameters belong out of order."""
    groups = [{"params": [params[2], params[0]]}, {"params": [params[3], params[1]]}]
    groups[1] |= {"lr": 0.03, "weight_decay": 0.0, "betas": (0.8, 0.95), "eps": 1e-5}
    return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)


def real_step(real, params, grads):
    for parameter, grad in zip(params, grads, strict=True):
        parameter.grad = None if grad is None else grad.clone()
    real.step()
    real.zero_grad()


def differentiable_step(differentiable, params, grads):
    """One step of ``higher``'s optimizer with gradients from outside."""
    return differentiable.step(
        sum(p.sum() for p in params), params=params, grad_callback=lambda _: grads
    )


def test_twenty_steps_equal_those_of_torch():
    """From the state of a real optimizer after the first five."""
    params = parameters()
    real = optimizer(params)
    for step in range(5):
        real_step(real, params, gradient(step))
    differentiable = higher.get_diff_optim(real, params)
    assert isinstance(differentiable, DifferentiableAdamW)
    current = [p.detach().clone().requires_grad_() for p in params]
    for step in range(20):
        grads = gradient(step, scale=10.0 ** (step % 7 - 3))
        real_step(real, params, grads)
        updated = differentiable_step(differentiable, current, grads)
        current = [p.detach().requires_grad_() for p in updated]
        for one, other in zip(params, current, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-13, atol=1e-15)
    moved = [not torch.equal(p, q) for p, q in zip(current, parameters(), strict=True)]
    assert moved == [index != UNUSED for index in range(len(SHAPES))]


@pytest.mark.parametrize("first_step", [False, True])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.5, 1e6])
def test_weight_gradients_equal_central_differences(monkeypatch, max_grad_norm, first_step):
    monkeypatch.setattr(
        "auxlearn.weighting.optimizer_steps.CHUNK_SIZE", 5
    )  # most tensors have several chunks
    warm_up = 0 if first_step else 4
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    gradients, direction = [gradient(50), gradient(51), gradient(52)], gradient(60)
    gradients[1][0] = None  # one objective does not reach every parameter

    def ready():
        params = parameters()
        real = optimizer(params)
        for step in range(warm_up):
            real_step(real, params, gradient(step))
        return params, real

    def make_step(given, params, real):
        for number, parameter in enumerate(params):
            parts = [
                w * g[number]
                for w, g in zip(given, gradients, strict=True)
                if g[number] is not None
            ]
            parameter.grad = sum(parts) if parts else None
        if max_grad_norm:
            torch.nn.utils.clip_grad_norm_(params, max_grad_norm)
        real.step()
        pairs = zip(params, direction, strict=True)
        return sum(float((p.detach() * v).sum()) for p, v in pairs if v is not None)

    params, real = ready()
    make_step(weights, params, real)
    mixed, (gram,) = weighted_sum(gradients, weights), gram_matrices(gradients)
    found, aligned = weight_gradient(
        real, params, max_grad_norm, gradients, weights, gram, direction
    )

    numeric = slopes(lambda moved: make_step(moved, *ready()), weights, 1e-4)
    torch.testing.assert_close(found, numeric, rtol=1e-6, atol=1e-9)

    flat = [
        torch.cat([(p * 0 if g is None else g).flatten() for p, g in zip(params, one, strict=True)])
        for one in [*gradients, direction]
    ]
    expected = torch.stack([one @ other for one in flat[:3] for other in flat[:3]]).view(3, 3)
    torch.testing.assert_close(gram, expected.detach(), rtol=1e-12, atol=0)
    with_direction = torch.stack([one @ flat[3] for one in flat]).detach()
    torch.testing.assert_close(aligned, with_direction, rtol=1e-12, atol=1e-12)
    for part, sources in zip(mixed, zip(*gradients, strict=True), strict=True):
        expected = [w * g for w, g in zip(weights, sources, strict=True) if g is not None]
        assert_close([part], [sum(expected) if expected else None], rtol=1e-12, atol=1e-15)


def test_a_gradient_of_zero_in_the_first_step_gives_numbers():
    # The second moment is exactly zero there, and the derivative of a root at zero is infinite.
    parameter = torch.ones(3, dtype=torch.float64, requires_grad=True)
    grads = [[torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)]]
    real, one = torch.optim.AdamW([parameter], lr=0.1), torch.ones(1, dtype=torch.float64)
    real_step(real, [parameter], grads[0])
    ones = torch.ones(3, dtype=torch.float64)
    gram = gram_matrices(grads)[0]
    found, _ = weight_gradient(real, [parameter], 0.0, grads, one, gram, [ones])
    assert found.isfinite().all()


@pytest.mark.parametrize("max_norm", [0.0, 0.1, 3.0, 1e6])
def test_clip_equals_that_of_torch(max_norm):
    grads = gradient(3)
    params = parameters()
    for parameter, grad in zip(params, grads, strict=True):
        parameter.grad = None if grad is None else grad.clone()
    if max_norm:
        torch.nn.utils.clip_grad_norm_(params, max_norm)
    assert_close(clip(grads, max_norm), [p.grad for p in params], rtol=1e-14, atol=0)
