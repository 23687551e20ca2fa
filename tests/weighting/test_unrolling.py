"""The differentiable optimizers against torch's own, and their derivative."""

from __future__ import annotations

import pytest
import torch

from auxlearn.weighting.gradients import weighted_sum
from auxlearn.weighting.optimizer_steps import StepDerivative, gram_matrices
from auxlearn.weighting.unrolling import DifferentiableAdamW, clip
from tests.helpers import assert_close, generator, slopes

SHAPES = [(3, 4), (5,), (2, 2), (4,)]
UNUSED = 2  # this parameter never gets a gradient


def parameters(seed=0):
    draws = generator(seed)
    return [torch.randn(s, generator=draws, dtype=torch.float64).requires_grad_() for s in SHAPES]


def gradient(seed, scale=1.0):
    draws = generator(seed)
    found = [torch.randn(s, generator=draws, dtype=torch.float64) * scale for s in SHAPES]
    return [None if index == UNUSED else part for index, part in enumerate(found)]


def optimizer(kind, params):
    """Two groups, to which the parameters belong out of order."""
    groups = [{"params": [params[2], params[0]]}, {"params": [params[3], params[1]]}]
    if kind == "sgd":
        groups[1] |= {"lr": 0.3, "weight_decay": 0.0}
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.2)
    if kind == "nesterov":
        return torch.optim.SGD(groups, lr=0.1, momentum=0.8, nesterov=True)
    groups[1] |= {"lr": 0.03, "weight_decay": 0.0, "betas": (0.8, 0.95), "eps": 1e-5}
    maximize = kind == "adamw maximizing"
    return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1, maximize=maximize)


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


@pytest.mark.parametrize("kind", ["adamw", "adamw maximizing"])
def test_twenty_steps_equal_those_of_torch(kind):
    import higher

    real_params, copies = parameters(), parameters()
    real, twin = optimizer(kind, real_params), optimizer(kind, copies)
    differentiable = higher.get_diff_optim(twin, copies)
    assert isinstance(differentiable, DifferentiableAdamW)
    current = copies
    for step in range(20):
        grads = gradient(step, scale=10.0 ** (step % 7 - 3))
        real_step(real, real_params, grads)
        current = [
            p.detach().requires_grad_() for p in differentiable_step(differentiable, current, grads)
        ]
        for one, other in zip(real_params, current, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-13, atol=1e-15)
    moved = [not torch.equal(p, q) for p, q in zip(current, parameters(), strict=True)]
    assert moved == [index != UNUSED for index in range(len(SHAPES))]


def test_it_continues_from_the_state_of_a_real_optimizer():
    import higher

    params = parameters()
    real = optimizer("adamw", params)
    for step in range(5):
        real_step(real, params, gradient(step))
    differentiable = higher.get_diff_optim(real, params)
    start = [p.detach().clone().requires_grad_() for p in params]
    updated = differentiable_step(differentiable, start, gradient(5))
    real_step(real, params, gradient(5))
    for one, other in zip(params, updated, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    "kind", [lambda p: torch.optim.AdamW([p], amsgrad=True), lambda p: torch.optim.Rprop([p])]
)
def test_optimizers_whose_derivative_is_not_known_are_refused(kind):
    parameter = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="is not known here"):
        StepDerivative(kind(parameter), [parameter])


KINDS = ["sgd", "nesterov", "adamw", "adamw maximizing"]


@pytest.mark.parametrize("first_step", [False, True])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.5, 1e6])
@pytest.mark.parametrize("kind", KINDS)
def test_weight_gradients_equal_central_differences(monkeypatch, kind, max_grad_norm, first_step):
    monkeypatch.setattr(
        "auxlearn.weighting.optimizer_steps.CHUNK_SIZE", 5
    )  # most tensors have several chunks
    warm_up = 0 if first_step else 4
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    gradients, direction = [gradient(50), gradient(51), gradient(52)], gradient(60)
    gradients[1][0] = None  # one objective does not reach every parameter

    def ready():
        params = parameters()
        real = optimizer(kind, params)
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
    derivative = StepDerivative(real, params, max_grad_norm)
    make_step(weights, params, real)
    mixed, (gram,) = weighted_sum(gradients, weights), gram_matrices(gradients)
    found, aligned = derivative.weight_gradient(gradients, weights, gram, direction)

    numeric = slopes(lambda moved: make_step(moved, *ready()), weights, 1e-4)
    torch.testing.assert_close(found, numeric, rtol=1e-6, atol=1e-9)

    flat = [torch.cat([(p * 0 if g is None else g).flatten() for p, g in zip(params, one, strict=True)]) for one in [*gradients, direction]]  # noqa: E501 # fmt: skip
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
    derivative = StepDerivative(real, [parameter])
    real_step(real, [parameter], grads[0])
    ones = torch.ones(3, dtype=torch.float64)
    found, _ = derivative.weight_gradient(grads, one, gram_matrices(grads)[0], [ones])
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
