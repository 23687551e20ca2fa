"""Optimizer steps with moments of their own, against AdamW by hand and central differences."""

from contextlib import nullcontext

import pytest
import torch

from auxlearn.core.errors import ConfigError
from auxlearn.weighting.meta_options import (
    default_meta_weights,
    logit_learning_rate,
    lowest_logit,
    meta_gradient_of_logits,
)
from auxlearn.weighting.optimizer_steps import SeparateSteps, step_coefficients
from tests.helpers import slopes
from tests.weighting.fakes import NAMES, RATE, Network, NetworkStep, adamw, make

SHARED = 3  # the primary task reaches the first three parameters, the last is the others' head
CLIP = 0.5


def by_hand(network, weights_of, steps, taped=None):
    """Parameters after some steps, each objective with an AdamW of its own, written out in torch.

    ``taped`` are weights of the last step, through which the result keeps its graph.
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


START = (0.9, 0.05, 0.05)


def ready(**given):
    options = {"warmup_steps": 0, "initial": START, "margin": 0, "gate": 0, **given}
    return NetworkStep(Network(), adamw, CLIP), make("meta", horizon="steps", **options)


def test_steps_are_those_of_one_adamw_for_each_objective():
    fake, rule = ready(learning_rate=0.1)
    used = []
    for fake.number in range(6):
        used.append(rule.weights)
        rule.step(fake)
    expected = by_hand(Network(), lambda step: used[step], 6)
    for found, wanted in zip(fake.parameters, expected, strict=True):
        torch.testing.assert_close(found.detach(), wanted, rtol=1e-9, atol=1e-12)
    assert rule.weights.std() > 0.05


@pytest.mark.parametrize("before", [0, 4])
def test_the_meta_gradient_is_exact(before):
    fake, rule = ready(warmup_steps=before)
    start = rule.weights
    for fake.number in range(before + 1):
        if fake.number == before:
            with torch.no_grad():
                rule.logits.copy_(torch.tensor([0.3, -0.5, 0.1]))
        rule.step(fake)
    network = Network()

    def loss(logits):
        params = by_hand(network, lambda step: start, before + 1, logits.softmax(0))
        return network.validation_loss(params)

    chosen = torch.tensor([0.3, -0.5, 0.1], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(loss(chosen), chosen)
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(rule.logits.grad, slopes(loss, chosen), rtol=1e-5, atol=1e-9)


def test_tasks_below_the_gate_leave_the_primary_task_as_it_is_alone():
    """Bit by bit, although the meta-gradient is taken and their own head is trained."""
    alone = NetworkStep(Network(), adamw, CLIP)
    fake, rule = ready(initial=None, gate=0.9, floor=0)
    for fake.number in range(5):
        alone.number = fake.number
        rule.step(fake)
        for parameter, part in zip(alone.parameters, alone.gradients()[0], strict=True):
            parameter.grad = part
        alone.optimizer_step()
        assert rule.weights.tolist() == [1.0, 0.0, 0.0]
    for found, wanted in zip(fake.parameters[:SHARED], alone.parameters[:SHARED], strict=True):
        assert torch.equal(found.detach(), wanted.detach())
    assert not torch.equal(fake.parameters[SHARED].detach(), alone.parameters[SHARED].detach())
    candidates = [rule.metrics()[f"candidate/{name}"] for name in NAMES]
    assert candidates == rule.softmax().tolist()
    assert candidates[1] != pytest.approx(0.01, rel=1e-3)  # it is learned all the same


def test_a_task_is_applied_once_its_weight_has_reached_the_gate():
    _, rule = ready(initial=None, gate=0.06)
    for weights, expected in [
        ((0.95, 0.029, 0.021), [1, 0, 0]),
        ((0.95, 0.031, 0.019), [0.95 / 0.981, 0.031 / 0.981, 0]),
        ((0.9, 0.04, 0.06), [0.9, 0.04, 0.06]),
    ]:
        with torch.no_grad():
            rule.logits.copy_(torch.tensor(weights, dtype=torch.float64).log())
        assert rule.weights.tolist() == pytest.approx(expected, abs=1e-12)
    mixed = make("meta", horizon="steps", mix="gradients")
    assert mixed.weights.tolist() == pytest.approx([0.98, 0.01, 0.01], abs=1e-12)


def test_the_optimizer_is_left_with_the_state_of_the_primary_task():
    fake, rule = ready()
    rule.step(fake)
    assert {id(p) for p in fake.optimizer.state} == {id(p) for p in fake.parameters[:SHARED]}
    assert {group["weight_decay"] for group in fake.optimizer.param_groups} == {0.01}


@pytest.mark.parametrize(
    ("tasks", "given", "reason"),
    [
        (1, {"floor": 0.95}, "0.06, but floor 0.95 leaves them a weight of 0.05 in all: lower"),
        (2, {"gate": 0.9}, "0.45, but floor 0.6 leaves them"),
        (1, {"gate": 0.39}, None),
        (0, {"floor": 0.95}, None),
        (1, {"floor": 0.99, "gate": 0}, None),
        (1, {"floor": 0.95, "mix": "scaled"}, None),
    ],
)
def test_a_gate_that_the_floor_puts_out_of_reach_is_refused(tasks, given, reason):
    refused = nullcontext()
    if reason:
        share = rf"gate {given.get('gate', 0.06)} divided by their number, {tasks}, is {reason}"
        refused = pytest.raises(ConfigError, match=f"^meta: no auxiliary task can reach .* {share}")
    with refused:
        make("meta", NAMES[: tasks + 1], horizon="steps", **given)


def test_an_unroll_wants_mixed_gradients():
    with pytest.raises(ConfigError, match="add mix scaled"):
        make("meta", horizon="steps", unroll=2)


def test_auxiliary_tasks_start_with_two_per_cent_and_the_primary_task_keeps_three_fifths():
    _, rule = ready(initial=None)
    assert rule.softmax().tolist() == pytest.approx([0.98, 0.01, 0.01], abs=1e-12)
    assert default_meta_weights(1).tolist() == [1.0]
    assert default_meta_weights(2).tolist() == pytest.approx([0.98, 0.02], abs=1e-15)
    _, rule = ready(learning_rate=0.5)
    for _ in range(50):
        rule.apply_logit_gradient(torch.tensor([1.0, -1.0, -1.0]))
    assert float(rule.weights[0]) == pytest.approx(0.6, abs=1e-12)


def test_no_auxiliary_task_falls_below_a_third_of_the_gate():
    """A task that the evidence speaks against needs no more of it later than one without any."""
    _, rule = ready(initial=None, learning_rate=0.5, gate=0.06)
    fake, _ = ready()
    for fake.number in range(10):
        rule.step(fake)
        weights = rule.softmax()
        assert float((weights[1:] / weights[0]).min()) >= 0.01 / 0.98 - 1e-12
    logits = torch.tensor([1.0, -9.0, 0.5], dtype=torch.float64)
    logits[1:] = lowest_logit(logits, 0.02)
    assert logits.softmax(0).tolist() == pytest.approx([0.98, 0.01, 0.01], rel=1e-12)


@pytest.mark.parametrize("slope", [-0.1, 0.0])
@pytest.mark.parametrize("gate_share", [0.5, 1.0])
def test_a_task_that_has_not_passed_the_gate_in_its_share_of_the_steps_stays_out(
    monkeypatch, gate_share, slope
):
    """One task gains from step to step, the other is applied, and may lose until it is left out."""
    fake, rule = ready(initial=(0.88, 0.02, 0.1), gate=0.1, gate_share=gate_share)
    slopes = torch.tensor([0.0, 0.1, slope], dtype=torch.float64)

    def drift(gradient):
        with torch.no_grad():
            rule.logits.add_(slopes)

    monkeypatch.setattr(rule, "apply_logit_gradient", drift)
    monkeypatch.setattr(type(fake), "constant_validation_loss", float("inf"))
    applied, separate = [], []
    step_all = SeparateSteps.step

    def step_of_each(self, *given):
        separate.append(fake.number)
        return step_all(self, *given)

    monkeypatch.setattr(SeparateSteps, "step", step_of_each)
    for number in range(fake.total_steps):
        fake.number = number
        applied.append(tuple(weight > 0 for weight in rule.weights.tolist()[1:]))
        rule.step(fake)
    half = fake.total_steps // 2
    assert applied[0] == (False, True)
    if gate_share == 1.0:
        assert applied[-1] == (True, slope == 0)
        assert separate == list(range(fake.total_steps))
    elif slope == 0:
        assert applied == [(False, True)] * fake.total_steps
        assert separate == list(range(fake.total_steps))
    else:
        left = next(number for number, one in enumerate(applied) if one == (False, False))
        assert half <= left < fake.total_steps
        assert applied[left:] == [(False, False)] * (fake.total_steps - left)
        assert separate == list(range(left))  # what follows is the primary task alone


@pytest.mark.parametrize(
    ("constant", "expected"),
    [(0.45, [False, False, False, True]), (0.35, [False, False, False, False])],
)
def test_no_evidence_counts_until_the_primary_task_beats_a_constant_prediction(
    monkeypatch, constant, expected
):
    fake, rule = ready(gate=0.06, validation_decay=0.5)
    losses = [1.0, 0.9, 0.2, 0.3]  # their moving averages: 1, .933, .514, .4
    validate = fake.validation_gradient

    def validation_gradient(**given):
        found = validate(**given)
        fake.losses["validation"] = torch.tensor(losses[fake.number], dtype=torch.float64)
        return found

    monkeypatch.setattr(fake, "validation_gradient", validation_gradient)
    monkeypatch.setattr(type(fake), "constant_validation_loss", constant)
    changed = []
    for fake.number in range(4):
        before = rule.logits.detach().clone()
        rule.step(fake)
        changed.append(not torch.equal(rule.logits, before))
    assert changed == expected


def test_all_evidence_one_way_changes_a_logit_by_eight_in_the_run():
    for steps, every in ((190, 1), (400, 2), (9, 1)):
        assert logit_learning_rate(steps, every, 0.0) * (steps / every) == pytest.approx(8)
    assert logit_learning_rate(7, 1, 0.0) == 1
    assert logit_learning_rate(190, 1, 0.95) == 8 / 190
    # In a short run, by one within the memory of the average.
    assert logit_learning_rate(100, 1, 0.95) * 20 == pytest.approx(1)


@pytest.mark.parametrize(
    ("has_step", "second_applied", "expected"),
    [
        ((True, True, True), True, [1, 0.5, 0.25]),
        ((True, False, True), True, [1, 0, 0.25]),
        ((False, True, True), True, [0, 2 / 3, 1 / 3]),
        ((False, False, True), True, [0, 0, 1]),
        ((False, False, False), True, [0, 0, 0]),
        ((True, True, True), False, [1, 0, 0.25]),
        ((True, True, False), False, [1, 0, 0]),
        ((False, True, True), False, [0, 2 / 3, 1 / 3]),
        ((False, True, False), False, [0, 1, 0]),
    ],
)
def test_coefficients_by_hand(has_step, second_applied, expected):
    """Ratios to the primary weight; an average where the primary task has no step.

    An objective that is not applied only changes what the primary task does not reach.
    """
    found = step_coefficients((0.8, 0.4, 0.2), has_step, (True, second_applied, True))
    assert found == pytest.approx(expected, abs=1e-15)


def three_steps(monkeypatch, options, sizes=(1.0, 1.0, 1.0)):
    """Make three steps, and return the rule and all that its meta-gradient is made from.

    Validation gradients, ``(steps, elements)``, times ``sizes`` by step; steps of the objectives,
    ``(steps, objectives, elements)``; the weights of the last step.
    """
    fake, rule = ready(**options)
    gradients, moved, weights = [], [], []
    validate, step_all = fake.validation_gradient, SeparateSteps.step

    def flat(parts):
        whole = zip(parts, fake.parameters, strict=True)
        return torch.cat([(torch.zeros_like(p) if u is None else u).flatten() for u, p in whole])

    def validation_gradient(**given):
        size = sizes[fake.number]
        found = [None if part is None else size * part for part in validate(**given)]
        gradients.append(flat(found).detach())
        return found

    def step_of_each(self, step, given, current, applied):
        found = step_all(self, step, given, current, applied)
        moved.append(torch.stack([flat(own).detach() for own in found]))
        weights.append(current)
        return found

    monkeypatch.setattr(fake, "validation_gradient", validation_gradient)
    monkeypatch.setattr(SeparateSteps, "step", step_of_each)
    for fake.number in range(3):
        rule.step(fake)
    return rule, torch.stack(gradients), torch.stack(moved), weights[-1]


def test_the_price_is_a_share_of_what_the_primary_task_has_contributed_on_average(
    monkeypatch,
):
    """And not of what it does in the last step, which may be next to nothing."""
    options = {"margin": 0.4, "validation_decay": 0.0, "step_decay": 0.0}
    sizes = (1.0, -2.0, 1e-6)
    rule, gradients, moved, weights = three_steps(monkeypatch, options, sizes)
    contributions = (moved @ gradients[:, :, None])[:, :, 0]
    price = 0.4 * float(contributions[:, 0].abs().mean())
    assert price > 100 * abs(contributions[-1, 0])
    charged = contributions[-1].clone()
    charged[1:] += price
    expected = meta_gradient_of_logits(weights, charged)
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("validation_decay", "step_decay"), [(0.8, 0.0), (0.0, 0.7), (0.8, 0.7)])
def test_the_meta_gradient_is_the_product_of_averages(monkeypatch, validation_decay, step_decay):
    """Of the validation gradients and of each objective's steps, both written out as sums."""
    options = {"validation_decay": validation_decay, "step_decay": step_decay}
    rule, gradients, moved, weights = three_steps(monkeypatch, options)

    def average(given, decay):
        shares = [(1 - decay) * decay**age / (1 - decay**3) for age in (2, 1, 0)]
        assert sum(shares) == pytest.approx(1, abs=1e-15)
        return torch.einsum("s,s...->...", torch.tensor(shares, dtype=torch.float64), given)

    products = average(moved, step_decay) @ average(gradients, validation_decay)
    expected = meta_gradient_of_logits(weights, products)
    torch.testing.assert_close(rule.logits.grad, expected, rtol=1e-12, atol=0)
    last = float(moved[-1, 1] @ gradients[-1])
    assert abs(last - products[1]) > 1e-3 * abs(products[1])  # or the test would show nothing
