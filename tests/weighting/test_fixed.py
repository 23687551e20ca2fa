"""Fixed and equal weights, by hand."""

import pytest
import torch

from auxlearn.core.errors import ConfigError
from auxlearn.weighting.fixed import FixedOptions, fixed_weights
from tests.weighting.fakes import NAMES, FakeStep, make, run

#: Gradients without a gap.
DENSE = [[[[1.0, 0.0]] * 4, [[0.0, 1.0]] * 4, [[0.0, 0.0]] * 4]]


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


@pytest.mark.parametrize("alpha", [1, -0.1, [0.5, 0.5], [-0.2, 0.5]])
def test_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(ValueError, match=r"is outside \(0, 1\): the primary task keeps 1 - alpha"):
        FixedOptions.model_validate({"alpha": alpha})


def test_a_share_of_0_has_another_form():
    with pytest.raises(ValueError, match=r"\[0\] measures one without training on it"):
        FixedOptions.model_validate({"alpha": 0})


@pytest.mark.parametrize(("alpha", "count"), [([0.1, 0.2], 2), ([0.1], 3), ([], 2)])
def test_the_shares_are_as_many_as_the_tasks(alpha, count):
    with pytest.raises(ConfigError, match="give one share, or one for each"):
        _ = make("fixed", NAMES[:count], alpha=alpha).weights


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_equal(count):
    names = [f"task{number}" for number in range(count)]
    assert make("equal", names).weights.tolist() == [1 / count] * count


@pytest.mark.parametrize("name", ["fixed", "equal"])
def test_loss_weightings_train_on_the_weighted_sum(name):
    rule, fake = make(name, mix="gradients"), FakeStep(DENSE)
    combined, weights = run(rule, fake)
    assert fake.used == weights == [rule.weights.tolist()]
    assert combined[0] == [weights[0][:2]] * 4
    assert rule.metrics() == {}
    assert rule.validation_source is None
