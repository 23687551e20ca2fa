"""How weighted objectives become one optimizer step."""

import pytest
import torch

from tests.weighting.fakes import (
    NAMES,
    FakeStep,
    Network,
    NetworkStep,
    RecordingStep,
    adamw,
    make,
    random_gradients,
    run,
    sgd,
)

MIXES = ("gradients", "scaled", "steps")


def rule_of(mix, alpha=(0.2, 0.1)):
    return make("fixed", NAMES[: len(alpha) + 1], alpha=alpha, mix=mix)


def parameters_after(rule, steps, optimizer=adamw):
    fake = RecordingStep(optimizer, len(rule.objectives))
    for fake.number in range(steps):
        rule.step(fake)
    return [parameter.detach().clone() for parameter in fake.parameters]


@pytest.mark.parametrize("name", ["metabalance", "gcs", "torchjd"])
def test_heads_take_their_own_gradients(name):
    steps = random_gradients(2, seed=1)
    combined, _ = run(make(name), FakeStep(steps))
    for found, given in zip(combined, steps, strict=True):
        assert found[2] == given[0][2]
        assert found[3] == pytest.approx(
            [a + b for a, b in zip(*(one[3] for one in given[1:]), strict=True)]
        )


@pytest.mark.parametrize("mix", MIXES)
def test_plain_sgd_by_hand(mix):
    """Under SGD every mixing is a weighted sum of gradients, with other factors."""
    network = Network()
    fake = NetworkStep(network, sgd, 0.0)
    start = [parameter.detach().clone().requires_grad_() for parameter in fake.parameters]
    losses = network.losses(start, 0)
    grads = [torch.autograd.grad(x, start, allow_unused=True, retain_graph=True) for x in losses]
    weights = [0.7, 0.2, 0.1]
    shared = [sum(float(g.square().sum()) for g in one[:2]) ** 0.5 for one in grads]
    rate = fake.optimizer.param_groups[0]["lr"]
    for place, parameter in enumerate(start):
        factors = {
            "gradients": weights,
            "scaled": [w * shared[0] / n for w, n in zip(weights, shared, strict=True)],
            # relative to the primary task, or a weighted mean where that has no step
            "steps": [w / 0.7 for w in weights]
            if grads[0][place] is not None
            else [0, *(w / 0.3 for w in weights[1:])],
        }[mix]
        total = sum(
            f * one[place]
            for f, one in zip(factors, grads, strict=True)
            if f and one[place] is not None
        )
        parameter.data -= rate * total
    found = parameters_after(rule_of(mix), 1, plain_sgd)
    for one, other in zip(found, start, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-10, atol=1e-12)


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, lr=sgd(parameters).param_groups[0]["lr"])


def test_with_separate_steps_the_primary_task_keeps_the_step_that_it_has_alone():
    """However long an auxiliary gradient is; with one AdamW the primary task hardly moves."""

    class Long(NetworkStep):
        def gradients(self):
            primary, *others = super().gradients()
            return [primary, *([None if g is None else 1e6 * g for g in one] for one in others)]

        def backward(self, weights):
            for weight, gradient in zip(weights.tolist(), self.gradients(), strict=True):
                for parameter, grad in zip(self.parameters, gradient, strict=True):
                    if grad is not None:
                        add = weight * grad
                        parameter.grad = add if parameter.grad is None else parameter.grad + add

    def moved(mix, alpha):
        fake = Long(Network(), adamw, 0.0)
        start = [parameter.detach().clone() for parameter in fake.parameters]
        rule_of(mix, alpha).step(fake)
        return [p.detach() - s for p, s in zip(fake.parameters, start, strict=True)]

    alone, mixed = moved("gradients", (0.0, 0.0)), moved("gradients", (1e-4, 1e-4))
    steps = moved("steps", (1e-4, 1e-4))
    same = torch.cat([(a * b > 0).flatten() for a, b in zip(alone[:2], mixed[:2], strict=True)])
    assert float(same.double().mean()) < 0.9  # the direction is that of the auxiliary objectives
    for a, b in zip(alone[:3], steps[:3], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=4e-4 * float(a.abs().max()))


@pytest.mark.parametrize("mix", MIXES)
def test_an_objective_of_weight_zero_is_not_trained_on(mix):
    alone = parameters_after(rule_of(mix, (0.3, 0.0)), 5)
    other = parameters_after(rule_of(mix, (0.3,)), 5)
    assert all(map(torch.equal, alone, other))
    single = parameters_after(rule_of(mix, (0.0, 0.0)), 5)
    expected = parameters_after(rule_of("gradients", (0.0, 0.0)), 5)
    assert all(map(torch.equal, single, expected))  # the same in every mixing
