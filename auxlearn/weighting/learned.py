"""What rules with learned weights have in common: when the weights move, and within what bounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from auxlearn.config import Settings
from auxlearn.errors import ConfigError
from auxlearn.weighting.base import Gradient, TrainingStep, Weighting, apply, mix
from auxlearn.weighting.gram import shared
from auxlearn.weighting.metabalance import metabalance_factors
from auxlearn.weighting.step_derivative import inner_products

#: Decay of the moving averages of gradient norms, as MetaBalance has it.
AVERAGING = 0.9


class LearnedOptions(Settings):
    """Settings of every rule whose weights move."""

    initial: tuple[float, ...] | None = Field(
        None, description="Weight of each objective at the start, primary first; by default equal."
    )
    warmup_steps: int = Field(0, ge=0, description="Updates before the weights move.")
    learn_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the optimizer steps, from the first on, in which the weights are "
        "learned; afterwards they are held fixed.",
    )
    floor: float = Field(
        0.0, ge=0, lt=1, description="Least share that the primary task has of all weights."
    )


class Learned(Weighting):
    """A rule whose weights move within a schedule.

    A subclass defines :meth:`learn`, which makes an update that the weights learn from, and reads
    and writes its weights through :attr:`weights`. While the weights rest, a step is that of fixed
    weights.
    """

    options: LearnedOptions

    def __init__(self, options: LearnedOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self._record: dict[str, float] = {}

    @abstractmethod
    def learn(self, step: TrainingStep) -> None:
        """Make one update and move the weights."""

    def moves(self, step: TrainingStep) -> bool:
        """Whether the weights are learned in a step."""
        return len(self.objectives) > 1 and (
            self.options.warmup_steps <= step.number < self.options.learn_share * step.total_steps
        )

    def step(self, step: TrainingStep) -> None:
        """Update the parameters, and the weights if their schedule says so."""
        if self.moves(step):
            self.learn(step)
        else:
            self._record = {}
            step.backward(self.weights)
            step.update()

    def record(self) -> dict[str, float]:
        """What the last step found out about the objectives."""
        return self._record

    def initial_weights(self) -> Tensor:
        """Return the weights of the start, ``(objectives,)``, float64, which sum to 1.

        Raises:
            ConfigError: ``initial`` has another length than there are objectives, or one of its
                values is not above zero.
        """
        given, count = self.options.initial, len(self.objectives)
        if given is None:
            return self.floored(self.default_weights())
        if len(given) != count:
            raise ConfigError(
                f"{self.name}: initial has {len(given)} weights for the {count} objectives "
                f"{', '.join(self.objectives)}: give one for each"
            )
        if not all(0 < weight < float("inf") for weight in given):
            raise ConfigError(f"{self.name}: initial weights are above zero, got {given}")
        weights = torch.tensor(given, dtype=torch.float64)
        return self.floored(weights / weights.sum())

    def default_weights(self) -> Tensor:
        """Return the weights of the start that hold if none are given: equal ones."""
        count = len(self.objectives)
        return torch.full((count,), 1 / count, dtype=torch.float64)

    def floored(self, weights: Tensor) -> Tensor:
        """Return weights of the same sum in which the primary's share is the floor at least."""
        total, floor = weights.sum(), self.options.floor * weights.sum()
        if len(weights) == 1 or weights[0] >= floor:
            return weights
        others = weights[1:] * ((total - floor) / weights[1:].sum())
        return torch.cat([floor[None], others])


class LogitOptions(LearnedOptions):
    """Settings of rules whose weights are the softmax of logits."""

    every: int = Field(1, ge=1, description="Updates from one change of the weights to the next.")
    learning_rate: float | None = Field(0.02, gt=0, description="Learning rate of the logits.")
    optimizer: Literal["adam", "momentum", "sgd"] = Field(
        "adam", description="What moves the logits; momentum is SGD with momentum 0.9."
    )
    scale: Literal["none", "primary"] = Field(
        "none",
        description="Scale each gradient to the norm of the primary task's over the shared "
        "parameters before it is weighted (primary), or weight it as it is (none).",
    )


