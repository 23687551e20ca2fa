"""The optimizer and its learning-rate schedules."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from auxlearn.config import RunConfig
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
) -> torch.optim.AdamW:
    """Return AdamW; biases and normalisation weights do not decay.

    On the CPU the fused step reads and writes each parameter once. On a GPU torch's own choice
    steps many parameters together and keeps the step counts where they can be read without a wait.

    Args:
        parameters: Everything that is trained.
        learning_rate: Rate of all parameters but the head's.
        weight_decay: Decoupled decay of all parameters but the head's.
        head: Those of the parameters that may have a rate and a decay of their own.
        head_learning_rate: That rate; by default the same.
        head_weight_decay: That decay; by default the same.
        betas: Decay rates of the two moments.
        epsilon: Added to the root of the second moment.
    """
    head_rate = learning_rate if head_learning_rate is None else head_learning_rate
    head_decay = weight_decay if head_weight_decay is None else head_weight_decay
    apart = (head_rate, head_decay) != (learning_rate, weight_decay)
    special = {id(parameter) for parameter in head} if apart else set()
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    on_cpu = True
    for parameter in parameters:
        on_cpu &= parameter.device.type == "cpu"
        groups.setdefault((id(parameter) in special, parameter.ndim < 2), []).append(parameter)
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
        fused=True if on_cpu else None,
    )


def optimizer_of_run(config: RunConfig, encoder: SharedEncoder) -> torch.optim.AdamW:
    """Return the optimizer that a configuration describes."""
    return build_optimizer(
        encoder.parameters(),
        config.learning_rate or 0.0,
        config.weight_decay,
        encoder.classification_parameters(),
        config.head_learning_rate,
        config.head_weight_decay,
        (config.adam_beta1, config.adam_beta2),
        config.adam_epsilon,
    )


def optimizer_of_last_stage(config: RunConfig, encoder: SharedEncoder) -> torch.optim.AdamW:
    """Return the optimizer of the last stage: one learning rate for all, the rest as before."""
    rates = {"learning_rate": config.final_learning_rate, "head_learning_rate": None}
    return optimizer_of_run(config.model_copy(update=rates), encoder)


class LinearSchedule:
    """A learning rate that rises linearly over a share of the steps, then falls to zero.

    The rate is a function of the step alone, so that a resumed run needs no state of it.

    Args:
        optimizer: Whose learning rate is set; its present rate is the peak.
        total: Updates in all.
        warmup_ratio: Share of them with a rising rate.
        start: Number of the first of them.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, total: int, warmup_ratio: float, start: int = 0
    ) -> None:
        self._optimizer = optimizer
        self._peaks = [group["lr"] for group in optimizer.param_groups]
        self.total = total
        self._start = start
        self._rising = round(total * warmup_ratio)

    def factor(self, step: int) -> float:
        """Return the share of the peak rate that an update (counted from 0) is made with."""
        step -= self._start
        if step < self._rising:
            return (step + 1) / (self._rising + 1)
        return max(0.0, (self.total - step) / max(1, self.total - self._rising))

    def rates(self, step: int) -> list[float]:
        """Return the rate of each group of the optimizer at an update."""
        return [peak * self.factor(step) for peak in self._peaks]

    def apply(self, step: int) -> None:
        """Set the rate of an update."""
        for group, rate in zip(self._optimizer.param_groups, self.rates(step), strict=True):
            group["lr"] = rate

    @property
    def rate(self) -> float:
        """The learning rate as it was last set."""
        return self._optimizer.param_groups[0]["lr"]


class ConstantSchedule(LinearSchedule):
    """A learning rate that stays as it is.

    Args:
        optimizer: Whose learning rate is kept.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer, total=0, warmup_ratio=0.0)

    def factor(self, step: int) -> float:
        """Return 1."""
        return 1.0
