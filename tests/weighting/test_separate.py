"""Optimizer steps with moments of their own, against AdamW by hand and central differences."""

from __future__ import annotations

import pytest
import torch

from auxlearn.errors import ConfigError
from auxlearn.weighting.meta import Meta, MetaOptions
from auxlearn.weighting.separate import SeparateSteps
from tests.weighting.test_meta import NAMES, RATE, Network, NetworkProblem, adamw

SHARED = 3  # the primary task reaches the first three parameters, the last is the others' head
CLIP = 0.5


def by_hand(network, weights_of, steps, taped=None):
    """Parameters after some steps, each objective with an AdamW of its own, written out in torch.

    Args:
        weights_of: Gives the weights of a step.
        taped: Weights of the last step, through which the result keeps its graph.
    """
    params = [p.clone() for p in network.start]
    moments = [[[torch.zeros_like(p), torch.zeros_like(p)] for p in params] for _ in NAMES]
    for step in range(steps):
        given = weights_of(step) if taped is None or step < steps - 1 else taped
        leaves = [p.detach().clone().requires_grad_() for p in params]
        after = [p.detach() for p in params]
        for index, loss in enumerate(network.losses(leaves, step)):
            grads = torch.autograd.grad(loss, leaves, allow_unused=True, retain_graph=True)
            norm = sum(float((g**2).sum()) for g in grads if g is not None) ** 0.5
            for number, g in enumerate(grads):
                if g is None:
                    continue
                g = g * min(1.0, CLIP / (norm + 1e-6))
                first, second = moments[index][number]
                first.mul_(0.9).add_(0.1 * g)
                second.mul_(0.999).add_(0.001 * g**2)
                mean = first / (1 - 0.9 ** (step + 1))
                root = (second / (1 - 0.999 ** (step + 1))).sqrt()
                u = -RATE * mean / (root + 1e-8)
                if index == 0:
                    u = u - RATE * 0.01 * params[number].detach()
                whole = given[0] if number < SHARED else given[1] + given[2]
                after[number] = after[number] + given[index] / whole * u
        params = after
    return params


def ready(**given):
    problem = NetworkProblem(Network(), adamw, CLIP)
    return problem, Meta(MetaOptions(**{"warmup_steps": 0, "learn_share": 1, **given}), NAMES)


def test_steps_are_those_of_one_adamw_for_each_objective():
    problem, rule = ready(learning_rate=0.1)
    used = []
    for step in range(6):
        problem.number = step
        used.append(rule.weights)
        rule.step(problem)
    expected = by_hand(Network(), lambda step: used[step], 6)
    for found, wanted in zip(problem.parameters, expected, strict=True):
        torch.testing.assert_close(found.detach(), wanted, rtol=1e-9, atol=1e-12)
    assert rule.weights.std() > 0.05


@pytest.mark.parametrize("before", [0, 4])
def test_the_meta_gradient_is_exact(before):
    problem, rule = ready(warmup_steps=before)
    start = rule.weights
    for step in range(before + 1):
        problem.number = step
        if step == before:
            with torch.no_grad():
                rule.logits.copy_(torch.tensor([0.3, -0.5, 0.1]))
        rule.step(problem)
    network = Network()

    def loss(logits):
        params = by_hand(network, lambda step: start, before + 1, logits.softmax(0))
        return network.validation_loss(params)

    chosen = torch.tensor([0.3, -0.5, 0.1], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(loss(chosen), chosen)
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-7, atol=1e-12)
    for index in range(3):
        ends = []
        for sign in (1, -1):
            moved = chosen.detach().clone()
            moved[index] += sign * 1e-5
            ends.append(float(loss(moved)))
        numeric = (ends[0] - ends[1]) / 2e-5
        assert float(rule.logits.grad[index]) == pytest.approx(numeric, rel=1e-5, abs=1e-9)


def test_auxiliary_tasks_of_no_weight_leave_the_primary_task_as_it_is_alone():
    alone = NetworkProblem(Network(), adamw, CLIP)
    problem, _ = ready()
    separate = SeparateSteps(3)
    weights = torch.tensor([1.0, 1e-30, 1e-30], dtype=torch.float64)
    for step in range(5):
        alone.number = problem.number = step
        separate.step(problem, problem.gradients(), weights)
        for parameter, part in zip(alone.parameters, alone.gradients()[0], strict=True):
            parameter.grad = part
        alone.update()
    for found, wanted in zip(problem.parameters[:SHARED], alone.parameters[:SHARED], strict=True):
        torch.testing.assert_close(found.detach(), wanted.detach(), rtol=1e-12, atol=1e-15)
    assert not torch.equal(problem.parameters[SHARED].detach(), alone.parameters[SHARED].detach())


def test_the_optimizer_is_left_with_the_state_of_the_primary_task():
    problem, rule = ready()
    rule.step(problem)
    assert {id(p) for p in problem.optimizer.state} == {id(p) for p in problem.parameters[:SHARED]}
    assert {group["weight_decay"] for group in problem.optimizer.param_groups} == {0.01}


def test_a_resumed_rule_makes_the_same_steps():
    def run(interrupt):
        problem, rule = ready(warmup_steps=1)
        for step in range(7):
            if step == interrupt:
                state = {name: tensor.clone() for name, tensor in rule.state_dict().items()}
                _, rule = ready(warmup_steps=1)
                rule.load_state_dict(state)
            problem.number = step
            rule.step(problem)
        return [p.detach() for p in problem.parameters]

    undisturbed = run(None)
    for interrupt in (0, 1, 4):
        for found, wanted in zip(run(interrupt), undisturbed, strict=True):
            assert torch.equal(found, wanted)


def test_an_unroll_wants_mixed_gradients():
    with pytest.raises(ConfigError, match="add mix gradients"):
        Meta(MetaOptions(unroll=2), NAMES)


def test_the_primary_task_starts_with_nine_tenths_and_keeps_two_fifths():
    _, rule = ready()
    assert rule.weights.tolist() == pytest.approx([0.9, 0.05, 0.05], abs=1e-12)
    _, rule = ready(learning_rate=0.5)
    for _ in range(50):
        rule.descend_logits(torch.tensor([1.0, -1.0, -1.0]))
    assert float(rule.weights[0]) == pytest.approx(0.4, abs=1e-12)
