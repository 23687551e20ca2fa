"""The default device, and asynchronous copies to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def default_device() -> torch.device:
    """Return the CUDA device if there is one, else the CPU.

    Other accelerators are not used, because this package has not been tested on them.
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without blocking the host.

    A copy from the CPU to a CUDA device uses pinned memory, so that it overlaps with computation.

    Args:
        tensor: A tensor on any device. If it is on the CPU, it must not be modified afterwards.
        device: The target device.
    """
    if tensor.device.type == "cpu" and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
