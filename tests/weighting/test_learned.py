"""Schedules and bounds of learned weights, and the rules that need no validation rows."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from auxlearn.errors import ConfigError
from auxlearn.registry import WEIGHTINGS
from tests.weighting.test_meta import NAMES, Network, NetworkProblem, adamw, options, sgd

PARTS = ("body", "body", "primary", "other")


#: Options that take a rule back to what all of them have in common.
PLAIN = {"meta": {"mix": "gradients", "initial": (1, 1, 1), "floor": 0, "scale": "none"}}


def make(name, **given):
    cls = WEIGHTINGS.get(name)
    return cls(cls.Options(**PLAIN.get(name, {}) | given), NAMES)


class Given:
    """A problem whose losses are given, and whose updates do nothing."""

    names = NAMES
    total_steps = 1000

    def __init__(self, losses):
        self.given, self.number = losses, 0
        self.used = []

    def backward(self, weights):
        self.used.append([float(weight) for weight in weights])
        values = torch.tensor(self.given[self.number], dtype=torch.float64)
        self.losses = dict(zip(NAMES, values, strict=True))

    def update(self):
        pass


def run(rule, losses):
    problem = Given(losses)
    for problem.number in range(len(losses)):
        rule.step(problem)
    return problem.used


LEARNED = ["meta", "tartan", "uncertainty", "gradnorm", "dwa", "famo", "ol_aux"]


@pytest.mark.parametrize("name", LEARNED)
def test_initial_weights_and_the_floor(name):
    shares = make(name, initial=(1, 2, 5)).weights
    assert (shares / shares.sum()).tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=1e-12)
    shares = make(name, initial=(1, 2, 5), floor=0.3).weights
    assert (shares / shares.sum()).tolist() == pytest.approx([0.3, 0.2, 0.5], abs=1e-12)
    shares = make(name).weights
    assert (shares / shares.sum()).tolist() == pytest.approx([1 / 3] * 3, abs=1e-12)


@pytest.mark.parametrize("name", LEARNED)
def test_initial_weights_that_do_not_fit(name):
    with pytest.raises(ConfigError, match=f"{name}: initial has 2 weights for the 3 objectives"):
        make(name, initial=(1, 2))
    with pytest.raises(ConfigError, match=f"{name}: initial weights are above zero"):
        make(name, initial=(1, 2, 0))


def test_weights_rest_before_the_warm_up_and_after_the_freeze():
    problem = NetworkProblem(Network(), adamw, 0.0)
    rule = make("meta", warmup_steps=3, learn_share=0.5)
    moved = []
    for step in range(9):
        before, problem.number = rule.weights, step
        rule.step(problem)
        moved.append(not torch.equal(before, rule.weights))
    assert [step for step, did in enumerate(moved) if did] == [3, 4, 5]


def test_the_primary_task_keeps_its_floor_and_may_rise_again():
    rule = make("meta", floor=0.25, learning_rate=0.5, optimizer="sgd")
    for _ in range(20):
        rule.descend(torch.tensor([1.0, -1.0, 0.0]))
        assert float(rule.weights[0]) >= 0.25 - 1e-12
    assert float(rule.weights[0]) == pytest.approx(0.25, abs=1e-12)
    for _ in range(20):
        rule.descend(torch.tensor([-1.0, 1.0, 0.0]))
    assert float(rule.weights[0]) > 0.5


@pytest.mark.parametrize("kind", ["adam", "momentum", "sgd"])
def test_what_moves_the_logits(kind):
    rule = make("meta", optimizer=kind, learning_rate=0.1)
    twin = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    torchs = {
        "adam": torch.optim.Adam([twin], lr=0.1),
        "momentum": torch.optim.SGD([twin], lr=0.1, momentum=0.9),
        "sgd": torch.optim.SGD([twin], lr=0.1),
    }[kind]
    for slope in ([1.0, 2.0, -1.0], [0.5, -0.5, 1.0], [3.0, 0.0, 0.0]):
        by_weight = torch.tensor(slope, dtype=torch.float64)
        torchs.zero_grad()
        (twin.softmax(0) * by_weight).sum().backward()
        torchs.step()
        rule.descend(by_weight)
    torch.testing.assert_close(rule.logits.detach(), twin.detach(), rtol=1e-12, atol=1e-14)


def test_uncertainty_minimises_kendalls_objective():
    losses = [[0.5, 2.0, 1.0], [0.4, 2.1, 0.9], [0.3, 1.9, 1.1]]
    rule = make("uncertainty", learning_rate=0.1)
    used = run(rule, losses)
    log_variances = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([log_variances], lr=0.1)
    for given, weights in zip(losses, used, strict=True):
        assert weights == pytest.approx((-log_variances).exp().tolist(), abs=1e-12)
        adam.zero_grad()
        values = torch.tensor(given, dtype=torch.float64)
        ((-log_variances).exp() * values + log_variances / 2).sum().backward()
        adam.step()
    assert used[-1][1] < used[-1][2] < used[-1][0]


def test_uncertainty_settles_at_half_over_the_loss():
    rule = make("uncertainty", learning_rate=0.05)
    run(rule, [[0.5, 2.0, 1.0]] * 400)
    assert rule.weights.tolist() == pytest.approx([1.0, 0.25, 0.5], abs=1e-3)


def test_dwa_by_hand():
    losses = [[2.0, 4.0, 1.0], [2.0, 2.0, 1.0], [1.0, 2.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 1.0]]
    used = run(make("dwa", window=2, temperature=0.5), losses)
    assert used[:4] == [[1.0] * 3] * 4
    rates = torch.tensor([1.0 / 2.0, 2.5 / 3.0, 1.0], dtype=torch.float64)
    assert used[4] == pytest.approx((3 * (rates / 0.5).softmax(0)).tolist(), abs=1e-12)


def test_gradnorm_by_its_own_objective():
    """Norms of the whole body; the objective and its derivative are autograd's."""
    problem = NetworkProblem(Network(), sgd, 0.0)
    problem.parts = PARTS
    recorded = []

    def gradients():
        found = NetworkProblem.gradients(problem)
        losses = problem.network.losses(problem.parameters, problem.number)
        problem.losses = {n: v.detach() for n, v in zip(NAMES, losses, strict=True)}
        norms = [torch.cat([g.flatten() for g in one[:2]]).norm() for one in found]
        recorded.append((torch.stack(norms), torch.stack(list(problem.losses.values()))))
        return found

    problem.gradients = gradients
    rule = make("gradnorm", alpha=0.7, learning_rate=0.1)
    weights = torch.ones(3, dtype=torch.float64, requires_grad=True)
    adam, first = torch.optim.Adam([weights], lr=0.1), None
    for step in range(5):
        problem.number = step
        rule.step(problem)
        norms, losses = recorded[-1]
        first = losses if first is None else first
        ratio = losses / first
        scaled = weights * norms
        target = (scaled.mean() * (ratio / ratio.mean()) ** 0.7).detach()
        adam.zero_grad()
        (scaled - target).abs().sum().backward()
        adam.step()
        with torch.no_grad():
            weights.mul_(3 / weights.sum())
        torch.testing.assert_close(rule.weights, weights.detach(), rtol=1e-9, atol=0)
    assert rule.record()["norm/primary"] == pytest.approx(float(recorded[-1][0][0]), rel=1e-12)


