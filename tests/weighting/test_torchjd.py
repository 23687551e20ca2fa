"""The rules of TorchJD: against the library's own functions, by hand, and resumed."""

import math
import sys
from typing import get_args

import numpy as np
import pytest
import torch
from torchjd import aggregation, scalarization

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.weighting.torchjd import KEEPING, USUAL, TorchJDOptions
from tests.weighting.fakes import (
    LOSSES,
    FakeStep,
    RecordingStep,
    make,
    random_gradients,
    run,
    vector,
    weighted_sum,
)

RULES = get_args(TorchJDOptions.model_fields["rule"].annotation)
OF_LOSSES = [rule for rule in RULES if hasattr(scalarization, rule)]
OF_GRADIENTS = [rule for rule in RULES if rule not in OF_LOSSES]


def jacobian(gradients):
    rows = [np.concatenate([part or [0.0, 0.0] for part in g[:2]]) for g in gradients]
    return torch.tensor(np.array(rows), dtype=torch.float64)


@pytest.mark.parametrize("rule", OF_GRADIENTS)
def test_the_step_is_the_librarys_aggregation_of_the_jacobian(rule):
    """Over the shared parameters, up to the scale that the Gram matrix is divided by."""
    steps = random_gradients(4, seed=1)
    aggregate = getattr(aggregation, rule)(**USUAL.get(rule, {}))
    combined, _ = run(make("torchjd", rule=rule), FakeStep(steps))
    for number, (found, gradients) in enumerate(zip(combined, steps, strict=True)):
        matrix = jacobian(gradients)
        scale = 1.0 if rule == "PCD" else float((matrix**2).sum(1).mean().sqrt())
        with rng.seeded(0, "torchjd", number):
            expected = aggregate(matrix / scale) * scale
        np.testing.assert_allclose(
            np.concatenate(found[:2]), expected.numpy(), rtol=1e-6, atol=1e-8 * scale
        )


def test_the_geometric_mean_by_hand():
    combined, weights = run(
        make("torchjd", rule="GeometricMean"), FakeStep(random_gradients(5), LOSSES)
    )
    for used, losses in zip(weights, LOSSES, strict=True):
        mean = math.prod(losses) ** (1 / 3)
        assert used == pytest.approx([mean / (3 * loss) for loss in losses], rel=1e-14)
    first = weighted_sum(weights[0], random_gradients(5)[0])
    assert combined[0][0] == pytest.approx(first, rel=1e-13)
    # A loss's weight is its head's as well.
    head = weights[0][0] * np.array(random_gradients(5)[0][0][2])
    np.testing.assert_allclose(combined[0][2], head, rtol=1e-15)


def test_uncertainty_weighting_is_learned_by_adam():
    """Kendall et al. 2018, equation 10, as the library has it: L / 2 sigma^2 + log sigma."""
    _, weights = run(
        make("torchjd", rule="UW", learning_rate=0.1), FakeStep(random_gradients(5), LOSSES)
    )
    variances = torch.zeros(3, dtype=torch.float64, requires_grad=True)  # their logarithms
    adam = torch.optim.Adam([variances], lr=0.1)
    for used, losses in zip(weights, LOSSES, strict=True):
        assert used == pytest.approx((variances.exp() ** -1 / 2).tolist(), rel=1e-12)
        adam.zero_grad()
        (vector(*losses) / (2 * variances.exp()) + variances / 2).sum().backward()
        adam.step()


@pytest.mark.parametrize("rule", ["PCGrad", "Random"])
def test_random_choices_follow_from_the_seed_of_the_run(rule):
    """Among three objectives in conflict the order in which they are turned shows."""
    step = [[row, None, None, None] for row in ([1.0, 0.0], [-0.9, 0.5], [-0.2, -1.0])]
    before = torch.random.get_rng_state()
    found = []
    for seed in (0, 0, *range(1, 12)):
        fake = FakeStep([step])
        fake.seed = seed
        found.append(tuple(run(make("torchjd", rule=rule), fake)[0][0][0]))
    assert found[0] == found[1]
    assert len(set(found)) > 1
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("rule", RULES)
def test_a_resumed_rule_makes_the_same_steps(rule):
    def outcome(at=None):
        fake, weighting = RecordingStep(), make("torchjd", rule=rule)
        for fake.number in range(4):
            if fake.number == at:
                state = {name: tensor.clone() for name, tensor in weighting.state_dict().items()}
                weighting = make("torchjd", rule=rule)
                weighting.load_state_dict(state)
            weighting.step(fake)
        return [*(parameter.detach() for parameter in fake.parameters), weighting.weights]

    undisturbed = outcome()
    for at in (0, 2, 3):
        assert all(map(torch.equal, outcome(at), undisturbed))


@pytest.mark.parametrize("rule", [rule for rule in OF_GRADIENTS if rule not in KEEPING])
def test_an_objective_without_a_gradient_changes_nothing(rule):
    """The step is the one without it, also where one objective alone has a gradient."""
    first, second, _ = random_gradients(1, seed=3)[0]
    nothing = [[0.0, 0.0], None, None, None]
    for others in ([first, second], [first]):
        alone, beside = FakeStep([others]), FakeStep([[*others, nothing]])
        for step in (alone, beside):
            run(make("torchjd", step.names, rule=rule), step)
        one, other = (np.array(step.combined[0][:2]) for step in (alone, beside))
        np.testing.assert_allclose(other, one, rtol=1e-6)


@pytest.mark.parametrize("rule", OF_LOSSES)
def test_losses_of_zero_leave_the_weights_finite(rule):
    gradients = [[[1.0, 0.5], None, None, None], *[[[0.0, 0.0], None, None, None]] * 2]
    for losses in ([0.7, 0.0, 0.6], [0.0, 0.0, 0.0]):
        combined, weights = run(make("torchjd", rule=rule), FakeStep([gradients], [losses]))
        assert np.isfinite(weights).all()
        assert np.isfinite(combined[0][0]).all()
        assert weights[0][0] > 0


def test_parameters_are_those_of_the_library():
    step = [[row, None, None, None] for row in ([1.0, 0.0], [-1.0, 1.0])]
    projected = run(
        make("torchjd", ("primary", "first"), rule="UPGrad", parameters={"pref_vector": [1, 0]}),
        FakeStep([step]),
    )
    # (1, 0) projected onto what conflicts with neither: its part along (1, 1).
    assert projected[0][0][0] == pytest.approx([0.5, 0.5], abs=1e-4)
    for rule, parameters in (
        ("CAGrad", {"b": 1}),
        ("CAGrad", {"c": -1}),
        ("DualProj", {"pref_vector": [1, 1]}),
    ):
        with pytest.raises(ConfigError, match=f"parameters of {rule}: "):
            make("torchjd", rule=rule, parameters=parameters)


def test_a_missing_extra_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd", None)
    with pytest.raises(ConfigError, match=r"needs an extra .* \"auxlearn\[aggregation\]\""):
        make("torchjd")