class LogitWeighting(Learned):
    """Weights that are the softmax of logits.

    The floor is kept by putting the primary's logit back to where its share is the floor, so that
    the logits keep their gradient there and the primary may rise again.

    With ``scale: primary`` weights act on gradients of equal norm. Gradients of masked language
    modelling have several times the norm of the classification's at first, and under Adam, which
    only knows ratios, equal weights would leave nearly all of an optimizer step to them. The norms
    are moving averages over the shared parameters (MetaBalance, He et al. 2022, with relaxation 1
    and one norm per objective in place of one per tensor).

    Attributes:
        logits: ``(objectives,)``, float64.
    """

    options: LogitOptions

    def __init__(self, options: LogitOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        start = self.initial_weights().log()
        self.logits = (start - start.mean()).requires_grad_()
        rate = options.learning_rate or 0.0  # a rule with a schedule sets the rate of each step
        kinds = {
            "adam": lambda: torch.optim.Adam([self.logits], lr=rate),
            "momentum": lambda: torch.optim.SGD([self.logits], lr=rate, momentum=0.9),
            "sgd": lambda: torch.optim.SGD([self.logits], lr=rate),
        }
        self.optimizer: torch.optim.Optimizer = kinds[options.optimizer]()
        self._averages = torch.zeros(len(self.objectives), 1, dtype=torch.float64)

    def step(self, step: TrainingStep) -> None:
        """Make an optimizer step, and one of the logits if their schedule says so."""
        if self.options.scale == "none" or self.moves(step):
            super().step(step)
            return
        gradients = step.gradients()
        factors = self.factors_of(gradients, step)
        self._record = scales(step.names, factors)
        apply(step, mix(gradients, self.weights * factors))

    def factors_of(self, gradients: Sequence[Gradient], step: TrainingStep) -> Tensor:
        """Return :meth:`factors` for the gradients of a step; measures norms only if need be."""
        if self.options.scale == "none":
            return torch.ones(len(self.objectives), dtype=torch.float64)
        (gram,) = inner_products([shared(gradient, step.parts) for gradient in gradients])
        return self.factors(gram.diagonal().sqrt())

    def factors(self, norms: Tensor) -> Tensor:
        """Return what the gradients of a step are multiplied by, apart from their weights.

        Args:
            norms: Norm of each gradient over the shared parameters, ``(objectives,)``, float64.

        Returns:
            ``(objectives,)``, float64; 1 for the primary task, and for all with ``scale: none``.
        """
        if self.options.scale == "none":
            return torch.ones_like(norms)
        found, self._averages = metabalance_factors(norms[:, None], self._averages, 1.0, AVERAGING)
        return found[:, 0]

    @property
    def weights(self) -> Tensor:
        """Softmax of the logits."""
        return self.logits.detach().softmax(0)

    def moves(self, step: TrainingStep) -> bool:
        """Whether the weights are learned in a step."""
        return super().moves(step) and step.number % self.options.every == 0

    def descend(self, by_weight: Tensor) -> None:
        """Step the logits, given a derivative by the weights: it is passed on through softmax."""
        weights = self.weights
        by_weight = by_weight.detach().to(weights)
        self.descend_logits(weights * (by_weight - (weights * by_weight).sum()))

    def descend_logits(self, by_logit: Tensor) -> None:
        """Step the logits, given what stands for a derivative by the logits themselves."""
        self.logits.grad = by_logit.detach().to(self.logits)
        self.optimizer.step()
        with torch.no_grad():
            least = self.options.floor
            if least and float(self.weights[0]) < least:
                others = self.logits[1:].logsumexp(0)
                self.logits[0] = others + torch.logit(torch.tensor(least, dtype=torch.float64))

    def state_dict(self) -> dict[str, Tensor]:
        """Logits and the state of their optimizer."""
        state = self.optimizer.state[self.logits]
        return {
            "logits": self.logits.detach(),
            "averages": self._averages,
            **{key: value for key, value in state.items() if value is not None},
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back logits and optimizer state."""
        with torch.no_grad():
            self.logits.copy_(state["logits"])
        self._averages = state["averages"].clone()
        moments = {k: value for k, value in state.items() if k not in ("logits", "averages")}
        if moments:
            self.optimizer.state[self.logits] = {k: v.clone() for k, v in moments.items()}


def scales(names: Sequence[str], factors: Tensor) -> dict[str, float]:
    """Return ``scale/NAME``, what each gradient was multiplied by apart from its weight."""
    return {f"scale/{name}": value for name, value in zip(names, factors.tolist(), strict=True)}


def alignment(names: Sequence[str], gram: Tensor, with_validation: Tensor) -> dict[str, float]:
    """Return norms of gradients and their cosines with the validation gradient.

    Args:
        names: The objectives.
        gram: Inner products of their gradients, ``(objectives, objectives)``.
        with_validation: Inner products with the validation gradient, and last its own with itself,
            ``(objectives + 1,)``.

    Returns:
        ``norm/NAME``, ``cosine/NAME`` and ``norm/validation``.
    """
    size = float(with_validation[-1].sqrt())
    figures = {"norm/validation": size}
    for index, name in enumerate(names):
        norm = float(gram[index, index].sqrt())
        figures[f"norm/{name}"] = norm
        figures[f"cosine/{name}"] = float(with_validation[index]) / max(norm * size, 1e-30)
    return figures
