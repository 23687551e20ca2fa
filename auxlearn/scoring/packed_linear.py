"""Linear layers for inference with prepacked weights.

On a CPU, torch's linear layer reorders its weight in every call. oneDNN also accepts a prepacked
weight; torch has non-public operators for it, which its compiler uses. They are used here only if
they exist and pass a test; otherwise the ordinary linear layer is used, with the same results up to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

#: ``linear(x)`` or ``linear(x, residual)``: ``x @ weight.T + bias``, plus a residual.
Linear = Callable[..., Tensor]


def inference_linear(
    weight: Tensor, bias: Tensor | None, dtype: torch.dtype, gelu: bool = False
) -> Linear:
    """Return a linear layer for inference mode.

    Args:
        weight: ``(out, in)``.
        bias: ``(out,)``.
        dtype: Dtype of the computation and of the inputs.
        gelu: Apply the exact GELU to the result.

    Returns:
        A function of inputs ``(n, in)`` and, without ``gelu``, optionally a residual ``(n, out)``.
    """
    weight = weight.detach().to(dtype)
    bias = None if bias is None else bias.detach().to(dtype)
    if weight.device.type == "cpu" and packing_works(dtype):
        return _packed(weight, bias, gelu)
    return _plain(weight, bias, gelu)


@lru_cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether torch has packed linear layers on this machine and they compute correct results."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias, residual = (
        torch.randn(shape, generator=generator).to(dtype)
        for shape in ((5, 48), (64, 48), (64,), (5, 64))
    )
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    try:
        with torch.inference_mode():
            for gelu, extra in ((False, ()), (False, (residual,)), (True, ())):
                found = _packed(weight, bias, gelu)(x, *extra)
                wanted = _plain(weight.float(), bias.float(), gelu)(
                    x.float(), *(argument.float() for argument in extra)
                )
                if found.dtype != dtype or not torch.allclose(
                    found.float(), wanted, atol=tolerance, rtol=tolerance
                ):
                    return False
    except (AttributeError, RuntimeError, TypeError):  # no such operator, or another signature
        return False
    return True


def _packed(weight: Tensor, bias: Tensor | None, gelu: bool) -> Linear:
    operators: Any = torch.ops.mkldnn
    packed = operators._reorder_linear_weight(weight)
    attribute, algorithm = ("gelu", "none") if gelu else ("none", "")

    def linear(x: Tensor, residual: Tensor | None = None) -> Tensor:
        if residual is not None:
            return operators._linear_pointwise.binary(x, residual, packed, bias, "add")
        return operators._linear_pointwise(x, packed, bias, attribute, [], algorithm)

    return linear


def _plain(weight: Tensor, bias: Tensor | None, gelu: bool) -> Linear:
    def linear(x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = nn.functional.linear(x, weight, bias)
        if residual is not None:
            return y.add_(residual)
        return nn.functional.gelu(y) if gelu else y

    return linear
