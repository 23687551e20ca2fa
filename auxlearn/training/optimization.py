"""What moves the parameters: device and precision, the optimizer, its learning rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from auxlearn.config import RunConfig
from auxlearn.errors import ConfigError


@dataclass(frozen=True)
class Compute:
    """Device and precision of a run."""

    device: torch.device
    autocast: Callable[[], AbstractContextManager[None]]


def choose_compute(config: RunConfig) -> Compute:
    """Return the device and the precision asked for, through accelerate.

    Raises:
        ConfigError: CUDA is asked for and absent.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device 'cuda' is asked for, but this machine offers no CUDA: use --device cpu or auto"
        )
    # accelerate keeps one state per process and refuses a second precision; a run is one use.
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(
        cpu=config.device == "cpu",
        mixed_precision="bf16" if config.precision == "bf16" else "no",
    )
    return Compute(accelerator.device, accelerator.autocast)


def build_optimizer(
    parameters: Iterable[nn.Parameter], learning_rate: float, weight_decay: float
) -> torch.optim.AdamW:
    """Return AdamW; biases and normalisation weights do not decay.

    On the CPU the fused step reads and writes each parameter once. On a GPU torch's own choice
    steps many parameters together and keeps the step counts where they can be read without a wait.
    """
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    on_cpu = True
    for parameter in parameters:
        on_cpu &= parameter.device.type == "cpu"
        (matrices if parameter.ndim >= 2 else vectors).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True if on_cpu else None)


class LinearSchedule:
    """A learning rate that rises linearly over a share of the steps, then falls to zero.

    The rate is a function of the step alone, so that a resumed run needs no state of it.

    Args:
        optimizer: Whose learning rate is set; its present rate is the peak.
        total: Updates in all.
        warmup: Share of them with a rising rate.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, total: int, warmup: float) -> None:
        self._optimizer = optimizer
        self._peaks = [group["lr"] for group in optimizer.param_groups]
        self._total = total
        self._rising = round(total * warmup)

    def factor(self, step: int) -> float:
        """Return the share of the peak rate that an update (counted from 0) is made with."""
        if step < self._rising:
            return (step + 1) / (self._rising + 1)
        return max(0.0, (self._total - step) / max(1, self._total - self._rising))

    def apply(self, step: int) -> None:
        """Set the rate of an update."""
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * self.factor(step)

    @property
    def rate(self) -> float:
        """The learning rate as it was last set."""
        return self._optimizer.param_groups[0]["lr"]
