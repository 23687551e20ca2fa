"""AANG's rule against numbers derived by hand, and its derivative against finite differences."""

import math

import pytest
import torch

from auxlearn.testing.tiny_run import Circumstances, Objectives, TinyRun
from auxlearn.weighting.aang import AANG, AANGOptions, Factors
from auxlearn.weighting.base import Members
from auxlearn.weighting.learned import softmax_gradient
from tests.helpers import slopes

MEMBERS = tuple({"transform": t, "output": o} for t in ("mask", "none") for o in ("token", "label"))
HALF = math.sqrt(0.5)


class HandMade:
    """A training step with two parameters and gradients that are written down."""

    names = ("primary", "space")
    placements = ("encoder",)
    number, seed, total_steps = 0, 0, 10

    def __init__(self, *micro_batches, sampled=(0, 1, 2), validation=(1.0, 0.0)):
        self.members = Members({"space": MEMBERS})
        self.members.begin({"space": sampled})
        self.micro_batches = micro_batches
        self.validation = validation
        self.parameters = [torch.zeros(2, dtype=torch.float64, requires_grad=True)]
        self.losses, self.stepped = {}, None

    def micro_gradients(self, apart=False):
        assert apart
        for gradients in self.micro_batches:
            yield [[torch.tensor(one, dtype=torch.float64)] for one in gradients]

    def validation_gradient(self, index=0, batches=1):
        return [torch.tensor(self.validation, dtype=torch.float64)]

    def optimizer_step(self):
        self.stepped = self.parameters[0].grad.tolist()
        self.parameters[0].grad = None


def rule(**options):
    return AANG(AANGOptions(**options), HandMade.names)


#: Cosines with (1, 0): primary 0.71; members 1, 0 and -1.
GRADIENTS = [(1.0, 1.0), (1.0, 0.0), (0.0, 2.0), (-3.0, 0.0)]


def test_logits_follow_the_cosines_of_the_members_that_have_a_factor():
    """W_f += rate * (sum of the cosines of the sampled members with f), by hand.

    mask: 1 + 0; none: -1; token: 1 - 1; label: 0; own logits: 1, 0, -1, and 0 of what was absent.
    """
    weighting, step = rule(learning_rate=0.1, factor_learning_rate=0.5), HandMade(GRADIENTS)
    weighting.step(step)
    factors = Factors(MEMBERS)
    axes = {"transform": ("mask", "none"), "output": ("token", "label")}
    assert factors.names == [(axis, one) for axis, values in axes.items() for one in values]
    expected = [0.5, -0.5, 0.0, 0.0, 0.5, 0.0, -0.5, 0.0]
    assert weighting.factor_logits.logits["space"].tolist() == pytest.approx(expected, abs=1e-15)
    # a_k = W_transform + W_output + W_own
    found = factors.weights(weighting.factor_logits.logits["space"])
    logits = torch.tensor([1.0, 0.5, -1.0, -0.5], dtype=torch.float64)
    torch.testing.assert_close(found, logits.exp() / logits.exp().sum(), atol=1e-15, rtol=0)


def test_the_step_is_made_with_the_weights_from_before():
    """Equal weights at first: 1/2 of (1, 1), and 1/2 of the mean of the members, (-2/3, 2/3)."""
    weighting, step = rule(learning_rate=0.1), HandMade(GRADIENTS)
    weighting.step(step)
    assert step.stepped == pytest.approx([0.5 - 1 / 3, 0.5 + 1 / 3], abs=1e-15)
    # The cosine of (-2/3, 2/3) is -0.71, that of (1, 1) 0.71: plain gradient descent.
    change = torch.softmax(torch.tensor([0.1 * HALF, -0.1 * HALF], dtype=torch.float64), 0)
    assert weighting.weights.tolist() == pytest.approx(change.tolist(), abs=1e-15)


def test_the_second_step_weighs_what_is_sampled_by_the_factors():
    weighting = rule(learning_rate=0.1, factor_learning_rate=0.5)
    weighting.step(HandMade(GRADIENTS))
    second = HandMade(GRADIENTS[:1] + GRADIENTS[1:3], sampled=(1, 3))
    weighting.step(second)
    # Members 1 and 3 have logits 0.5 and -0.5: their shares are those of sigmoid(1).
    one = 1 / (1 + math.exp(-1))
    share = 1 / (1 + math.exp(0.2 * HALF))  # of the space
    mixed = [one * 1.0, (1 - one) * 2.0]
    expected = [(1 - share) + share * mixed[0], (1 - share) + share * mixed[1]]
    assert second.stepped == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("gap", [0.0, 30.0, 750.0, 1e6])
