"""Optimizer and learning-rate schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from transformers.optimization import get_scheduler

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.encoders.trainable import EMBEDDINGS, layers_of


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
    factors: Mapping[int, float] | None = None,
) -> torch.optim.AdamW:
    """Return AdamW without weight decay on biases and normalisation weights, on the CPU ``fused``;
    ``factors`` of the learning rates are by ``id`` of a parameter.
    """
    head_rate = learning_rate if head_learning_rate is None else head_learning_rate
    head_decay = weight_decay if head_weight_decay is None else head_weight_decay
    separate = (head_rate, head_decay) != (learning_rate, weight_decay)
    head_ids = {id(parameter) for parameter in head} if separate else set()
    groups: dict[tuple[bool, bool, float], list[nn.Parameter]] = {}
    on_cpu = True
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        on_cpu &= parameter.device.type == "cpu"
        factor = (factors or {}).get(id(parameter), 1.0)
        key = (id(parameter) in head_ids, parameter.ndim < 2, factor)
        groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": members,
                "weight_decay": 0.0 if vector else (head_decay if in_head else weight_decay),
                "lr": factor * (head_rate if in_head else learning_rate),
            }
            for (in_head, vector, factor), members in sorted(
                groups.items(), key=lambda item: (*item[0][:2], -item[0][2])
            )
        ],
        lr=learning_rate,
        betas=betas,
        eps=epsilon,
        fused=True if fused and on_cpu else None,
    )


def layer_factors(encoder: SharedEncoder, decay: float) -> dict[int, float]:
    """Return the factor of the learning rate of each parameter of the layers and embeddings, by
    ``id``: ``decay ** (L + 1 - k)`` for layer k of L; the embeddings are layer 0.
    """
    body = encoder.body
    below = [p for name, p in body.named_parameters() if EMBEDDINGS.search(name)]
    levels: list[Iterable[nn.Parameter]] = [below]
    levels += [layer.parameters() for layer in layers_of(body)]
    return {
        id(parameter): decay ** (len(levels) - number)
        for number, parameters in enumerate(levels)
        for parameter in parameters
    }


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
        factors=layer_factors(encoder, config.layer_decay),
    )


#: Learning rate that transformers' polynomial schedule ends with.
LAST_RATE = 1e-7


class Schedule:
    """A learning-rate schedule of transformers by its name, over ``total`` steps from ``start``, as
    a function of the step; it warms up from the first step on, and not from a rate of 0.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        total: int,
        warmup_ratio: float,
        name: str = "linear",
        start: int = 0,
    ) -> None:
        self.optimizer = optimizer
        self._peaks = [group["lr"] for group in optimizer.param_groups]
        self.total = total
        self._start = start
        self._warmup_steps = 0 if name == "constant" else round(total * warmup_ratio)
        if name == "polynomial" and max(self._peaks) <= LAST_RATE:
            raise ConfigError(
                f"lr_scheduler_type: polynomial ends with a learning rate of {LAST_RATE:g}: choose "
                "a higher learning_rate"
            )
        # Schedulers of torch change the optimizer that they are made for.
        another = torch.optim.SGD([torch.zeros(1)], lr=max(self._peaks))
        scheduler: Any = get_scheduler(name, another, self._warmup_steps, total)
        self._share: Callable[[int], float] = scheduler.lr_lambdas[0]

    def factor(self, step: int) -> float:
        """Return the share of the peak learning rate at a step (counted from 0)."""
        step -= self._start
        if step < self._warmup_steps:
            return (step + 1) / (self._warmup_steps + 1)
        return self._share(step)

    def rates(self, step: int) -> list[float]:
        return [peak * self.factor(step) for peak in self._peaks]

    def apply(self, step: int) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates(step), strict=True):
            group["lr"] = rate

    @property
    def rate(self) -> float:
        """The learning rate of the first parameter group, as it was last set."""
        return self.optimizer.param_groups[0]["lr"]


#: Scales no losses, as precisions with the range of float32 need none.
NO_SCALER = torch.amp.GradScaler(enabled=False)


def unscaled(
    scaler: torch.amp.GradScaler, gradients: Iterable[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Return gradients of a loss that was scaled, as those of the loss itself."""
    if not scaler.is_enabled():
        return tuple(gradients)
    return tuple(g if g is None else g / scaler.scale(g.new_ones(())) for g in gradients)


def clipped_step(
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[nn.Parameter]],
    max_grad_norm: float,
    scaler: torch.amp.GradScaler,
) -> None:
    """Make an optimizer step after each group's gradient is clipped to a norm (0: not at all)."""
    for parameter in chain.from_iterable(groups):
        gradient = parameter.grad
        if gradient is not None and 0 in gradient.stride():
            # That of a sum has one element in many places.
            gradient = parameter.grad = gradient.contiguous()
        if gradient is not None and scaler.is_enabled():
            parameter.grad = scaler.scale(gradient)
    if scaler.is_enabled():
        scaler.unscale_(optimizer)  # it notes whether they are finite
    if max_grad_norm:
        for parameters in groups:
            nn.utils.clip_grad_norm_(parameters, max_grad_norm)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
