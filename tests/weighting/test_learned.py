"""Schedule, initial weights, floor and optimizer of learned weights."""

import pytest
import torch

from auxlearn.core.errors import ConfigError
from auxlearn.weighting.learned import floored_weights
from tests.weighting.fakes import Network, NetworkStep, adamw, make, vector

#: Options that take a rule back to what all of them have in common.
PLAIN = {"meta": {"horizon": "steps", "mix": "gradients", "initial": (1, 1, 1), "floor": 0}}


def plain(name, **given):
    return make(name, **PLAIN.get(name, {}) | given)


@pytest.mark.parametrize("name", ["meta", "tartan", "ol_aux"])
def test_initial_weights_and_the_floor(name):
    for options, expected in (
        ({"initial": (1, 2, 5)}, [1 / 8, 2 / 8, 5 / 8]),
        ({"initial": (1, 2, 5), "floor": 0.3}, [0.3, 0.2, 0.5]),
        ({}, [1 / 3] * 3),
    ):
        shares = plain(name, **options).weights
        assert (shares / shares.sum()).tolist() == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ConfigError, match=f"{name}: initial has 2 weights for the 3 objectives"):
        plain(name, initial=(1, 2))
    with pytest.raises(ConfigError, match=f"{name}: initial weights are above zero"):
        plain(name, initial=(1, 2, 0))


@pytest.mark.parametrize(
    ("options", "steps", "expected"),
    [
        ({"warmup_steps": 3, "learn_share": 0.5, "every": 1}, 9, [3, 4, 5]),
        ({"warmup_steps": 4, "every": 3}, 11, [5, 8]),
    ],
)
def test_weights_are_learned_every_few_steps_of_the_learned_share(options, steps, expected):
    fake, rule = NetworkStep(Network(), adamw, 0.0), plain("meta", **options)
    moved = []
    for fake.number in range(steps):
        before = rule.weights
        rule.step(fake)
        moved.append(not torch.equal(before, rule.weights))
        assert bool(rule.metrics()) == moved[-1]
    assert [step for step, did in enumerate(moved) if did] == expected


def test_the_primary_task_keeps_its_floor_and_can_gain_again():
    rule = plain("meta", floor=0.25, learning_rate=0.5, optimizer="sgd")
    for _ in range(20):
        rule.apply_weight_gradient(torch.tensor([1.0, -1.0, 0.0]))
        assert float(rule.weights[0]) >= 0.25 - 1e-12
    assert float(rule.weights[0]) == pytest.approx(0.25, abs=1e-12)
    for _ in range(20):
        rule.apply_weight_gradient(torch.tensor([-1.0, 1.0, 0.0]))
    assert float(rule.weights[0]) > 0.5


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_the_optimizer_of_the_logits(kind):
    rule = plain("meta", optimizer=kind, learning_rate=0.1)
    twin = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    torchs = {
        "adam": torch.optim.Adam([twin], lr=0.1),
        "sgd": torch.optim.SGD([twin], lr=0.1),
    }[kind]
    for slope in ([1.0, 2.0, -1.0], [0.5, -0.5, 1.0], [3.0, 0.0, 0.0]):
        weight_gradient = torch.tensor(slope, dtype=torch.float64)
        torchs.zero_grad()
        (twin.softmax(0) * weight_gradient).sum().backward()
        torchs.step()
        rule.apply_weight_gradient(weight_gradient)
    torch.testing.assert_close(rule.logits.detach(), twin.detach(), rtol=1e-12, atol=1e-14)


def test_dev_heads_are_those_of_rules_and_options():
    assert plain("meta", dev_head="closed").dev_head == "closed"
    heads = [plain(name).dev_head for name in ("tartan", "tartan_released", "fixed")]
    assert heads == ["fitted", "refitted", "own"]


def test_floored_weights_by_hand():
    # A sum of 10 with a floor of .4: the others share 6 in their ratio of 1 to 2.
    assert floored_weights(vector(1, 3, 6), 0.4).tolist() == pytest.approx([4, 2, 4], abs=1e-14)
    assert floored_weights(vector(5, 3, 2), 0.4).tolist() == [5, 3, 2]
    assert floored_weights(vector(0.2), 0.4).tolist() == [0.2]
