"""One update step's objectives: their losses, their gradients, the validation gradient."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from itertools import groupby, zip_longest

import torch
from torch import Tensor, nn

from auxlearn import rng
from auxlearn.data.batches import Batch, BatchStream
from auxlearn.devices import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.results.perturbation_log import PerturbationLog
from auxlearn.tasks.base import AuxiliaryTask, TaskResult
from auxlearn.training.optimization import LinearSchedule
from auxlearn.training.reach import check_trained
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.base import Gradient, Part

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Auxiliary:
    """An auxiliary task of a run: its name there, the task, and its batches if it draws its own."""

    name: str
    task: AuxiliaryTask
    stream: BatchStream | None


class RunStep:
    """The :class:`~auxlearn.weighting.base.TrainingStep` that a weighting is given in each step.

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
        gradient_accumulation_steps: Parts that each batch is cut into.
        max_grad_norm: Largest norm of the gradient; 0: no limit.
        validation: What the weighting learns from, if it does.
        autocast: Gives the context that forward passes run in.
        log: Keeps what a task puts into the text of the primary task.
        attends_to_padding: Leave the attention mask out, as some released code does.
        clips_apart: Clip the classification head and all else each to ``max_grad_norm``.
    """

    def __init__(
        self,
        encoder: SharedEncoder,
        auxiliaries: Sequence[Auxiliary],
        primary: BatchStream,
        optimizer: torch.optim.Optimizer,
        schedule: LinearSchedule,
        seed: int,
        gradient_accumulation_steps: int,
        max_grad_norm: float,
        validation: ValidationObjective | None,
        autocast: Callable[[], AbstractContextManager[None]],
        log: PerturbationLog | None = None,
        attends_to_padding: bool = False,
        clips_apart: bool = False,
    ) -> None:
        self.encoder = encoder
        self.model: nn.Module = encoder
        self.auxiliaries = tuple(auxiliaries)
        self.primary = primary
        self.optimizer = optimizer
        self.schedule = schedule
        self.seed = seed
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.max_grad_norm = max_grad_norm
        self.validation = validation
        self.autocast = autocast
        self.log = log
        self.attends_to_padding = attends_to_padding
        self.names = ("primary", *(auxiliary.name for auxiliary in self.auxiliaries))
        self.parameters = [p for p in encoder.parameters() if p.requires_grad]
        self.parts = parts_of(encoder, self.parameters)
        self._clipped_together = [self.parameters]
        if clips_apart:
            placed = list(zip(self.parameters, self.parts, strict=True))
            self._clipped_together = [
                [p for p, part in placed if (part == "primary") == inside]
                for inside in (False, True)
            ]
        self._said = False
        self._checked: set[str] = set()
        self.losses: dict[str, Tensor] = {}
        self.number = 0
        self.total_steps = schedule.total

    def train_primary_alone(
        self, optimizer: torch.optim.Optimizer, schedule: LinearSchedule
    ) -> None:
        """Drop the auxiliary tasks, and go on with another optimizer."""
        self.auxiliaries, self.names = (), ("primary",)
        self.optimizer, self.schedule = optimizer, schedule

    def begin(self, step: int) -> None:
        """Turn to the batches and the learning rate of a step."""
        self.number = step
        self.schedule.apply(step)
        self.losses = {}

    def backward(self, weights: Sequence[float] | Tensor) -> None:
        """Add the weighted gradients to ``.grad``; an objective of weight zero is only measured."""
        values = [float(weight) for weight in weights]
        for _, index, loss in self._losses():
            if values[index] != 0:
                (values[index] * loss).backward()
            del loss  # the graph goes before the next one is built

    def gradients(self) -> list[Gradient]:
        """Return each objective's own gradient."""
        totals: list[Gradient] = [[None] * len(self.parameters) for _ in self.names]
        for gradients in self.micro_gradients():
            for total, gradient in zip(totals, gradients, strict=True):
                _add(total, gradient)
        return totals

    def micro_gradients(self) -> Iterator[list[Gradient]]:
        """Yield each objective's gradient on one part of the batches after another."""
        for _, losses in groupby(self._losses(), key=lambda found: found[0]):
            gradients: list[Gradient] = [[None] * len(self.parameters) for _ in self.names]
            for _, index, loss in losses:
                found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
                gradients[index] = list(found)
                del loss, found  # the graph goes before the next one is built
            yield gradients

    def current_losses(self) -> Tensor:
        """Return each objective's loss on this step's batches at the current parameters."""
        recorded, log = self.losses, self.log
        self.losses, self.log = {}, None
        try:
            with torch.no_grad():
                for _ in self._losses():
                    pass
            return torch.stack([self.losses[name] for name in self.names])
        finally:
            self.losses, self.log = recorded, log

    def validation_gradient(self, draw: int = 0, batches: int = 1) -> Gradient:
        """Return the mean gradient of the validation objective over batches, dropout off."""
        validation = self._validation()
        total: Gradient = [None] * len(self.parameters)
        losses = []
        for number in range(draw, draw + batches):
            with self.encoder.evaluating(), self.autocast():
                loss = validation.loss(self.encoder, self.number, number) / batches
            _add(total, torch.autograd.grad(loss, self.parameters, allow_unused=True))
            losses.append(loss.detach())
        self.losses["validation"] = torch.stack(losses).sum()
        return total

    def functional_losses(self, model: nn.Module, ahead: int) -> Tensor:
        """Return each objective's loss on the batches of a step to come, by a copy of the model."""
        totals: list[Tensor | float] = [0.0] * len(self.names)
        for _, index, loss in self._losses(model, ahead):
            totals[index] = totals[index] + loss
        return torch.stack([torch.as_tensor(total) for total in totals])

    def functional_validation_loss(self, model: nn.Module, batches: int = 1) -> Tensor:
        """Return the mean of the validation objective over batches, computed by a model's copy."""
        validation = self._validation()
        assert isinstance(model, SharedEncoder)
        losses = []
        for number in range(batches):
            with model.evaluating(), self.autocast():
                losses.append(
                    model(lambda encoder, n=number: validation.loss(encoder, self.number, n))
                )
        mean = torch.stack(losses).mean()
        self.losses["validation"] = mean.detach()
        return mean

    def learning_rates(self, ahead: int) -> list[float]:
        """Return the rate of each group of the optimizer at a step to come."""
        return self.schedule.rates(self.number + ahead)

    @contextmanager
    def twice_differentiable(self) -> Iterator[None]:
        """Let the encoder compute in ways that have a second derivative; say so once."""
        with self.encoder.twice_differentiable() as otherwise:
            if otherwise and not self._said:
                self._said = True
                logger.info(
                    "updates are differentiated through the encoder: attention is computed "
                    "unfused there, because the fused kinds have no second derivative"
                )
            yield

    def update(self) -> None:
        """Clip, step the optimizer, and clear the gradients."""
        if self.max_grad_norm:
            for parameters in self._clipped_together:
                nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _validation(self) -> ValidationObjective:
        if self.validation is None:
            raise RuntimeError("this run has no validation objective")
        return self.validation

    def _losses(
        self, model: nn.Module | None = None, ahead: int = 0
    ) -> Iterator[tuple[int, int, Tensor]]:
        """Yield ``(part, objective, loss)`` with a graph; the parts of a batch sum to it.

        Args:
            model: What computes; by default the encoder itself.
            ahead: Updates from this one to the one whose batches are used.
        """
        model, step = self.model if model is None else model, self.number + ahead
        if not ahead:
            for name in self.names:  # what an earlier pass of this step measured is measured again
                self.losses.pop(name, None)
        batch = self.primary.batch(step)
        given = [a.stream.batch(step) if a.stream else None for a in self.auxiliaries]
        cuts = [
            cut(whole, self.gradient_accumulation_steps) if whole else []
            for whole in (batch, *given)
        ]
        shares = [
            self._shares(auxiliary, own or cuts[0], step)
            for auxiliary, own in zip(self.auxiliaries, cuts[1:], strict=True)
        ]
        # The last batch of an epoch is short, and may fall into fewer parts than another's batch.
        for part, (primary, *pieces) in enumerate(zip_longest(*cuts)):
            share = len(primary) / len(batch) if primary else 0.0
            for index, auxiliary in enumerate(self.auxiliaries, start=1):
                used = pieces[index - 1] if given[index - 1] else primary
                if used is None:
                    continue
                used = self._given(used)
                draws = self._generator(auxiliary, step, part)
                with self._draws(auxiliary.name, step, part):
                    result = model(auxiliary.task.loss, used, draws)
                if isinstance(result, TaskResult):
                    if not ahead:
                        self._note(auxiliary.name, used, result)
                    primary = result.primary or primary
                    result = result.loss
                self._check(auxiliary, result, model)
                loss = result * shares[index - 1][part]
                yield part, index, loss if ahead else self._count(auxiliary.name, loss)
                del loss, result  # one graph at a time
            if primary is None:
                continue
            primary = self._given(primary)
            assert primary.labels is not None, "the primary task is trained on labelled rows"
            with self._draws("primary", step, part):
                logits = model("classify", primary)
                labels = upload(primary.labels, logits.device)
                loss = nn.functional.cross_entropy(logits, labels) * share
            yield part, 0, loss if ahead else self._count("primary", loss)
            del loss, logits

    def _shares(self, auxiliary: Auxiliary, parts: Sequence[Batch], step: int) -> list[float]:
        """Return the weight of each part's mean loss in the mean loss of the whole batch."""
        if len(parts) == 1:
            return [1.0]
        items = [
            auxiliary.task.items(self._given(part), self._generator(auxiliary, step, number))
            for number, part in enumerate(parts)
        ]
        return [count / max(1, sum(items)) for count in items]

    def _generator(self, auxiliary: Auxiliary, step: int, part: int) -> torch.Generator:
        """Return what a task draws from in a part of a step, in the same state every time."""
        return rng.generator(self.seed, auxiliary.name, "draws", step, part)

    def _check(self, auxiliary: Auxiliary, loss: Tensor, model: nn.Module) -> None:
        """Look once, in the first step of this process, at what the loss of a task reaches."""
        if auxiliary.name not in self._checked:
            self._checked.add(auxiliary.name)
            trained = {id(parameter) for parameter in model.parameters()}
            check_trained(auxiliary.name, auxiliary.task, loss, trained)

    def _given(self, batch: Batch) -> Batch:
        """Return a batch as the encoder is to see it."""
        if self.attends_to_padding:
            return replace(batch, attention_mask=torch.ones_like(batch.attention_mask))
        return batch

    def _note(self, name: str, given: Batch, result: TaskResult) -> None:
        if self.log is None or result.primary is None or result.replaced is None:
            return
        epoch = self.number // self.primary.steps_per_epoch + 1
        self.log.note(self.number + 1, epoch, name, given, result.primary, result.replaced)

    @contextmanager
    def _draws(self, name: str, step: int, part: int) -> Iterator[None]:
        """Seed dropout for one objective and one part, within the autocast context."""
        seeded = rng.seeded(self.seed, name, "dropout", step, part, device=self.encoder.device)
        with seeded, self.autocast():
            yield

    def _count(self, name: str, loss: Tensor) -> Tensor:
        known = self.losses.get(name)
        self.losses[name] = loss.detach() if known is None else known + loss.detach()
        return loss


