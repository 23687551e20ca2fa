"""What one optimizer step is made of: auxiliary tasks, one term for each micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from auxlearn.data.batches import Batch, BatchStream
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.base import Kind
from auxlearn.tasks.base import AuxiliaryTask
from auxlearn.weighting.gradients import Placement


@dataclass(frozen=True)
class Auxiliary:
    """An auxiliary task of a run."""

    name: str  # name of the objective in the run
    task: AuxiliaryTask
    stream: BatchStream | None  # its batches; None: those of the primary task


@dataclass(frozen=True)
class Term:
    """One objective on one micro-batch of a step."""

    micro_batch: int  # number of the micro-batch within the step
    auxiliary: Auxiliary | None  # the auxiliary task; None for the primary task
    batch: Batch
    share: float  # weight of the mean loss over batch in the objective's loss of the step
    member: int | None = None  # of the task's members, if their losses are kept apart

    @property
    def name(self) -> str:
        return "primary" if self.auxiliary is None else self.auxiliary.name

    @property
    def shares_primary_batch(self) -> bool:
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
    """Split a batch into at most ``count`` micro-batches, each padded to its own longest text."""
    if count == 1:
        return [batch]
    texts = len(batch.indices)
    size = -(-texts // count)
    return [batch.part(slice(start, start + size)) for start in range(0, texts, size)]


def primary_shares(kind: Kind, whole: Batch, parts: Sequence[Batch]) -> list[float]:
    """Return the weight of each micro-batch: its share of what the loss averages over."""
    return [primary_items(kind, part) / max(1, primary_items(kind, whole)) for part in parts]


def primary_items(kind: Kind, batch: Batch) -> int:
    return len(batch.indices) if batch.targets is None else kind.items(batch.targets)


def seen_whole(batch: Batch) -> Batch:
    """Return a batch with an attention mask that includes padding."""
    return replace(batch, attention_mask=torch.ones_like(batch.attention_mask))
