"""What a weighting is: the rule that turns the objectives of a step into one update.

A weighting sees objectives by name, their losses and gradients, and the validation objective. It
never sees a task. Most rules define one method of one of these classes:

* :class:`LossWeighting`: a weight for each objective.
* :class:`Weighting`: a whole update step, for rules that need more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from auxlearn.config import Settings

#: Gradient of one objective: a tensor per parameter, ``None`` where it has no part in the loss.
Gradient = list[Tensor | None]

#: What a validation loss is read through: the run's own classification head; or a fresh head on
#: other validation rows, in closed form, fitted to features that are computed once ("fitted"), or
#: to features that are computed in every step of the fit ("refitted").
DevHead = Literal["own", "closed", "fitted", "refitted"]

#: Where a parameter belongs: to the body, to the head of the primary task, or to another head.
Part = Literal["body", "primary", "other"]


class TrainingStep(Protocol):
    """One update step as a weighting sees it.

    Attributes:
        names: Objectives, the primary task first.
        number: Number of the optimizer step, from 0.
        seed: The run's seed, for rules that draw.
        total_steps: Optimizer steps of the run if nothing stops it early.
        parameters: What is trained, in a fixed order; gradients are in the same order.
        parts: Where each of them belongs.
        model: The module that holds them.
        optimizer: The optimizer that :meth:`update` steps.
        max_grad_norm: Largest norm of the gradient that :meth:`update` lets through; 0: no limit.
        losses: Loss of each objective that was computed in this step, detached.
    """

    names: tuple[str, ...]
    number: int
    seed: int
    total_steps: int
    parameters: list[nn.Parameter]
    parts: tuple[Part, ...]
    model: nn.Module
    optimizer: torch.optim.Optimizer
    max_grad_norm: float
    losses: dict[str, Tensor]

    def backward(self, weights: Sequence[float] | Tensor) -> None:
        """Add the weighted gradients of all objectives to ``.grad``, one graph at a time."""

    def gradients(self) -> list[Gradient]:
        """Return the unweighted gradient of each objective; ``.grad`` is left empty."""

    def micro_gradients(self) -> Iterator[list[Gradient]]:
        """Yield the gradient of each objective on one part of the batches after another.

        The parts of one objective sum to what :meth:`gradients` returns.
        """

    def current_losses(self) -> Tensor:
        """Return the losses of this step's batches at the current parameters, ``(objectives,)``.

        Dropout masks and draws are those of the step; nothing is recorded, and there is no graph.
        """

    def validation_gradient(self, draw: int = 0, batches: int = 1) -> Gradient:
        """Return the gradient of the validation objective at the current parameters.

        Dropout is off. The validation loss is recorded under ``losses["validation"]``.

        Args:
            draw: Which of the validation batches of this step; there are as many as gradient
                accumulation has micro-batches, or :attr:`Weighting.validation_batches` if those
                are more.
            batches: How many of them the mean is taken over, one after another.
        """

    def update(self) -> None:
        """Clip what is in ``.grad``, step the optimizer, clear ``.grad``."""

    def functional_losses(self, model: nn.Module, ahead: int) -> Tensor:
        """Return the loss of each objective, ``(objectives,)``, computed by a copy of ``model``.

        Args:
            model: A functional copy, as ``higher`` makes them.
            ahead: Updates from this one to the one whose batches are used.
        """

    def functional_validation_loss(self, model: nn.Module, batches: int = 1) -> Tensor:
        """Return the mean of the validation objective over batches; dropout is off.

        Args:
            model: A functional copy, as ``higher`` makes them.
            batches: How many validation batches of this step.
        """

    def learning_rates(self, ahead: int) -> list[float]:
        """Return the rate of each group of the optimizer, so many updates from now."""

    def twice_differentiable(self) -> AbstractContextManager[None]:
        """Within it the model computes in ways that have a second derivative."""


class ValidationOptions(Settings):
    """Settings of every rule that learns from validation rows."""

    split: str = Field(
        "dev",
        pattern=r"^(dev|train:0?\.\d*[1-9]\d*|.+\.(jsonl|csv|tsv|parquet))$",
        description="Rows that steer the weights: dev, train:SHARE to hold out some of train, or "
        "a file of labelled rows.",
    )
    batch_size: int | None = Field(
        None, ge=1, description="Validation rows of a step; by default the training batch size."
    )


class Weighting(ABC):
    """A rule that combines objectives.

    Args:
        options: The rule's own settings, an instance of :attr:`Options`.
        objectives: Names of the objectives, the primary task first.

    Attributes:
        name: The registered name.
        Options: The rule's settings; the command line, YAML files and lists come from it.
        attends_to_padding: The attention mask is left out in training; for one rule's sake that
            imitates code which does so.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Settings]] = Settings
    attends_to_padding: ClassVar[bool] = False
    follows_metric: ClassVar[bool] = True
    clips_apart: ClassVar[bool] = False

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        self.options = options
        self.objectives = tuple(objectives)

    @property
    def validation_split(self) -> str | None:
        """Which rows the rule learns from, as the option says, or ``None`` for no rows."""
        return self.options.split if isinstance(self.options, ValidationOptions) else None

    @property
    def dev_head(self) -> DevHead:
        """Which head the validation gradient is read through."""
        return "own"

    @property
    def validation_batches(self) -> int:
        """How many validation batches the rule takes in a step."""
        return 1

    @property
    def differentiates_twice(self) -> bool:
        """Whether the rule differentiates updates through the encoder."""
        return False

    @property
    @abstractmethod
    def weights(self) -> Tensor:
        """The weight of each objective now, ``(objectives,)``, float64, for the record."""

    @abstractmethod
    def step(self, step: TrainingStep) -> None:
        """Make one update: leave a gradient in ``.grad`` and call ``step.update()``."""

    def record(self) -> dict[str, float]:
        """Return further figures about the last step, for ``metrics.jsonl``."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """Return what was learned and must outlast a kill; nothing by default."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what :meth:`state_dict` gave."""


