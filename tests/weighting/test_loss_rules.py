"""Rules that weight losses: by hand, against autograd of their objectives and against TorchJD."""

import math

import pytest
import torch
from torchjd.scalarization import FAMO as Reference, STCH, Random

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.weighting.dwa import dwa_weights
from auxlearn.weighting.fixed import FixedOptions, fixed_weights
from auxlearn.weighting.mixing import equal_weights
from auxlearn.weighting.random import random_weights
from auxlearn.weighting.stch import stch_weights
from auxlearn.weighting.uncertainty import uncertainty_gradient, uncertainty_weights
from tests.weighting.fakes import (
    LOSSES,
    NAMES,
    FakeStep,
    make,
    random_gradients,
    run,
    used_on,
    vector,
    weighted_sum,
)

#: Gradients without a gap of six steps.
DENSE = [[[[1.0, 0.0]] * 4, [[0.0, 1.0]] * 4, [[0.0, 0.0]] * 4]] * 6


@pytest.mark.parametrize(
    ("alpha", "weights"),
    [
        (0.5, [0.5, 0.5]),
        (0.3, [0.7, 0.3]),
        (0.3, [0.7, 0.15, 0.15]),
        ([0.1, 0.6], [0.3, 0.1, 0.6]),
        ([0.25], [0.75, 0.25]),
        ([0.0], [1.0, 0.0]),
        (0.3, [1.0]),
    ],
)
def test_alpha_is_the_share_of_the_auxiliary_tasks(alpha, weights):
    found = make("fixed", NAMES[: len(weights)], alpha=alpha).weights
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(weights, abs=1e-15)
    assert torch.equal(fixed_weights(alpha, len(weights) - 1), found)


@pytest.mark.parametrize("alpha", [0, 0.0, 1, 1.0, -0.1, 1.5, [0.5, 0.5], [0.6, 0.6], [-0.2, 0.5]])
def test_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(ValueError, match=r"is outside \(0, 1\): the primary task keeps 1 - alpha"):
        FixedOptions.model_validate({"alpha": alpha})


@pytest.mark.parametrize(("alpha", "count"), [([0.1, 0.2], 2), ([0.1], 3), ([], 2)])
def test_the_shares_are_as_many_as_the_tasks(alpha, count):
    with pytest.raises(ConfigError, match="give one share, or one for each"):
        _ = make("fixed", NAMES[:count], alpha=alpha).weights


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_equal(count):
    names = [f"task{number}" for number in range(count)]
    assert make("equal", names).weights.tolist() == [1 / count] * count
    assert equal_weights(count).tolist() == [1 / count] * count


@pytest.mark.parametrize("name", ["fixed", "equal"])
def test_loss_weightings_train_on_the_weighted_sum(name):
    rule, fake = make(name, mix="gradients"), FakeStep(DENSE)
    combined, weights = run(rule, fake, [0])
    assert fake.used == weights == [rule.weights.tolist()]
    assert combined[0] == [weights[0][:2]] * 4
    assert rule.state_dict() == rule.metrics() == {}
    assert rule.validation_source is None


def test_dwa_by_hand():
    # Rates 1/2, 1, 2 over T = 1 / log 2: their softmax is in the ratio of 2 to these powers.
    found = dwa_weights(vector(1.0, 3.0, 8.0), vector(2.0, 3.0, 4.0), 1 / math.log(2))
    powers = [2**0.5, 2.0, 4.0]
    assert found.tolist() == pytest.approx([3 * p / sum(powers) for p in powers], rel=1e-14)
    assert dwa_weights(vector(0.0, 1.0), vector(0.0, 1.0), 2.0).isfinite().all()


def test_windows_of_dwa_by_hand():
    losses = [[2.0, 4.0, 1.0], [2.0, 2.0, 1.0], [1.0, 2.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 1.0]]
    used = used_on(make("dwa", window=2, temperature=0.5), losses)
    assert used[:4] == [[1.0] * 3] * 4
    rates = vector(1.0 / 2.0, 2.5 / 3.0, 1.0)
    assert used[4] == pytest.approx((3 * (rates / 0.5).softmax(0)).tolist(), abs=1e-12)


def kendalls_objective(log_variances, losses):
    """Equation 10, in the variances themselves: L / sigma^2 + log sigma."""
    variances = log_variances.exp()
    return (losses / variances + variances.sqrt().log()).sum()


def test_uncertainty_has_the_derivatives_of_kendalls_objective():
    """By the log variances for their update, and by the losses for the weights."""
    given = vector(0.3, -1.2, 2.0).requires_grad_(), vector(0.5, 2.0, 7.0).requires_grad_()
    by_variances, by_losses = torch.autograd.grad(kendalls_objective(*given), given)
    log_variances, losses = (one.detach() for one in given)
    found = uncertainty_gradient(log_variances, losses)
    torch.testing.assert_close(found, by_variances, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(uncertainty_weights(log_variances), by_losses, rtol=1e-13, atol=0)


def test_the_log_variances_are_learned_by_adam():
    losses = [[0.5, 2.0, 1.0], [0.4, 2.1, 0.9], [0.3, 1.9, 1.1]]
    used = used_on(make("uncertainty", learning_rate=0.1), losses)
    log_variances = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([log_variances], lr=0.1)
    for given, weights in zip(losses, used, strict=True):
        assert weights == pytest.approx((-log_variances).exp().tolist(), abs=1e-12)
        adam.zero_grad()
        kendalls_objective(log_variances, vector(*given)).backward()
        adam.step()
    assert used[-1][1] < used[-1][2] < used[-1][0]


@pytest.mark.parametrize("mu", [0.01, 0.1, 1.0, 3.0])
def test_stch_is_the_derivative_of_torchjds_scalarization(mu):
    losses, nadir = vector(2.0, 0.5, 7.0).requires_grad_(), vector(2.1, 0.45, 6.9)
    scalar = 3 * STCH(mu, weights=torch.ones(3))((losses / nadir).log())
    (expected,) = torch.autograd.grad(scalar, losses)
    found = stch_weights(losses.detach(), nadir, mu)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-300)


