"""The differentiable optimizers against torch's own, and their derivative."""

from __future__ import annotations

import pytest
import torch

from auxlearn.weighting.differentiable import DifferentiableAdamW, UpdateDerivative, clip

SHAPES = [(3, 4), (5,), (2, 2), (4,)]
UNUSED = 2  # this parameter never gets a gradient


def generator(seed):
    return torch.Generator().manual_seed(seed)


def parameters(seed=0):
    draws = generator(seed)
    return [torch.randn(s, generator=draws, dtype=torch.float64).requires_grad_() for s in SHAPES]


def gradient(seed, scale=1.0):
    draws = generator(seed)
    drawn = [torch.randn(s, generator=draws, dtype=torch.float64) * scale for s in SHAPES]
    return [None if index == UNUSED else part for index, part in enumerate(drawn)]


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


def test_it_goes_on_from_the_state_of_a_real_optimizer():
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


def test_amsgrad_is_refused():
    parameter = torch.ones(2, requires_grad=True)
    real = torch.optim.AdamW([parameter], amsgrad=True)
    derivative = UpdateDerivative(real, [parameter])
    with pytest.raises(ValueError, match="amsgrad"):
        derivative.pull_back([torch.ones(2)], [torch.ones(2)], [parameter])


KINDS = ["sgd", "nesterov", "adamw", "adamw maximizing"]


@pytest.mark.parametrize("clip_norm", [0.0, 0.5, 1e6])
@pytest.mark.parametrize("kind", KINDS)
def test_pulled_back_directions_equal_central_differences(kind, clip_norm):
    warm_up, size = 4, 1e-6
    grads, direction = gradient(50), gradient(60)

    def after_update(given):
        """The product of the direction with the parameters after torch's own update."""
        params = parameters()
        real = optimizer(kind, params)
        for step in range(warm_up):
            real_step(real, params, gradient(step))
        for parameter, grad in zip(params, given, strict=True):
            parameter.grad = None if grad is None else grad.clone()
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(params, clip_norm)
        real.step()
        return sum(
            float((p.detach() * v).sum())
            for p, v in zip(params, direction, strict=True)
            if v is not None
        )

    params = parameters()
    real = optimizer(kind, params)
    for step in range(warm_up):
        real_step(real, params, gradient(step))
    state = {k: v.clone() for k, v in real.state[params[0]].items() if torch.is_tensor(v)}
    derivative = UpdateDerivative(real, params, clip_norm)
    pulled = derivative.pull_back(grads, direction, params)
    for key, value in state.items():
        assert torch.equal(real.state[params[0]][key], value), "the real optimizer was touched"

    assert [part is None for part in pulled] == [part is None for part in grads]
    for index, part in enumerate(pulled):
        if part is None:
            continue
        numeric = torch.zeros_like(part)
        for place in range(part.numel()):
            ends = []
            for sign in (1, -1):
                moved = [None if g is None else g.clone() for g in grads]
                moved[index].view(-1)[place] += sign * size
                ends.append(after_update(moved))
            numeric.view(-1)[place] = (ends[0] - ends[1]) / (2 * size)
        torch.testing.assert_close(part, numeric, rtol=1e-5, atol=1e-9)


def test_a_gradient_of_zero_on_a_fresh_state_gives_numbers():
    # The second moment is exactly zero there, and the derivative of a root at zero is infinite.
    parameter = torch.ones(3, dtype=torch.float64, requires_grad=True)
    grads = [torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)]
    derivative = UpdateDerivative(torch.optim.AdamW([parameter], lr=0.1), [parameter])
    (pulled,) = derivative.pull_back(grads, [torch.ones(3, dtype=torch.float64)], [parameter])
    assert pulled.isfinite().all()


def test_it_may_be_asked_before_or_after_the_real_step():
    params = parameters()
    real = optimizer("adamw", params)
    for step in range(3):
        real_step(real, params, gradient(step))
    before = UpdateDerivative(real, params).pull_back(gradient(9), gradient(8), params)
    derivative = UpdateDerivative(real, params)
    real_step(real, params, gradient(9))
    after = derivative.pull_back(gradient(9), gradient(8), params)
    for one, other in zip(before, after, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


@pytest.mark.parametrize("max_norm", [0.0, 0.1, 3.0, 1e6])
def test_clip_equals_that_of_torch(max_norm):
    grads = gradient(3)
    params = parameters()
    for parameter, grad in zip(params, grads, strict=True):
        parameter.grad = None if grad is None else grad.clone()
    if max_norm:
        torch.nn.utils.clip_grad_norm_(params, max_norm)
    for parameter, clipped in zip(params, clip(grads, max_norm), strict=True):
        if clipped is None:
            assert parameter.grad is None
        else:
            torch.testing.assert_close(clipped, parameter.grad, rtol=1e-14, atol=0)
