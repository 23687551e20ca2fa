"""Fixed and equal weights, by hand."""

from __future__ import annotations

import pytest
import torch

from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import WEIGHTINGS
from auxlearn.weighting.fixed import Equal, Fixed, FixedOptions, fixed_weights
from auxlearn.weighting.mixing import equal_weights

ONE, TWO = ("primary", "l3mask"), ("primary", "l3mask", "random_mlm")


def fixed(alpha, objectives):
    return Fixed(FixedOptions.model_validate({"alpha": alpha}), objectives)


@pytest.mark.parametrize(
    ("alpha", "objectives", "weights"),
    [
        (0.5, ONE, [0.5, 0.5]),
        (0.3, ONE, [0.7, 0.3]),
        (0.3, TWO, [0.7, 0.15, 0.15]),
        ([0.1, 0.6], TWO, [0.3, 0.1, 0.6]),
        ([0.25], ONE, [0.75, 0.25]),
        ([0.0], ONE, [1.0, 0.0]),
        (0.3, ("primary",), [1.0]),
    ],
)
def test_alpha_is_the_share_of_the_auxiliary_tasks(alpha, objectives, weights):
    found = fixed(alpha, objectives).weights
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(weights, abs=1e-15)
    assert torch.equal(fixed_weights(alpha, len(objectives) - 1), found)


@pytest.mark.parametrize("alpha", [0, 0.0, 1, 1.0, -0.1, 1.5, [0.5, 0.5], [0.6, 0.6], [-0.2, 0.5]])
def test_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(ValueError, match=r"is outside \(0, 1\): the primary task keeps 1 - alpha"):
        FixedOptions.model_validate({"alpha": alpha})


@pytest.mark.parametrize(("alpha", "objectives"), [([0.1, 0.2], ONE), ([0.1], TWO), ([], ONE)])
def test_the_shares_are_as_many_as_the_tasks(alpha, objectives):
    with pytest.raises(ConfigError, match="give one share, or one for each"):
        _ = fixed(alpha, objectives).weights


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_equal(count):
    names = tuple(f"task{number}" for number in range(count))
    assert Equal(Equal.Options(), names).weights.tolist() == [1 / count] * count
    assert equal_weights(count).tolist() == [1 / count] * count


@pytest.mark.parametrize("name", ["fixed", "equal"])
def test_loss_weightings_train_on_the_weighted_sum(name):
    cls = WEIGHTINGS.get(name)
    rule = cls(cls.Options(mix="gradients"), TWO)
    calls = []

    class Recorder:
        def backward(self, weights):
            calls.append([float(weight) for weight in weights])

        def optimizer_step(self):
            calls.append("update")

    rule.step(Recorder())
    assert calls == [rule.weights.tolist(), "update"]
    assert rule.state_dict() == {}
    assert rule.metrics() == {}
    assert rule.validation_source is None