def test_a_step_is_finite_however_far_behind_what_is_sampled_has_fallen(gap):
    """Member 0 is not sampled and is ahead by the gap; 1 and 3 differ by 1: sigmoid(1)."""
    weighting, step = rule(), HandMade(GRADIENTS[:1] + GRADIENTS[1:3], sampled=(1, 3))
    logits = torch.zeros(8, dtype=torch.float64)
    logits[4], logits[5] = gap, 1.0
    weighting.factor_logits.add("space", MEMBERS)
    weighting.factor_logits.logits["space"] = logits
    weighting.step(step)
    one = 1 / (1 + math.exp(-1))
    expected = [0.5 + 0.5 * one, 0.5 + 0.5 * (1 - one) * 2.0]
    assert step.stepped == pytest.approx(expected, abs=1e-14)


def test_cosines_are_averaged_over_micro_batches():
    weighting = rule(factor_learning_rate=1.0)
    other = [(1.0, 1.0), (0.0, 1.0), (0.0, 2.0), (-3.0, 0.0)]  # member 0 has cosine 0
    weighting.step(HandMade(GRADIENTS, other))
    expected = [0.5, -1.0, -0.5, 0.0, 0.5, 0.0, -1.0, 0.0]
    assert weighting.factor_logits.logits["space"].tolist() == pytest.approx(expected, abs=1e-15)


def test_the_derivative_of_the_factors_softmax_by_finite_differences():
    """d/dW of sum_k d_k softmax(a)_k over the sampled members, in float64."""
    generator = torch.Generator().manual_seed(0)
    factors, sampled = Factors(MEMBERS), [0, 2, 3]
    logits, upstream = (
        torch.randn(n, dtype=torch.float64, generator=generator) for n in (len(factors.has[0]), 3)
    )

    def weights(given):
        return factors.weights(given, sampled)[sampled]

    exact = factors.gradient(sampled, softmax_gradient(weights(logits), upstream))
    numeric = slopes(lambda moved: weights(moved) @ upstream, logits)
    torch.testing.assert_close(exact, numeric, rtol=0, atol=1e-9)


def test_the_account_is_one_sentence_on_the_largest_weight_of_each_axis():
    weighting = rule(factor_learning_rate=0.5)
    weighting.step(HandMade(GRADIENTS))
    logits = [math.exp(one) for one in (1.0, 0.5, -1.0, -0.5)]  # of the members, as above
    mask, token = (logits[0] + logits[1]) / sum(logits), (logits[0] + logits[2]) / sum(logits)
    assert weighting.account([], 1, 1) == {
        "space": "space: the largest weight of each axis of its 4 objectives is that of transform "
        f"mask {mask:.2f} (at first 0.50), output token {token:.2f} (at first 0.50)"
    }
    found = weighting.metrics()
    assert found["factor/space/transform/mask"] == pytest.approx(mask, abs=1e-12)
    assert found["cosine/primary"] == pytest.approx(HALF, abs=1e-12)


@pytest.fixture
def tiny(tmp_path):
    def made(weighting="aang", **circumstances):
        space = {"transform": ["none", "mask"], "per_step": 4}
        objectives = Objectives([("space", space)], weighting=(weighting, {}))
        return TinyRun(objectives, Circumstances(tmp_path, **circumstances))

    return made


@pytest.mark.parametrize("accumulation", [1, 2])
def test_gradients_of_members_make_that_of_the_task(tiny, accumulation):
    step = tiny(gradient_accumulation_steps=accumulation).step
    step.begin(0)
    generator = torch.Generator().manual_seed(0)
    step.members.weights["space"] = torch.rand(12, generator=generator, dtype=torch.float64)
    whole = step.gradients()
    sums = [[torch.zeros_like(p) for p in step.parameters] for _ in step.names]
    for found in step.micro_gradients(apart=True):
        assert len(found) == 1 + 4
        for total, part in zip(sums, step.members.joined(step.names, found), strict=True):
            for place, gradient in enumerate(part):
                total[place] += 0 if gradient is None else gradient
    for found, total in zip(sums, whole, strict=True):
        for one, other in zip(found, total, strict=True):
            expected = torch.zeros_like(one) if other is None else other
            torch.testing.assert_close(one, expected, atol=1e-6, rtol=1e-4)


def test_a_run_killed_after_its_last_step_accounts_for_its_weights(tiny):
    whole, ended = tiny(), tiny()
    whole.train()
    ended.load(whole.tensors())
    assert whole.weighting.factor_logits.logits["space"].abs().max() > 0
    said = whole.weighting.account([], 4, 4)
    assert said["space"].startswith("space: the largest weight of each axis")
    assert ended.weighting.account([], 4, 4) == said
