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
from auxlearn.weighting.base import Problem, Weighting


class LearnedOptions(Settings):
    """Settings of every rule whose weights move."""

    initial: tuple[float, ...] | None = Field(
        None, description="Weight of each objective at the start, primary first; by default equal."
    )
    warmup: int = Field(0, ge=0, description="Updates before the weights move.")
    freeze_after: int | None = Field(
        None, ge=1, description="Updates after which the weights stay as they are."
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
    def learn(self, problem: Problem) -> None:
        """Make one update and move the weights."""

    def moves(self, step: int) -> bool:
        """Whether the weights move at an update, counted from 0."""
        options = self.options
        return (
            len(self.objectives) > 1
            and step >= options.warmup
            and (options.freeze_after is None or step < options.freeze_after)
        )

    def step(self, problem: Problem) -> None:
        """Update the parameters, and the weights if their schedule says so."""
        if self.moves(problem.step):
            self.learn(problem)
        else:
            self._record = {}
            problem.backward(self.weights)
            problem.update()

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
            return self.floored(torch.full((count,), 1 / count, dtype=torch.float64))
        if len(given) != count:
            raise ConfigError(
                f"{self.name}: initial has {len(given)} weights for the {count} objectives "
                f"{', '.join(self.objectives)}: give one for each"
            )
        if not all(0 < weight < float("inf") for weight in given):
            raise ConfigError(f"{self.name}: initial weights are above zero, got {given}")
        weights = torch.tensor(given, dtype=torch.float64)
        return self.floored(weights / weights.sum())

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
    learning_rate: float = Field(0.02, gt=0, description="Learning rate of the logits.")
    optimizer: Literal["adam", "momentum", "sgd"] = Field(
        "adam", description="What moves the logits; momentum is SGD with momentum 0.9."
    )


class LogitWeighting(Learned):
    """Weights that are the softmax of logits.

    The floor is kept by putting the primary's logit back to where its share is the floor, so that
    the logits keep their gradient there and the primary may rise again.

    Attributes:
        logits: ``(objectives,)``, float64.
    """

    options: LogitOptions

    def __init__(self, options: LogitOptions, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        start = self.initial_weights().log()
        self.logits = (start - start.mean()).requires_grad_()
        kinds = {
            "adam": lambda: torch.optim.Adam([self.logits], lr=options.learning_rate),
            "momentum": lambda: torch.optim.SGD(
                [self.logits], lr=options.learning_rate, momentum=0.9
            ),
            "sgd": lambda: torch.optim.SGD([self.logits], lr=options.learning_rate),
        }
        self.optimizer: torch.optim.Optimizer = kinds[options.optimizer]()

    @property
    def weights(self) -> Tensor:
        """Softmax of the logits."""
        return self.logits.detach().softmax(0)

    def moves(self, step: int) -> bool:
        """Whether the weights move at an update, counted from 0."""
        return super().moves(step) and step % self.options.every == 0

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
            **{key: value for key, value in state.items() if value is not None},
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back logits and optimizer state."""
        with torch.no_grad():
            self.logits.copy_(state["logits"])
        moments = {key: value for key, value in state.items() if key != "logits"}
        if moments:
            self.optimizer.state[self.logits] = {k: v.clone() for k, v in moments.items()}


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