def _add(total: Gradient, gradient: Sequence[Tensor | None]) -> None:
    """Add a gradient to a total in place."""
    for place, new in enumerate(gradient):
        old = total[place]
        total[place] = new if old is None else (old if new is None else old.add_(new))


def parts_of(encoder: SharedEncoder, parameters: Sequence[nn.Parameter]) -> tuple[Part, ...]:
    """Say whether each parameter is the body's, the classification head's or another head's."""
    body = {id(parameter) for parameter in encoder.body_parameters()}
    primary = {id(parameter) for parameter in encoder.classification_parameters()}
    return tuple(
        "body" if id(p) in body else ("primary" if id(p) in primary else "other")
        for p in parameters
    )


def cut(batch: Batch, parts: int) -> list[Batch]:
    """Cut a batch into at most ``parts`` parts of nearly equal numbers of rows.

    Each part is padded to the longest of its own texts, as a batch of these texts would be.
    """
    if parts == 1:
        return [batch]
    size = -(-len(batch) // parts)
    return [_rows(batch, slice(start, start + size)) for start in range(0, len(batch), size)]


def _rows(batch: Batch, chosen: slice) -> Batch:
    longest = int(batch.attention_mask[chosen].sum(1).max())
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return replace(
        batch,
        **{
            name: value[chosen] if value.ndim == 1 else value[chosen, :longest]
            for name, value in values.items()
            if value is not None
        },
    )