def test_gradnorm_measures_progress_from_the_very_first_losses():
    """The weights rest during the warm-up; the losses do not."""
    problem = NetworkProblem(Network(), sgd, 0.0)
    problem.parts = PARTS
    rule = make("gradnorm", warmup_steps=2)
    seen = []
    for problem.number in range(4):
        values = problem.network.losses(problem.parameters, problem.number)
        problem.losses = {n: v.detach() for n, v in zip(NAMES, values, strict=True)}
        seen.append(torch.stack(list(problem.losses.values())))
        rule.step(problem)
        resumed = make("gradnorm", warmup_steps=2)
        resumed.load_state_dict({k: v.clone() for k, v in rule.state_dict().items()})
        assert torch.equal(resumed.state_dict()["first"], seen[0])
    assert not torch.equal(seen[0], seen[2])


class Fixed(NetworkProblem):
    """Gradients over one shared parameter and a head of each objective."""

    parts = ("body", "primary", "other")

    def __init__(self, shared):
        self.names, self.number, self.seed, self.max_grad_norm = ("primary", "first"), 0, 0, 0.0
        self.total_steps = 12
        self.parameters = [torch.zeros(2, requires_grad=True) for _ in range(3)]
        self.optimizer = torch.optim.SGD(self.parameters, lr=1.0)
        self.shared = [torch.tensor(g) for g in shared]

    def gradients(self):
        ones = torch.ones(2)
        return [[self.shared[0], ones, None], [self.shared[1], None, 2 * ones]]


