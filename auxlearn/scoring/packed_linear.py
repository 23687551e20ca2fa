"""Linear layers for inference, their weights laid out once as the processor wants them.

On a CPU torch's linear layer rearranges its weight in every call. oneDNN can be handed a weight
that is already rearranged; torch has operators for that, which its compiler uses and which are not
public. They are used here only after they have been found and have been right once; otherwise the
ordinary linear layer does the work, with the same results to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

#: ``linear(x)`` or ``linear(x, residual)``: ``x @ weight.T + bias``, plus the residual if given.
Linear = Callable[..., Tensor]


def inference_linear(
    weight: Tensor, bias: Tensor | None, dtype: torch.dtype, gelu: bool = False
) -> Linear:
    """Return a linear layer for inference mode.

    Args:
        weight: ``(out, in)``.
        bias: ``(out,)``.
        dtype: What to compute in; inputs are expected in it.
        gelu: Apply the exact GELU to the result.

    Returns:
        A function of ``(rows, in)`` and, without ``gelu``, of a residual ``(rows, out)``.
    """
    weight = weight.detach().to(dtype)
    bias = None if bias is None else bias.detach().to(dtype)
    if weight.device.type == "cpu" and packing_works(dtype):
        return _packed(weight, bias, gelu)
    return _plain(weight, bias, gelu)


@lru_cache
def packing_works(dtype: torch.dtype) -> bool:
    """Say whether torch offers packed linear layers here and they compute what they should."""
    draws = torch.Generator().manual_seed(0)
    x, weight, bias, residual = (
        torch.randn(shape, generator=draws).to(dtype)
        for shape in ((5, 48), (64, 48), (64,), (5, 64))
    )
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    try:
        with torch.inference_mode():
            for gelu, extra in ((False, ()), (False, (residual,)), (True, ())):
                found = _packed(weight, bias, gelu)(x, *extra)
                wanted = _plain(weight.float(), bias.float(), gelu)(
                    x.float(), *(part.float() for part in extra)
                )
                if found.dtype != dtype or not torch.allclose(
                    found.float(), wanted, atol=tolerance, rtol=tolerance
                ):
                    return False
    except (AttributeError, RuntimeError, TypeError):  # no such operator, or it takes other things
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
