"""Optimizer and learning-rate schedules."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from auxlearn.core.config import RunConfig
from auxlearn.encoders.shared import SharedEncoder


def build_optimizer(
    parameters: Iterable[nn.Parameter],
    learning_rate: float,
    weight_decay: float,
    head: Iterable[nn.Parameter] = (),
    head_learning_rate: float | None = None,
    head_weight_decay: float | None = None,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    fused: bool = True,
) -> torch.optim.AdamW:
    """Return AdamW without weight decay on biases and normalisation weights; on the CPU ``fused``,
    where each parameter is then read and written once.
    """
    head_rate = learning_rate if head_learning_rate is None else head_learning_rate
    head_decay = weight_decay if head_weight_decay is None else head_weight_decay
    separate = (head_rate, head_decay) != (learning_rate, weight_decay)
    head_ids = {id(parameter) for parameter in head} if separate else set()
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    on_cpu = True
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        on_cpu &= parameter.device.type == "cpu"
        groups.setdefault((id(parameter) in head_ids, parameter.ndim < 2), []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": members,
                "weight_decay": 0.0 if vector else (head_decay if in_head else weight_decay),
                "lr": head_rate if in_head else learning_rate,
            }
            for (in_head, vector), members in sorted(groups.items(), key=lambda item: item[0])
        ],
        lr=learning_rate,
        betas=betas,
        eps=epsilon,
        fused=True if fused and on_cpu else None,
    )


def run_optimizer(config: RunConfig, encoder: SharedEncoder) -> torch.optim.AdamW:
    return build_optimizer(
        encoder.parameters(),
        config.learning_rate or 0.0,
        config.weight_decay,
        encoder.head_parameters(),
        config.head_learning_rate,
        config.head_weight_decay,
        (config.adam_beta1, config.adam_beta2),
        config.adam_epsilon,
    )


class LinearSchedule:
    """Linear warm-up and decay to zero over ``total`` steps: a function of the step alone."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, total: int, warmup_ratio: float, start: int = 0
    ) -> None:
        self.optimizer = optimizer
        self._peaks = [group["lr"] for group in optimizer.param_groups]
        self.total = total
        self._start = start
        self._warmup_steps = round(total * warmup_ratio)

    def factor(self, step: int) -> float:
        """Return the share of the peak learning rate at a step (counted from 0)."""
        step -= self._start
        if step < self._warmup_steps:
            return (step + 1) / (self._warmup_steps + 1)
        return max(0.0, (self.total - step) / max(1, self.total - self._warmup_steps))

    def rates(self, step: int) -> list[float]:
        return [peak * self.factor(step) for peak in self._peaks]

    def apply(self, step: int) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates(step), strict=True):
            group["lr"] = rate

    @property
    def rate(self) -> float:
        """The learning rate of the first parameter group, as it was last set."""
        return self.optimizer.param_groups[0]["lr"]


class ConstantSchedule(LinearSchedule):
    """A constant learning rate."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer, total=0, warmup_ratio=0.0)

    def factor(self, step: int) -> float:
        return 1.0
