"""One update step's objectives: their losses, their gradients, the validation gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from itertools import zip_longest

import torch
from torch import Tensor, nn

from auxlearn import streams
from auxlearn.data.batches import Batch, BatchStream
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.results.perturbations import PerturbationLog
from auxlearn.tasks.base import AuxiliaryTask, TaskResult
from auxlearn.training.optimization import LinearSchedule
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.base import Gradient


@dataclass(frozen=True)
class Auxiliary:
    """An auxiliary task of a run: its name there, the task, and its batches if it draws its own."""

    name: str
    task: AuxiliaryTask
    stream: BatchStream | None


class Objectives:
    """The :class:`~auxlearn.weighting.base.Problem` that a weighting is given in each step.

    Auxiliary objectives are computed before the primary one, because a task may change what the
    primary task is trained on. One objective's graph lives at a time. Every objective draws its
    dropout masks and its corruption from a stream of its own.

    Args:
        encoder: The shared encoder, on its device.
        auxiliaries: The auxiliary tasks.
        primary: Batches of the primary task.
        optimizer: Steps the parameters.
        schedule: Sets the learning rate of each step.
        seed: The run's seed.
        accumulation: Parts that each batch is cut into.
        clip_norm: Largest norm of the gradient; 0: no limit.
        validation: What the weighting learns from, if it does.
        autocast: Gives the context that forward passes run in.
        log: Keeps what a task puts into the text of the primary task.
    """

    def __init__(
        self,
        encoder: SharedEncoder,
        auxiliaries: Sequence[Auxiliary],
        primary: BatchStream,
        optimizer: torch.optim.Optimizer,
        schedule: LinearSchedule,
        seed: int,
        accumulation: int,
        clip_norm: float,
        validation: ValidationObjective | None,
        autocast: Callable[[], AbstractContextManager[None]],
        log: PerturbationLog | None = None,
    ) -> None:
        self.encoder = encoder
        self.auxiliaries = tuple(auxiliaries)
        self.primary = primary
        self.optimizer = optimizer
        self.schedule = schedule
        self.seed = seed
        self.accumulation = accumulation
        self.clip_norm = clip_norm
        self.validation = validation
        self.autocast = autocast
        self.log = log
        self.names = ("primary", *(auxiliary.name for auxiliary in self.auxiliaries))
        self.parameters = [p for p in encoder.parameters() if p.requires_grad]
        self.losses: dict[str, Tensor] = {}
        self.step = 0

    def begin(self, step: int) -> None:
        """Turn to the batches and the learning rate of a step."""
        self.step = step
        self.schedule.apply(step)
        self.losses = {}

    def backward(self, weights: Sequence[float] | Tensor) -> None:
        """Add the weighted gradients to ``.grad``; an objective of weight zero is only measured."""
        values = [float(weight) for weight in weights]
        for index, loss in self._losses():
            if values[index] != 0:
                (values[index] * loss).backward()

    def gradients(self) -> list[Gradient]:
        """Return each objective's own gradient."""
        totals: list[Gradient] = [[None] * len(self.parameters) for _ in self.names]
        for index, loss in self._losses():
            found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
            totals[index] = [
                new if old is None else (old if new is None else old.add_(new))
                for old, new in zip(totals[index], found, strict=True)
            ]
        return totals

    def validation_gradient(self) -> Gradient:
        """Return the gradient of the validation objective, dropout off."""
        if self.validation is None:
            raise RuntimeError("this run has no validation objective")
        with self.encoder.evaluating(), self.autocast():
            loss = self.validation.loss(self.encoder, self.step)
        self.losses["validation"] = loss.detach()
        return list(torch.autograd.grad(loss, self.parameters, allow_unused=True))

    def update(self) -> None:
        """Clip, step the optimizer, and clear the gradients."""
        if self.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _losses(self) -> Iterator[tuple[int, Tensor]]:
        """Yield ``(objective, loss)`` with a graph, part by part; parts of a batch sum to it."""
        batch = self.primary.batch(self.step)
        given = [a.stream.batch(self.step) if a.stream else None for a in self.auxiliaries]
        cuts = [cut(whole, self.accumulation) if whole else [] for whole in (batch, *given)]
        # The last batch of an epoch is short, and may fall into fewer parts than another's batch.
        for part, (primary, *pieces) in enumerate(zip_longest(*cuts)):
            share = len(primary) / len(batch) if primary else 0.0
            for index, auxiliary in enumerate(self.auxiliaries, start=1):
                own, whole = pieces[index - 1], given[index - 1]
                used = own if whole else primary
                if used is None:
                    continue
                with self._draws(auxiliary.name, part):
                    result = auxiliary.task.loss(
                        self.encoder,
                        used,
                        streams.generator(self.seed, auxiliary.name, "draws", self.step, part),
                    )
                if isinstance(result, TaskResult):
                    self._note(auxiliary.name, used, result)
                    primary = result.primary or primary
                    result = result.loss
                own_share = len(own) / len(whole) if whole else share
                yield index, self._count(auxiliary.name, result * own_share)
            if primary is None:
                continue
            assert primary.labels is not None, "the primary task is trained on labelled rows"
            with self._draws("primary", part):
                logits = self.encoder.classify(primary)
                labels = primary.labels.to(logits.device, non_blocking=True)
                loss = nn.functional.cross_entropy(logits, labels)
            yield 0, self._count("primary", loss * share)

    def _note(self, name: str, given: Batch, result: TaskResult) -> None:
        if self.log is None or result.primary is None or result.replaced is None:
            return
        epoch = self.step // self.primary.steps_per_epoch + 1
        self.log.note(self.step + 1, epoch, name, given, result.primary, result.replaced)

    @contextmanager
    def _draws(self, name: str, part: int) -> Iterator[None]:
        """Seed dropout for one objective and one part, within the autocast context."""
        seeded = streams.seeded(
            self.seed, name, "dropout", self.step, part, device=self.encoder.device
        )
        with seeded, self.autocast():
            yield

    def _count(self, name: str, loss: Tensor) -> Tensor:
        known = self.losses.get(name)
        self.losses[name] = loss.detach() if known is None else known + loss.detach()
        return loss


def cut(batch: Batch, parts: int) -> list[Batch]:
    """Cut a batch into at most ``parts`` parts of nearly equal numbers of rows."""
    if parts == 1:
        return [batch]
    size = -(-len(batch) // parts)
    return [
        replace(
            batch,
            **{
                field.name: value[start : start + size]
                for field in fields(batch)
                if (value := getattr(batch, field.name)) is not None
            },
        )
        for start in range(0, len(batch), size)
    ]
