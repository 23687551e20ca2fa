"""Arithmetic of gradients by hand, their moving average beside Adam's, and what rules keep."""

import pytest
import torch

from auxlearn.weighting.gradients import (
    GradientAverage,
    dot,
    squared_norm,
    weighted_sum,
)


def gradients(count):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, generator=generator, dtype=torch.float64) for _ in range(count)]


def test_it_is_the_bias_corrected_first_moment_of_adam():
    """Adam without a second moment (beta 0, step 1 times the size of the gradient) gives it."""
    average = GradientAverage(0.9)
    parameter = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([parameter], lr=1.0, betas=(0.9, 0.0), eps=0.0)
    for gradient in gradients(6):
        before = parameter.detach().clone()
        parameter.grad = gradient.clone()
        adam.step()
        first_moment = (before - parameter.detach()) * gradient.abs()
        (found,) = average.update([gradient])
        torch.testing.assert_close(found, first_moment, rtol=1e-12, atol=1e-14)


def test_without_decay_it_is_the_last_gradient():
    average = GradientAverage(0.0)
    first, second = gradients(2)
    average.update([first, None])
    found = average.update([second, None])
    assert found[0] is second
    assert found[1] is None
    assert average.state_dict() == {}


def test_a_parameter_without_gradient_counts_as_zero_once_it_has_had_one():
    average = GradientAverage(0.5)
    (gradient,) = gradients(1)
    assert average.update([gradient, None])[1] is None
    found, late = average.update([None, gradient])
    torch.testing.assert_close(found, gradient * 0.25 / 0.75, rtol=1e-13, atol=0)
    torch.testing.assert_close(late, gradient * 0.5 / 0.75, rtol=1e-13, atol=0)


def test_restored_sums_are_where_the_gradients_are_also_those_without_one():
    """``meta`` stands for an accelerator: what is on it has no values, but a device."""
    first, second = gradients(2)
    before = GradientAverage(0.9)
    before.update([first, second, None])
    average = GradientAverage(0.9)
    average.load_state_dict(before.state_dict())
    found = average.update([None, second.to("meta"), None])
    assert [part if part is None else part.device.type for part in found] == ["meta", "meta", None]


@pytest.mark.parametrize("interrupt", [0, 1, 3])
def test_a_restored_average_goes_on_with_the_same_numbers(interrupt):
    undisturbed, other = GradientAverage(0.9), GradientAverage(0.9)
    for number, gradient in enumerate(gradients(5)):
        if number == interrupt:
            state = other.state_dict()
            other = GradientAverage(0.9)
            other.load_state_dict(state)
        wanted, found = undisturbed.update([gradient, None]), other.update([gradient, None])
        assert torch.equal(found[0], wanted[0])
        assert found[1] is None


def test_weighted_sum_and_dot_by_hand():
    one = [torch.tensor([1.0, 2.0]), None, torch.tensor([[3.0]]), None]
    other = [torch.tensor([10.0, 0.0]), torch.tensor([5.0]), None, None]
    mixed = weighted_sum([one, other], [0.5, 0.25])
    assert mixed[0].tolist() == [3.0, 1.0]
    assert mixed[1].tolist() == [1.25]
    assert mixed[2].tolist() == [[1.5]]
    assert mixed[3] is None
    assert one[0].tolist() == [1.0, 2.0]  # new tensors: what was given stays
    assert other[1].tolist() == [5.0]
    assert float(dot(one, other)) == 10.0
    assert dot(one, other).dtype == torch.float64
    assert float(squared_norm(one)) == pytest.approx(14, rel=1e-7)
    assert dot([None], [None]) == squared_norm([None]) == 0
