"""Base classes of weightings: rules that combine the objectives of an optimizer step.

A weighting sees objectives by name, their losses and gradients, and the validation objective. It
never sees a task. A new rule subclasses one of three classes and defines one or two methods:

* :class:`~auxlearn.weighting.mixing.LossWeighting`: ``weights``, a weight for each loss, known
  before the step.
* :class:`~auxlearn.weighting.learned.LearnedWeighting`: ``weights`` and ``learn``, for weights that
  change within a schedule (warm-up, share of the steps, floor of the primary task).
* :class:`Weighting`: ``weights`` and ``step``, for everything else.

A rule is a :class:`torch.nn.Module`: what it keeps from one step to the next are its buffers,
parameters and parts, so that a resumed run makes the same steps (:class:`KeptWeights` has the
weights of the last step, :class:`~auxlearn.weighting.state.OptimizerState` the moments of an
optimizer). All randomness follows from ``step.seed`` and ``step.number``.
``examples/inverse_loss.py`` is a complete rule in twenty lines; :mod:`auxlearn.plugins` has every
name that a rule needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from auxlearn.core.settings import ValidationSource
from auxlearn.core.validation import Described, Settings
from auxlearn.weighting.gradients import Gradient, Placement, gather_scalars, weighted_sum

#: Classification head that the validation loss is computed with: the run's own ("own"); or one made
#: from other validation examples, in closed form ("closed"), fitted by gradient descent to features
#: that are computed once ("fitted"), or to features computed again in every step of the fit
#: ("refitted").
DevHead = Literal["own", "closed", "fitted", "refitted"]

#: What is weighted: gradients, gradients of equal norm, or optimizer steps; see
#: :mod:`auxlearn.weighting.mixing`.
Mix = Literal["gradients", "scaled", "steps"]


@dataclass(frozen=True)
class Branches:
    """How a rule compares whole runs with fixed weights in place of learning within one.

    Attributes:
        share: Share of an auxiliary task in the run that has it.
        mix: How that run mixes its objectives.
    """

    share: float
    mix: Mix


class Members:
    """The members of the tasks that are made of several objectives.

    Most rules need not know of them: to them such a task is one objective, whose loss is the mean
    of the members of the step. A rule that weighs members sets :attr:`weights` before it asks for
    gradients, and asks for those of the :meth:`parts`.

    Attributes:
        factors: Of each such task, the factors of each member by axis, such as ``{"transform":
            "mask", "output": "denoise"}``; the same in every step.
        sampled: Numbers of the members that are part of this step, by task.
        weights: Weights of all members by task, ``(members,)``, none negative; members of tasks
            without an entry count equally. Empty at the beginning of a step.
    """

    def __init__(self, factors: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
        self.factors = {name: tuple(members) for name, members in factors.items()}
        self.begin({name: range(len(members)) for name, members in factors.items()})

    def begin(self, sampled: Mapping[str, Sequence[int]]) -> None:
        """Begin a step with the members that are part of it."""
        self.sampled = {name: tuple(numbers) for name, numbers in sampled.items()}
        self.weights: dict[str, Tensor] = {}

    def parts(self, names: Sequence[str]) -> list[tuple[str, int | None]]:
        """Return the objectives of some names, with the members of the step in place of their task:
        name and number of each member; the number is ``None`` for any other objective.
        """
        return [(name, number) for name in names for number in self.sampled.get(name, (None,))]

    def shares(self, name: str) -> Tensor:
        """Return the weights of the members of the step, with sum 1, ``(sampled members,)``."""
        numbers = list(self.sampled[name])
        every = self.weights.get(name, torch.ones(len(self.factors[name]), dtype=torch.float64))
        return every[numbers] / every[numbers].sum()

    def loss(self, name: str, losses: Mapping[int, Tensor]) -> Tensor:
        """Return the loss of a task from those of its members on a batch."""
        shares = dict(zip(self.sampled[name], self.shares(name).tolist(), strict=True))
        return torch.stack([loss * shares[number] for number, loss in losses.items()]).sum()

    def joined(self, names: Sequence[str], gradients: Sequence[Gradient]) -> list[Gradient]:
        """Return the gradient of each objective, given one for each of the :meth:`parts`."""
        rest, joined = list(gradients), []
        for name in names:
            count = len(self.sampled.get(name, (None,)))
            members, rest = rest[:count], rest[count:]
            joined.append(
                weighted_sum(members, self.shares(name)) if name in self.sampled else members[0]
            )
        return joined


class TrainingStep(Protocol):
    """One optimizer step of the run, as a weighting sees it.

    A weighting obtains gradients from it by :meth:`backward`, :meth:`gradients` or
    :meth:`micro_gradients`, leaves the combined gradient in ``.grad``, and calls
    :meth:`optimizer_step`; :func:`apply_gradient` does the last two.

    Attributes:
        names: Names of the objectives, the primary task first. Vectors "by objective" below are
            in this order.
        number: Number of the optimizer step, from 0.
        seed: The run's seed, for rules that use random numbers.
        total_steps: Optimizer steps of the run if early stopping does not end it before.
        parameters: The trained parameters, in a fixed order; gradients are in the same order.
        placements: Where each of the parameters belongs, in the same order.
        model: The module that holds the parameters.
        optimizer: The optimizer that :meth:`optimizer_step` steps.
        max_grad_norm: Norm to which :meth:`optimizer_step` clips the gradient; 0: no clipping.
        losses: Mean loss of each objective on the batches of this step, by name: scalars without
            graph, on the encoder's device. Filled by :meth:`backward`, :meth:`gradients` and
            :meth:`micro_gradients`; ``"validation"`` is added by the methods that compute it.
        isolated: Auxiliary tasks whose changes of the primary batch are left out in this step: the
            primary task is trained on its own texts. A weighting may set it; none at first.
        members: The objectives that tasks are made of, where a task is made of several.
    """

    names: tuple[str, ...]
    number: int
    seed: int
    total_steps: int
    parameters: list[nn.Parameter]
    placements: tuple[Placement, ...]
    model: nn.Module
    optimizer: torch.optim.Optimizer
    max_grad_norm: float
    losses: dict[str, Tensor]
    isolated: frozenset[str]
    members: Members

    def backward(self, weights: Sequence[float] | Tensor) -> None:
        """Add the gradient of the weighted sum of the losses to ``.grad``.

        The cheapest way to train when the weights are known before the step: it keeps no gradient
        of single objectives. One of weight 0 is computed, as it may change the texts of the primary
        task, but not trained on. If it is :attr:`isolated` as well, it is left out: it costs
        nothing, and :attr:`losses` has no entry for it.
        """

    def gradients(self) -> list[Gradient]:
        """Return the unweighted gradient of each objective; ``.grad`` stays empty."""

    def micro_gradients(self, apart: bool = False) -> Iterator[list[Gradient]]:
        """Yield the gradient of each objective on one micro-batch after another.

        Over the micro-batches of a step the gradients of an objective sum to what :meth:`gradients`
        returns. ``apart``: yield those of :meth:`Members.parts
        <auxlearn.weighting.base.Members.parts>`.
        """

    def validation_gradient(self, index: int = 0, batches: int = 1) -> Gradient:
        """Return the gradient of the mean validation loss at the current parameters.

        Dropout is off. The validation loss is recorded as ``losses["validation"]``.

        Args:
            index: First of the step's validation batches to use. A step has as many as gradient
                accumulation has micro-batches, or :attr:`Weighting.validation_batches` if those
                are more.
            batches: Number of consecutive validation batches that the mean is over.

        Raises:
            RuntimeError: The weighting has no validation examples; see
                :attr:`Weighting.validation_source`.
        """

    @property
    def constant_validation_loss(self) -> float:
        """Validation loss of the best prediction that is the same for every example.

        Raises:
            RuntimeError: As of :meth:`validation_gradient`.
        """

    def optimizer_step(self) -> None:
        """Clip the gradient in ``.grad``, step the optimizer, and clear ``.grad``."""

    def functional_losses(self, model: nn.Module, lookahead: int) -> Tensor:
        """Return the loss of each objective, ``(objectives,)``, computed by a copy of ``model``, as
        ``higher`` makes them, on the batches of the step that is ``lookahead`` steps later.
        """

    def functional_validation_loss(self, model: nn.Module, batches: int = 1) -> Tensor:
        """Return the mean of the validation loss over batches by a copy of ``model``, a scalar with
        graph; dropout is off.
        """

    def summed(self, gradient: Gradient, like: Sequence[Tensor]) -> Gradient:
        """Return the sum of a gradient over the processes that train together, with its graph.

        Of several processes each computes a part of the functional losses and of the functional
        validation loss; a rule that differentiates them itself sums the gradients. Entries of
        ``like``, what it is a gradient of, that do not require a gradient have none.
        """

    def learning_rates(self, lookahead: int) -> list[float]:
        """Return each parameter group's learning rate in the step ``lookahead`` steps later."""

    def twice_differentiable(self) -> AbstractContextManager[None]:
        """Return a context in which the model only uses kernels that have a second derivative."""