def aggregated(name, shared):
    cls = WEIGHTINGS.get(name)
    rule, problem = cls(cls.Options(), ("primary", "first")), Fixed(shared)
    rule.step(problem)
    assert problem.parameters[1].tolist() == [-1, -1]  # a head takes its objective's gradient
    assert problem.parameters[2].tolist() == [-2, -2]
    assert rule.record()["norm/primary"] == pytest.approx(math.hypot(*shared[0]), rel=1e-6)
    return (-problem.parameters[0]).tolist()


def test_aggregation_by_hand():
    conflict = [[1.0, 0.0], [-1.0, 1.0]]
    # Each without its part along the other: (1,0) + (1/2)(-1,1), and (-1,1) + (1,0).
    assert aggregated("pcgrad", conflict) == pytest.approx([0.5, 1.5], abs=1e-5)
    assert aggregated("upgrad", conflict) == pytest.approx([0.25, 0.75], abs=1e-3)
    # The shortest vector between the two: 3/5 (1,0) + 2/5 (-1,1) at (1/5, 2/5).
    assert aggregated("mgda", conflict) == pytest.approx([0.2, 0.4], abs=1e-2)
    update = aggregated("imtl_g", conflict)
    assert update[0] == pytest.approx((update[1] - update[0]) / math.sqrt(2), abs=1e-4)


@pytest.mark.parametrize("name", ["pcgrad", "upgrad", "cagrad", "mgda", "aligned_mtl", "imtl_g"])
def test_aggregation_does_not_depend_on_the_scale_and_helps_both(name):
    one = aggregated(name, [[2.0, 1.0], [-1.0, 2.5]])
    other = aggregated(name, [[2e-4, 1e-4], [-1e-4, 2.5e-4]])
    assert [1e4 * value for value in other] == pytest.approx(one, rel=1e-3)
    assert 2 * one[0] + one[1] > 0
    assert -one[0] + 2.5 * one[1] > 0


def test_a_missing_extra_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd.aggregation", None)
    with pytest.raises(
        ConfigError, match=r"'upgrad' needs an extra .* \"auxlearn\[aggregation\]\""
    ):
        make("upgrad")


@pytest.mark.parametrize("name", ["uncertainty", "dwa"])
def test_a_resumed_rule_goes_on_as_before(name):
    losses = [[2.0 - step / 10, 1.0, 0.5 + step / 20] for step in range(9)]
    given = {"window": 2} if name == "dwa" else {}
    undisturbed = run(make(name, **given), losses)
    first, second = make(name, **given), make(name, **given)
    used = run(first, losses[:5])
    second.load_state_dict({key: value.clone() for key, value in first.state_dict().items()})
    problem = Given(losses)
    for problem.number in range(5, 9):
        second.step(problem)
    assert used + problem.used == undisturbed


def test_options_of_meta_reach_the_rule():
    assert make("meta", dev_head="closed").dev_head == "closed"
    assert make("tartan").dev_head == "fitted"
    assert make("tartan_released").dev_head == "refitted"
    assert make("fixed").dev_head == "own"
    assert options(split="held/out.jsonl").split == "held/out.jsonl"