class LossWeighting(Weighting):
    """A rule that gives each loss a weight before the update."""

    def step(self, step: TrainingStep) -> None:
        """Train on the weighted sum of the losses."""
        step.backward(self.weights)
        step.update()


def apply(step: TrainingStep, gradient: Gradient) -> None:
    """Make the update of a step with a gradient that has been worked out outside of ``.grad``."""
    for parameter, part in zip(step.parameters, gradient, strict=True):
        parameter.grad = part
    step.update()


def mix(gradients: Sequence[Gradient], weights: Sequence[float] | Tensor) -> Gradient:
    """Return the weighted sum of gradients.

    Args:
        gradients: One per objective, each with the same number of parameters.
        weights: One per objective.

    Returns:
        New tensors; ``None`` for a parameter that no objective reaches.
    """
    values = [float(weight) for weight in weights]
    mixed: Gradient = []
    for parts in zip(*gradients, strict=True):
        total = None
        for weight, part in zip(values, parts, strict=True):
            if part is not None:
                total = part * weight if total is None else total.add_(part, alpha=weight)
        mixed.append(total)
    return mixed


def dot(left: Gradient, right: Gradient) -> Tensor:
    """Return the inner product of two gradients as a float64 scalar."""
    products = [
        torch.dot(a.flatten(), b.flatten()).double()
        for a, b in zip(left, right, strict=True)
        if a is not None and b is not None
    ]
    return torch.stack(products).sum() if products else torch.zeros((), dtype=torch.float64)


def read(scalars: Sequence[Tensor]) -> Tensor:
    """Return scalars as one vector, float64, on the CPU; a device is waited for once.

    Args:
        scalars: Tensors of one number, on any devices.
    """
    values = torch.empty(len(scalars), dtype=torch.float64)
    for device in {scalar.device for scalar in scalars}:
        places = [place for place, scalar in enumerate(scalars) if scalar.device == device]
        values[places] = torch.stack([scalars[place].detach().double() for place in places]).cpu()
    return values
