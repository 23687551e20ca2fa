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
    """Device and precision of a run.

    Attributes:
        device: The device.
        autocast: Returns the autocast context of the forward passes.
    """

    device: torch.device
    autocast: Callable[[], AbstractContextManager[None]]


def choose_compute(config: RunConfig) -> Compute:
    """Return the configured device and precision.

    ``auto`` is CUDA if it is available, else the CPU. The weight cache of autocast is disabled,
    because it would miss in-place changes of weights within one context.

    Raises:
        ConfigError: CUDA is requested but not available, or the GPU does not support bfloat16.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device 'cuda' is requested, but CUDA is not available: use --device cpu or auto"
        )
    device = devices.default_device() if config.device == "auto" else torch.device(config.device)
    if config.precision == "fp32":
        return Compute(device, nullcontext)
    if device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError(
            f"precision 'bf16' is requested, but {torch.cuda.get_device_name()} does not support "
            "it: use --precision fp32 or --device cpu"
        )
    return Compute(
        device, partial(torch.autocast, device.type, torch.bfloat16, cache_enabled=False)
    )


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast, in which operations keep the dtype of their inputs.

    Heads are computed in it. Parameters that are modified within an autocast context must be used
    in it as well, because autocast caches the cast of a parameter and misses in-place changes.

    Args:
        device: The device of the computation.
    """
    available = torch.amp.is_autocast_available(device.type)
    if available and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def upcast(values: Tensor) -> Tensor:
    """Return half-precision values in single precision, all others unchanged."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
