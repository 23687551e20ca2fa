"""Arithmetic of gradients, by hand."""

from __future__ import annotations

import torch

from auxlearn.weighting.base import dot, gather_scalars, weighted_sum


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
    assert float(dot([None], [None])) == 0.0


def test_scalars_are_gathered_in_order_as_float64():
    found = gather_scalars([torch.tensor(1.5), torch.tensor(2.0, requires_grad=True).double()])
    assert found.tolist() == [1.5, 2.0]
    assert found.dtype == torch.float64
    assert not found.requires_grad