class ValidationOptions(Described):
    """Settings of every rule that learns from validation examples."""

    split: str = "dev"
    """Examples that drive the weights: dev, train:SHARE to hold out a share of train, or a file of
    labelled examples."""

    batch_size: int | None = Field(None, ge=1)
    """Validation examples per optimizer step; by default the training batch size."""

    @field_validator("split")
    @classmethod
    def _check_split(cls, split: str) -> str:
        ValidationSource.parse(split)
        return split


class Weighting(nn.Module, ABC):
    """A rule that combines the objectives of a step.

    Args:
        options: The rule's options, an instance of :attr:`Options`.
        objectives: Names of the objectives, the primary task first.

    Attributes:
        name: The registered name.
        Options: Class of the rule's options. Command line, YAML files and ``auxlearn list`` show
            its fields with their descriptions.
        attends_to_padding: Whether the attention mask is left out in training, so that padding is
            attended to. Only for reproducing released code that does so.
        follows_metric: Whether the validation loss is the differentiable surrogate of the metric
            that selects the checkpoint: one minus smooth accuracy, or one minus smooth macro-F1 on
            class-balanced batches. If not, it is the cross-entropy on uniformly drawn batches.
        clips_apart: Whether the gradient of the classification head is clipped to
            :attr:`TrainingStep.max_grad_norm` separately from the gradient of all other parameters,
            instead of both together.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Settings]] = Settings
    attends_to_padding: ClassVar[bool] = False
    follows_metric: ClassVar[bool] = True
    clips_apart: ClassVar[bool] = False

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__()
        self.options = options
        self.objectives = tuple(objectives)
        self._metrics: dict[str, float] = {}

    @property
    def validation_source(self) -> ValidationSource | None:
        """Which examples the rule learns from; ``None`` for a rule that needs none."""
        if isinstance(self.options, ValidationOptions):
            return ValidationSource.parse(self.options.split)
        return None

    @property
    def branches(self) -> Branches | None:
        """How whole runs are compared; ``None`` for a rule whose weights belong to one run."""
        return None

    @property
    def dev_head(self) -> DevHead:
        """Classification head that the validation loss is computed with."""
        return "own"

    @property
    def validation_batches(self) -> int:
        """Number of validation batches that the rule uses in a step."""
        return 1

    def validation_batch_size(self, batch_size: int) -> int:
        """Return the number of examples of a validation batch, given that of training."""
        size = self.options.batch_size if isinstance(self.options, ValidationOptions) else None
        return size or batch_size

    @property
    def differentiates_twice(self) -> bool:
        """Whether the rule differentiates optimizer steps through the encoder."""
        return False

    @property
    @abstractmethod
    def weights(self) -> Tensor:
        """Current weight of each objective, ``(objectives,)``, float64, on the CPU.

        Recorded in ``metrics.jsonl`` as ``weight/NAME``.
        """

    @abstractmethod
    def step(self, step: TrainingStep) -> None:
        """Make one optimizer step.

        ``step`` gives the gradients, and makes the step by :meth:`~TrainingStep.optimizer_step`,
        which is to be called exactly once unless the rule documents otherwise.
        """

    def metrics(self) -> dict[str, float]:
        """Return further metrics of the last step for ``metrics.jsonl``: those in ``_metrics``."""
        return self._metrics

    def account(
        self, rows: Sequence[Mapping[str, Any]], exported: int, steps: int
    ) -> dict[str, str]:
        """Return why the weight of each auxiliary task is what it is, a sentence without a full
        stop by task; nothing by default. ``rows`` are entries of ``metrics.jsonl``, ``exported`` is
        the step of the exported checkpoint, ``steps`` how many were planned.
        """
        return {}


class KeptWeights(Weighting):
    """A rule that keeps the weights of its last step, 1 each before the first.

    Attributes:
        current: These weights, ``(objectives,)``, float64, on the CPU; a subclass sets them.
    """

    current: Tensor

    def __init__(self, options: Settings, objectives: Sequence[str]) -> None:
        super().__init__(options, objectives)
        self.register_buffer("current", torch.ones(len(self.objectives), dtype=torch.float64))

    @property
    def weights(self) -> Tensor:
        """Weights of the last step, or those that hold until the next."""
        return self.current.clone()


def apply_gradient(step: TrainingStep, gradient: Gradient) -> None:
    """Make the optimizer step with a gradient, which becomes ``.grad`` of the parameters."""
    for parameter, grad in zip(step.parameters, gradient, strict=True):
        parameter.grad = grad
    step.optimizer_step()


def losses_of(step: TrainingStep) -> Tensor:
    """Return the losses of the objectives, ``(objectives,)``, float64, on the CPU."""
    return gather_scalars([step.losses[name] for name in step.names])
