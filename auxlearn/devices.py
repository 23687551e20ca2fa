"""Where things are computed, and how they get there without a wait."""

from __future__ import annotations

import torch
from torch import Tensor


def default_device() -> torch.device:
    """Return the CUDA device if there is one, else the CPU.

    Accelerators of other kinds are left alone: nothing here has been tried on them.
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; the host does not wait for the copy.

    A copy to a CUDA device goes through pinned memory, from which it runs beside computation.

    Args:
        tensor: Anywhere. If it is on the CPU, it must not be changed in place afterwards.
        device: Where to.
    """
    if tensor.device.type == "cpu" and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
