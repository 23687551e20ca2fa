"""FAMO against TorchJD's, which was adapted from the authors' code."""

from __future__ import annotations

import pytest
import torch
from torchjd.scalarization import FAMO as Reference

from auxlearn.weighting.famo import FAMO, FAMOOptions
from tests.weighting.fakes import NAMES, FakeStep, random_gradients, run

BEFORE = [[2.0, 0.5, 7.0], [1.5, 0.6, 6.0], [1.2, 0.2, 5.0], [1.0, 0.3, 4.0], [0.8, 0.1, 3.0]]
AFTER = [[1.9, 0.6, 6.0], [1.2, 0.5, 6.1], [1.2, 0.1, 4.0], [1.1, 0.2, 4.0], [0.7, 0.1, 2.9]]


def make(**given):
    return FAMO(FAMOOptions(**given), NAMES)


def reference(lr=0.025, weight_decay=1e-3):
    rule = Reference(3, lr=lr, weight_decay=weight_decay).double()
    found = []
    for before, after in zip(BEFORE, AFTER, strict=True):
        losses = torch.tensor(before, dtype=torch.float64, requires_grad=True)
        (weights,) = torch.autograd.grad(rule(losses), losses)
        found.append(weights)
        rule.update(torch.tensor(after, dtype=torch.float64))
    return torch.stack(found)


@pytest.mark.parametrize(("rate", "decay"), [(0.025, 1e-3), (0.5, 0.0), (0.1, 0.1)])
def test_weights_are_those_of_torchjd(rate, decay):
    rule = make(learning_rate=rate, weight_decay=decay)
    combined, weights = run(rule, FakeStep(random_gradients(5), BEFORE, AFTER))
    expected = reference(rate, decay)
    assert expected.std(0).min() > 0.01
    torch.testing.assert_close(
        torch.tensor(weights, dtype=torch.float64), expected, rtol=1e-12, atol=1e-15
    )
    for found, used, gradients in zip(combined, expected, random_gradients(5), strict=True):
        by_hand = sum(
            w * torch.tensor(g[0], dtype=torch.float64)
            for w, g in zip(used, gradients, strict=True)
        )
        torch.testing.assert_close(torch.tensor(found[0], dtype=torch.float64), by_hand)


def test_losses_after_the_step_are_computed_once_and_only_while_weights_are_learned():
    fake = FakeStep(random_gradients(5), BEFORE, AFTER)
    rule = make(learning_rate=0.5, warmup_steps=1, learn_share=0.25)
    run(rule, fake)
    assert fake.forward_passes == 2
    logits = rule.logits.clone()
    assert logits.std() > 0.1
    run(rule, fake, [4])
    assert torch.equal(rule.logits, logits)


def test_steps_with_fixed_logits_are_on_log_losses_as_well():
    rule = make(warmup_steps=9)
    _, weights = run(rule, FakeStep(random_gradients(5), BEFORE, AFTER))
    for used, losses in zip(weights, BEFORE, strict=True):
        inverse = [1 / loss for loss in losses]
        assert used == pytest.approx([value / sum(inverse) for value in inverse], rel=1e-7)


def test_moments_named_as_in_older_checkpoints_are_restored():
    undisturbed, halted = (FakeStep(random_gradients(5), BEFORE, AFTER) for _ in range(2))
    run(make(), undisturbed)
    first, second = make(), make()
    run(first, halted, range(2))
    names = {"step", "exp_avg", "exp_avg_sq"}
    state = first.state_dict()
    assert names < set(state)
    second.load_state_dict({f"adam/{k}" if k in names else k: v for k, v in state.items()})
    run(second, halted, range(2, 5))
    assert halted.combined == undisturbed.combined
