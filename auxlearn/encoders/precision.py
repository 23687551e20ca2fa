"""Device and numerical precision of a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from auxlearn import devices
from auxlearn.config import RunConfig
from auxlearn.errors import ConfigError


@dataclass(frozen=True)
class Compute:
    """Device and precision of a run."""

    device: torch.device
    autocast: Callable[[], AbstractContextManager[None]]


def choose_compute(config: RunConfig) -> Compute:
    """Return the device and the precision asked for.

    ``auto`` is CUDA if there is any, else the CPU. Autocast keeps no cache of casts: it would miss
    changes that are made to weights in place within one context.

    Raises:
        ConfigError: CUDA is asked for and absent, or the GPU does not compute in bfloat16.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device 'cuda' is asked for, but this machine offers no CUDA: use --device cpu or auto"
        )
    device = devices.default_device() if config.device == "auto" else torch.device(config.device)
    if config.precision == "fp32":
        return Compute(device, nullcontext)
    if device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError(
            f"precision 'bf16' is asked for, but {torch.cuda.get_device_name()} does not compute "
            "in it: use --precision fp32 or --device cpu"
        )
    return Compute(
        device, partial(torch.autocast, device.type, torch.bfloat16, cache_enabled=False)
    )


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
