"""Base classes of learned weights: schedule, initial weights, floor of the primary task, logits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.core.errors import ConfigError
from auxlearn.core.metric_names import VALIDATION, Quantity
from auxlearn.weighting.base import TrainingStep
from auxlearn.weighting.mixing import LossWeighting, MixOptions, equal_weights
from auxlearn.weighting.state import OptimizerState

#: Smallest product of gradient norms that an inner product is divided by.
EPSILON = 1e-30


def floored_weights(weights: Tensor, floor: float) -> Tensor:
    """Raise the primary task's weight to its share of the sum, and scale the others down."""
    total, least = weights.sum(), floor * weights.sum()
    if len(weights) == 1 or weights[0] >= least:
        return weights
    others = weights[1:] * ((total - least) / weights[1:].sum())
    return torch.cat([least[None], others])


def floored_primary_logit(logits: Tensor, floor: float) -> Tensor:
    """Return the primary task's logit at which its softmax weight equals the floor."""
    return logits[1:].logsumexp(0) + torch.logit(torch.tensor(floor, dtype=torch.float64))


def softmax_gradient(weights: Tensor, weight_gradient: Tensor) -> Tensor:
    r"""Return the gradient by logits, given that by their softmax, ``(objectives,)``.

    With :math:`w = \mathrm{softmax}(z)` and :math:`d_i = \partial L / \partial w_i`:
    :math:`\partial L / \partial z_i = w_i (d_i - \sum_j w_j d_j)`.
    """
    return weights * (weight_gradient - (weights * weight_gradient).sum())


class LearnedOptions(MixOptions):
    """Options of every rule with learned weights."""

    initial: tuple[float, ...] | None = None
    """Initial weight of each objective, primary first; by default equal."""

    warmup_steps: int = Field(0, ge=0)
    """Optimizer steps before the first update of the weights."""

    learn_share: float = Field(1.0, gt=0, le=1)
    """Share of the optimizer steps, counted from the first, in which the weights are learned;
    afterwards they are held fixed."""

    floor: float = Field(0.0, ge=0, lt=1)
    """Smallest share of the sum of weights for the primary task."""


class LearnedWeighting(LossWeighting):
    """A rule whose weights are learned within a schedule.

    A subclass defines :attr:`~Weighting.weights` and :meth:`learn`, calls :meth:`initial_weights`
    at the start, and may keep metrics of a step in ``self._metrics``. In steps outside the schedule
    the weights are held fixed: the step is that of a
    :class:`~auxlearn.weighting.mixing.LossWeighting`. A rule with an optimizer of its own keeps an
    :class:`~auxlearn.weighting.state.OptimizerState` of it as an attribute.
    """

    Options = LearnedOptions
    options: LearnedOptions

    @abstractmethod
    def learn(self, step: TrainingStep) -> None:
        """Make one optimizer step and update the weights."""

    def is_learning(self, step: TrainingStep) -> bool:
        """Whether the weights are learned in a step, or held fixed."""
        return len(self.objectives) > 1 and (
            self.options.warmup_steps <= step.number < self.options.learn_share * step.total_steps
        )

    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step, and update the weights if the schedule says so."""
        if self.is_learning(step):
            self.learn(step)
        else:
            self._metrics = {}
            super().step(step)

    def initial_weights(self) -> Tensor:
        """Return the initial weights, ``(objectives,)``, float64, with sum 1.

        Raises:
            ConfigError: Option ``initial`` has not one value per objective, or a value that is not
                above zero.
        """
        initial, count = self.options.initial, len(self.objectives)
        if initial is None:
            return self.with_floor(self.default_weights())
        if len(initial) != count:
            raise ConfigError(
                f"{self.name}: initial has {len(initial)} weights for the {count} objectives "
                f"{', '.join(self.objectives)}: give one for each"
            )
        if not all(0 < weight < float("inf") for weight in initial):
            raise ConfigError(f"{self.name}: initial weights are above zero, got {initial}")
        weights = torch.tensor(initial, dtype=torch.float64)
        return self.with_floor(weights / weights.sum())

    def default_weights(self) -> Tensor:
        """Return the initial weights if option ``initial`` is not given: equal ones."""
        return equal_weights(len(self.objectives))

    def with_floor(self, weights: Tensor) -> Tensor:
        """Apply :func:`floored_weights` with the option ``floor``."""
        return floored_weights(weights, self.options.floor)


class LogitOptions(LearnedOptions):
    """Options of rules whose weights are the softmax of logits."""

    every: int = Field(1, ge=1)
    """Optimizer steps from one update of the weights to the next."""

    learning_rate: float | None = Field(0.02, gt=0)
    """Learning rate of the logits."""

    optimizer: Literal["adam", "sgd"] = "adam"
    """Optimizer of the logits."""


class LogitWeighting(LearnedWeighting):
    """Weights that are the softmax of logits, learned by an optimizer of their own.

    The floor is enforced by raising the primary task's logit after an update, so that the logits
    keep their gradient there and the primary weight can grow again.

    Attributes:
        logits: ``(objectives,)``, float64, on the CPU.
        optimizer: Optimizer of the logits.
    """

    Options = LogitOptions
    options: LogitOptions

    def __init__(self, options: LogitOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        start = self.initial_weights().log()
        self.logits = nn.Parameter(start - start.mean())
        rate = options.learning_rate or 0.0  # a rule with a schedule sets the rate of each step
        cls = torch.optim.Adam if options.optimizer == "adam" else torch.optim.SGD
        self.optimizer: torch.optim.Optimizer = cls([self.logits], lr=rate)
        self.moments = OptimizerState(self.optimizer)

    @property
    def weights(self) -> Tensor:
        """Softmax of the logits."""
        return self.softmax()

    def softmax(self) -> Tensor:
        """Return the weights as learned, ``(objectives,)``; a subclass may not apply all."""
        return self.logits.detach().softmax(0)

    def is_learning(self, step: TrainingStep) -> bool:
        """Whether the logits are updated in a step: the last of every ``every`` steps."""
        return super().is_learning(step) and (step.number + 1) % self.options.every == 0

    def apply_weight_gradient(self, gradient: Tensor) -> None:
        """Step the logits' optimizer with a gradient by the weights, ``(objectives,)``."""
        weights = self.softmax()
        self.apply_logit_gradient(softmax_gradient(weights, gradient.detach().to(weights)))

    def apply_logit_gradient(self, gradient: Tensor) -> None:
        """Step the logits' optimizer by a gradient, ``(objectives,)``, and enforce the floor."""
        self.logits.grad = gradient.detach().to(self.logits)
        self.optimizer.step()
        with torch.no_grad():
            floor = self.options.floor
            if floor and float(self.softmax()[0]) < floor:
                self.logits[0] = floored_primary_logit(self.logits, floor)


def cosines_with(products: Tensor, norms: Tensor, norm: Tensor) -> Tensor:
    """Return the cosines of vectors with another one, ``(vectors,)``; 0 where a norm is zero."""
    return products / (norms * norm).clamp(min=EPSILON)


def alignment_metrics(
    names: Sequence[str], norms: Tensor, cosines: Tensor, validation: Tensor
) -> dict[str, float]:
    """Return norms of gradients, cosines with the validation gradient, and the norm of that."""
    metrics = {Quantity.NORM.key(VALIDATION): float(validation)}
    for name, norm, cosine in zip(names, norms.tolist(), cosines.tolist(), strict=True):
        metrics[Quantity.NORM.key(name)] = norm
        metrics[Quantity.COSINE.key(name)] = cosine
    return metrics