def test_limits_of_mu_of_stch():
    losses, nadir = vector(2.0, 0.5, 7.0), vector(1.0, 1.0, 1.0)
    # Small: the worst alone. Large: every log loss alike. One: losses relative to the nadir.
    assert stch_weights(losses, nadir, 1e-3).tolist() == pytest.approx([0, 0, 3 / 7], abs=1e-12)
    assert stch_weights(losses, nadir, 1e9).tolist() == pytest.approx(
        [1 / 2.0, 1 / 0.5, 1 / 7.0], rel=1e-8
    )
    assert stch_weights(losses, nadir, 1.0).tolist() == pytest.approx([3 / 9.5] * 3, rel=1e-14)


def test_stch_has_log_losses_first_and_then_the_mean_of_the_window():
    rule = make("stch", mu=0.5, warmup_steps=1, window=2)
    combined, weights = run(rule, FakeStep(random_gradients(5), LOSSES))
    for step in range(3):
        assert weights[step] == pytest.approx([1 / loss for loss in LOSSES[step]], rel=1e-15)
    nadir = (vector(*LOSSES[1]) + vector(*LOSSES[2])) / 2
    for step in (3, 4):
        expected = stch_weights(vector(*LOSSES[step]), nadir, 0.5)
        assert weights[step] == expected.tolist()
        by_hand = weighted_sum(weights[step], random_gradients(5)[step])
        assert combined[step][0] == pytest.approx(by_hand, rel=1e-12)


def test_random_weights_are_those_of_torchjd():
    """The derivative of TorchJD's scalar by the losses, from the same random numbers."""
    losses = torch.rand(5, dtype=torch.float64, requires_grad=True)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        (expected,) = torch.autograd.grad(Random()(losses), losses)
    found = random_weights(5, torch.Generator().manual_seed(11))
    torch.testing.assert_close(found, expected, rtol=1e-15, atol=0)


def test_random_weights_follow_from_the_seed_and_the_step():
    before = torch.random.get_rng_state()
    combined, weights = run(make("random"), FakeStep(DENSE))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert run(make("random"), FakeStep(DENSE)) == (combined, weights)
    assert len({tuple(used) for used in weights}) == len(DENSE)
    other = FakeStep(DENSE)
    other.seed = 1
    assert run(make("random"), other)[1] != weights
    expected = random_weights(3, rng.generator(0, "random", 4)).tolist()
    assert weights[4] == expected
    assert combined[4][0] == expected[:2]  # the gradient of the weighted losses, heads included
    assert combined[4][3] == expected[:2]


AFTER = [[1.9, 0.6, 6.0], [1.2, 0.5, 6.1], [1.2, 0.1, 4.0], [1.1, 0.2, 4.0], [0.7, 0.1, 2.9]]


def famo_of_torchjd(lr=0.025, weight_decay=1e-3):
    rule = Reference(3, lr=lr, weight_decay=weight_decay).double()
    found = []
    for before, after in zip(LOSSES, AFTER, strict=True):
        losses = vector(*before).requires_grad_()
        (weights,) = torch.autograd.grad(rule(losses), losses)
        found.append(weights)
        rule.update(vector(*after))
    return torch.stack(found)


@pytest.mark.parametrize(("rate", "decay"), [(0.025, 1e-3), (0.5, 0.0), (0.1, 0.1)])
def test_famo_is_that_of_torchjd(rate, decay):
    rule = make("famo", learning_rate=rate, weight_decay=decay)
    combined, weights = run(rule, FakeStep(random_gradients(5), LOSSES, AFTER))
    expected = famo_of_torchjd(rate, decay)
    assert expected.std(0).min() > 0.01
    torch.testing.assert_close(vector(*weights), expected, rtol=1e-12, atol=1e-15)
    for found, used, gradients in zip(combined, expected, random_gradients(5), strict=True):
        assert found[0] == pytest.approx(weighted_sum(used, gradients), rel=1e-12)


def test_losses_after_the_step_are_computed_once_and_only_while_weights_are_learned():
    fake = FakeStep(random_gradients(5), LOSSES, AFTER)
    rule = make("famo", learning_rate=0.5, warmup_steps=1, learn_share=0.25)
    run(rule, fake)
    assert fake.forward_passes == 2
    logits = rule.logits.clone()
    assert logits.std() > 0.1
    run(rule, fake, [4])
    assert torch.equal(rule.logits, logits)


def test_famo_with_fixed_logits_is_on_log_losses_as_well():
    rule = make("famo", warmup_steps=9)
    _, weights = run(rule, FakeStep(random_gradients(5), LOSSES, AFTER))
    for used, losses in zip(weights, LOSSES, strict=True):
        inverse = [1 / loss for loss in losses]
        assert used == pytest.approx([value / sum(inverse) for value in inverse], rel=1e-7)


def test_moments_of_famo_named_as_in_older_checkpoints_are_restored():
    undisturbed, halted = (FakeStep(random_gradients(5), LOSSES, AFTER) for _ in range(2))
    run(make("famo"), undisturbed)
    first, second = make("famo"), make("famo")
    run(first, halted, range(2))
    names = {"step", "exp_avg", "exp_avg_sq"}
    state = first.state_dict()
    assert names < set(state)
    second.load_state_dict({f"adam/{k}" if k in names else k: v for k, v in state.items()})
    run(second, halted, range(2, 5))
    assert halted.combined == undisturbed.combined
