"""What one optimizer step is made of: auxiliary tasks, settings, one term for each micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import nn

from auxlearn.data.batches import Batch, BatchStream
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.tasks.base import AuxiliaryTask
from auxlearn.weighting.gradients import Placement


@dataclass(frozen=True)
class Auxiliary:
    """An auxiliary task of a run.

    Attributes:
        name: Name of the objective in the run.
        task: The task.
        stream: Its batches; ``None`` for a task that shares the batches of the primary task.
    """

    name: str
    task: AuxiliaryTask
    stream: BatchStream | None


@dataclass(frozen=True)
class StepSettings:
    """Settings of the optimizer steps of a run.

    Attributes:
        seed: The run's seed.
        gradient_accumulation_steps: Gradient accumulation: micro-batches per batch.
        max_grad_norm: Maximum gradient norm; 0 disables clipping.
        clip_head_separately: Clip the gradient of the classification head and that of all other
            parameters separately, each to ``max_grad_norm``.
        attends_to_padding: Let attention include padding tokens, as some released code does.
        autocast: Returns the context of forward passes.
    """

    seed: int
    gradient_accumulation_steps: int = 1
    max_grad_norm: float = 1.0
    clip_head_separately: bool = False
    attends_to_padding: bool = False
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True)
class Term:
    """One objective on one micro-batch of a step.

    Attributes:
        micro_batch: Number of the micro-batch within the step.
        auxiliary: The auxiliary task; ``None`` for the primary task.
        batch: The examples.
        share: Weight of the mean loss over ``batch`` in the objective's loss of the step.
        member: Number of the objective among those that the task is made of, if their losses are
            kept apart.
    """

    micro_batch: int
    auxiliary: Auxiliary | None
    batch: Batch
    share: float
    member: int | None = None

    @property
    def name(self) -> str:
        """Name of the objective."""
        return "primary" if self.auxiliary is None else self.auxiliary.name

    @property
    def shares_primary_batch(self) -> bool:
        """Whether the objective is computed on the examples of the primary task."""
        return self.auxiliary is None or self.auxiliary.stream is None


def placements_of(
    encoder: SharedEncoder, parameters: Sequence[nn.Parameter]
) -> tuple[Placement, ...]:
    """Say whether each parameter is the body's, the classification head's or another head's."""
    body = {id(parameter) for parameter in encoder.body_parameters()}
    primary = {id(parameter) for parameter in encoder.classification_parameters()}
    return tuple(
        "encoder" if id(p) in body else ("primary_head" if id(p) in primary else "other_head")
        for p in parameters
    )


def split_batch(batch: Batch, count: int) -> list[Batch]:
    """Split a batch into at most ``count`` micro-batches of nearly equal numbers of examples.

    Each micro-batch is padded to the longest of its own texts, as a batch of these texts would be.
    """
    if count == 1:
        return [batch]
    texts = len(batch.indices)
    size = -(-texts // count)
    return [batch.part(start, start + size) for start in range(0, texts, size)]
