"""Leaving the half precision of autocast where numbers are few and precision matters."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast: what is computed there keeps the dtype of its inputs.

    Heads are computed in it. It is also the place for parameters that change within one autocast
    context, because autocast keeps the cast of a parameter and misses changes in place.

    Args:
        device: Where is computed.
    """
    available = torch.amp.is_autocast_available(device.type)
    if available and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def upcast(values: Tensor) -> Tensor:
    """Return half-precision values in single precision, others as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
