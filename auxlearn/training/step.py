"""One optimizer step of a run: losses, gradients and the validation gradient of its objectives."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.metric_names import VALIDATION
from auxlearn.core.processes import ALONE, Processes
from auxlearn.data.batches import Batch, BatchStream
from auxlearn.encoders.optimizer import NO_SCALER, Schedule, clipped_step, unscaled
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.losses.base import PrimaryLoss
from auxlearn.objectives.base import Objective
from auxlearn.results.perturbation_log import PerturbationLog
from auxlearn.tasks.base import TaskResult
from auxlearn.training.gradient_log import (
    GradientLog,
    compare_gradients,
    copy_gradient,
    keeping_state,
)
from auxlearn.training.plugin_checks import (
    calling,
    check_frozen,
    check_loss,
    check_result,
    check_sampled,
    check_trained,
)
from auxlearn.training.sums import (
    ObjectiveSums,
    Observed,
    add_gradient,
    sum_gradient,
    sum_with_graph,
    summed_grad,
)
from auxlearn.training.terms import (
    Auxiliary,
    Term,
    placements_of,
    primary_shares,
    seen_whole,
    split_batch,
)
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.base import Members
from auxlearn.weighting.gradients import Gradient, shared_gradient

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class RunStep:
    """The :class:`~auxlearn.weighting.base.TrainingStep` that the weighting of a run receives.

    Auxiliary objectives come before the primary one, whose examples a task may change. Only one
    autograd graph is alive at a time. Processes divide the micro-batches among them; what they find
    is summed before anyone uses it, so that all have what one process alone would have.
    """

    encoder: SharedEncoder
    primary: BatchStream
    primary_loss: PrimaryLoss
    auxiliaries: Sequence[Auxiliary]
    schedule: Schedule
    seed: int = 0
    gradient_accumulation_steps: int = 1  # micro-batches of a batch
    max_grad_norm: float = 1.0  # 0: no clipping
    clip_head_separately: bool = False  # the classification head's gradient, from all others
    attends_to_padding: bool = False  # as some released code does
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext  # of forward passes
    scaler: torch.amp.GradScaler = NO_SCALER  # of half precision
    validation: ValidationObjective | None = None
    perturbation_log: PerturbationLog | None = None
    gradient_log: GradientLog | None = None
    processes: Processes = ALONE

    def __post_init__(self) -> None:
        encoder = self.encoder
        self.model: nn.Module = encoder
        self.optimizer = self.schedule.optimizer
        # What was measured of the gradients of this step, by key of ``metrics.jsonl``.
        self.gradient_metrics: dict[str, Tensor] = {}
        self.names = ("primary", *(auxiliary.name for auxiliary in self.auxiliaries))
        self.parameters = [p for p in encoder.parameters() if p.requires_grad]
        self.placements = placements_of(encoder, self.parameters)
        self.losses: dict[str, Tensor] = {}
        self.isolated: frozenset[str] = frozenset()
        members = {
            auxiliary.name: auxiliary.task.members
            for auxiliary in self.auxiliaries
            if auxiliary.task.members
        }
        self.members = Members(members)
        self.number = 0
        self.total_steps = self.schedule.total
        # Number, from 1, and weights of the first step with a weight that is no number.
        self.unusable: tuple[int, dict[str, float]] | None = None
        self._warned_about_attention = False
        # Every training changes it, the bias of the classification head as a rule.
        self._least = min(self.parameters, key=Tensor.numel)
        self._least_before = self._least.tolist()
        self._stepped = False
        self._checked: set[str] = set()
        self._observed = Observed(encoder)

    def train_primary_only(self, schedule: Schedule) -> None:
        """Drop the auxiliary tasks and continue with another optimizer and schedule."""
        self.auxiliaries, self.names, self.members = (), ("primary",), Members({})
        self.optimizer, self.schedule = schedule.optimizer, schedule

    def begin(self, step: int) -> None:
        """Select the batches and the learning rate of a step (counted from 0)."""
        self.number = step
        self.schedule.apply(step)
        self.isolated = frozenset()
        self.losses = {}
        self.gradient_metrics = {}
        sampled = {}
        for auxiliary in self.auxiliaries:
            if auxiliary.task.members:
                with calling(auxiliary.task, "sampled", auxiliary.name):
                    numbers = tuple(auxiliary.task.sampled(step))
                check_sampled(auxiliary.task, auxiliary.name, numbers)
                sampled[auxiliary.name] = numbers
        self.members.begin(sampled)

    def backward(self, weights: Sequence[float] | Tensor) -> None:
        self._measure_apart()
        weight_of = dict(zip(self.names, [float(weight) for weight in weights], strict=True))
        if self.unusable is None and not all(map(math.isfinite, weight_of.values())):
            self.unusable = self.number + 1, weight_of
        without = frozenset(name for name in self.isolated if weight_of[name] == 0)
        terms = self._own_terms(without)
        trained = [term for term in terms if weight_of[term.name] != 0]
        with summed_grad(self.processes, self.parameters) as total:
            for term, loss in self._losses(terms):
                if weight_of[term.name] != 0:
                    weighted = self.scaler.scale(weight_of[term.name] * loss)
                    whole = total if term is trained[-1] else None
                    sending = whole.sending(weighted, self.parameters) if whole else nullcontext()
                    with self._calling(term, "the backward pass of loss"), sending:
                        weighted.backward()
                    del weighted
                del loss  # frees the graph before the next one is built
        gradients = unscaled(self.scaler, [parameter.grad for parameter in self.parameters])
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._finish_pass(without)

    def gradients(self) -> list[Gradient]:
        totals = self._summed_gradients()
        self._measure(totals)
        return totals

    def micro_gradients(self, apart: bool = False) -> Iterator[list[Gradient]]:
        totals = self._no_gradients(len(self.names))
        for gradients in self._every_micro_batch(apart):
            if self._measures:  # on copies: the caller may change what is yielded
                joined = self.members.joined(self.names, gradients) if apart else gradients
                for total, gradient in zip(totals, joined, strict=True):
                    add_gradient(total, copy_gradient(gradient))
            yield gradients
        self._finish_pass()
        self._measure(totals)

    def _every_micro_batch(self, apart: bool) -> Iterator[list[Gradient]]:
        """Yield the gradients of all micro-batches, those of other processes too."""
        terms = self._terms(self.number)
        mine = [term for term in terms if self.processes.owns(term.micro_batch)]
        computed = self._micro_gradients(mine, apart)
        if self.processes.count == 1:
            yield from computed
            return
        latest = none = self._no_gradients(len(self._parts(apart)))
        for number in range(terms[-1].micro_batch + 1):
            if number % self.processes.count == 0:
                latest = next(computed, none)  # each computes one of its own before any is sent
            addends = latest if self.processes.owns(number) else none
            yield [sum_gradient(self.processes, gradient, self.parameters) for gradient in addends]

    def _micro_gradients(self, terms: Sequence[Term], apart: bool) -> Iterator[list[Gradient]]:
        """Yield the gradients of this process's own micro-batches."""
        parts = self._parts(apart)
        for _, losses in groupby(
            self._losses(terms, apart=apart), key=lambda pair: pair[0].micro_batch
        ):
            gradients = dict(zip(parts, self._no_gradients(len(parts)), strict=True))
            for term, loss in losses:
                shared = term.member is not None  # with the graph of other members
                gradients[term.name, term.member] = self._gradient(term, loss, shared)
                del loss  # frees the graph before the next one is built
            yield list(gradients.values())

    def _parts(self, apart: bool) -> list[tuple[str, int | None]]:
        return self.members.parts(self.names) if apart else [(name, None) for name in self.names]

    def _no_gradients(self, count: int) -> list[Gradient]:
        return [[None] * len(self.parameters) for _ in range(count)]

    def _summed_gradients(self) -> list[Gradient]:
        """Return each objective's sum; complete ones are summed while others are computed."""
        terms = self._own_terms()
        order = [*self.names[1:], self.names[0]]  # that of the terms
        counts = Counter(term.name for term in terms)
        sums = ObjectiveSums(self.processes, self.parameters, order, counts)
        for term, loss in self._losses(terms):
            sums.add(term.name, self._gradient(term, loss))
            del loss
        self._finish_pass()
        return [sums.receive(name) for name in self.names]

    def _gradient(self, term: Term, loss: Tensor, retain: bool = False) -> Gradient:
        with self._calling(term, "the backward pass of loss"):
            return self._gradient_by(loss, retain)

    def _gradient_by(self, loss: Tensor, retain: bool = False) -> Gradient:
        scaled, parameters = self.scaler.scale(loss), self.parameters
        gradients = torch.autograd.grad(scaled, parameters, allow_unused=True, retain_graph=retain)
        return [*unscaled(self.scaler, gradients)]

    def _calling(
        self, term: Term, method: str, batch: Batch | None = None
    ) -> AbstractContextManager[None]:
        """Return a context in which a fault is that of a term's objective."""
        if term.auxiliary is None:
            return calling(self.primary_loss, method, inputs=batch)
        return calling(term.auxiliary.task, method, term.name, batch)

    def _finish_pass(self, without: frozenset[str] = frozenset()) -> None:
        """Sum the losses of a pass over all processes, and show tasks what they watch."""
        if self.processes.count > 1:
            names = [name for name in self.names if name not in without]
            none = self.parameters[0].new_zeros(())
            totals = torch.stack([self.losses.get(name, none).to(none) for name in names])
            self.processes.add(totals)
            self.losses |= dict(zip(names, totals, strict=True))
        if self._watching and torch.is_grad_enabled():
            for ids, gradients in self._observed.of_whole_batches(self.processes):
                for auxiliary in self._watching:
                    with calling(auxiliary.task, "observe_primary", auxiliary.name):
                        auxiliary.task.observe_primary(ids, gradients)

    @property
    def _measures(self) -> bool:
        """Whether the gradients of this step are still to be measured."""
        log = self.gradient_log
        return (
            log is not None
            and (self.number + 1) % log.every == 0
            and not self.gradient_metrics
            and (len(self.names) > 1 or log.validation is not None)
        )

    def _measure(self, gradients: Sequence[Gradient]) -> None:
        if not self._measures:
            return
        assert self.gradient_log is not None
        names, compared = list(self.names), list(gradients)
        if self.gradient_log.validation is not None:
            names.append(VALIDATION)
            compared.append(self._gradient_of(self.gradient_log.validation)[0])
        shared = [shared_gradient(gradient, self.placements) for gradient in compared]
        measured = compare_gradients(names, shared)
        self.gradient_metrics = {k: value.to(self.encoder.device) for k, value in measured.items()}

    def _measure_apart(self) -> None:
        """Compute the gradients for the measurement alone, if that is due and was asked for."""
        if self._measures and self.gradient_log is not None and self.gradient_log.validation:
            objectives = [self.primary_loss, *(auxiliary.task for auxiliary in self.auxiliaries)]
            with self._unrecorded(), keeping_state(objectives):
                self._measure(self._summed_gradients())

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        """Leave no trace of what the block computes in the losses and logs of the step."""
        losses, log = self.losses, self.perturbation_log
        self.losses, self.perturbation_log = {}, None
        try:
            yield
        finally:
            self.losses, self.perturbation_log = losses, log

    def validation_gradient(self, index: int = 0, batches: int = 1) -> Gradient:
        validation = self._require_validation()
        total, self.losses[VALIDATION] = self._gradient_of(validation, index, batches)
        return total

    @property
    def constant_validation_loss(self) -> float:
        return self._require_validation().constant_loss

    def _gradient_of(
        self, validation: ValidationObjective, index: int = 0, batches: int = 1
    ) -> tuple[Gradient, Tensor]:
        """Return gradient and mean loss of a validation objective, over batches and processes."""
        total: Gradient = [None] * len(self.parameters)
        losses = []
        for part in range(batches):
            with self.encoder.evaluating(), self.autocast():
                place = (self.number, index, batches, part)
                loss = validation.loss(self.encoder, *place, self.processes) / batches
            if loss.requires_grad:
                add_gradient(total, self._gradient_by(loss))
            losses.append(loss.detach())
        total = sum_gradient(self.processes, total, self.parameters)
        return total, torch.stack(losses).sum()

    def functional_losses(self, model: nn.Module, lookahead: int) -> Tensor:
        if not lookahead:
            self._measure_apart()
        totals: dict[str, Tensor | float] = dict.fromkeys(self.names, 0.0)
        terms = self._own_terms(step=self.number + lookahead)
        for term, loss in self._losses(terms, model, lookahead):
            totals[term.name] = totals[term.name] + loss
        if not lookahead:
            self._finish_pass()
        totals["primary"] = totals["primary"] + self._nothing(model)
        return torch.stack([torch.as_tensor(total) for total in totals.values()])

    def functional_validation_loss(self, model: nn.Module, batches: int = 1) -> Tensor:
        validation = self._require_validation()
        assert isinstance(model, SharedEncoder)
        losses = []
        for part in range(batches):
            with model.evaluating(), self.autocast():
                place = (self.number, 0, batches, part)
                losses.append(model(validation.loss, *place, self.processes))
        mean = torch.stack(losses).mean()
        self.losses[VALIDATION] = mean.detach()
        return mean + self._nothing(model)

    def _nothing(self, model: nn.Module) -> Tensor | float:
        """Return a zero with a graph, to a parameter that every primary loss trains."""
        if self.processes.count == 1:
            return 0.0
        placed = zip(self.parameters, self.placements, strict=True)
        head = [parameter for parameter, placement in placed if placement == "primary_head"]
        places = {id(parameter): place for place, parameter in enumerate(self.model.parameters())}
        return 0.0 * list(model.parameters())[places[id(head[-1])]].sum()

    def summed(self, gradient: Gradient, like: Sequence[Tensor]) -> Gradient:
        return sum_with_graph(self.processes, gradient, like)

    def learning_rates(self, lookahead: int) -> list[float]:
        return self.schedule.rates(self.number + lookahead)

    @contextmanager
    def twice_differentiable(self) -> Iterator[None]:
        """Use encoder operations that have a second derivative; log once what changes."""
        with self.encoder.twice_differentiable() as changed:
            if changed and not self._warned_about_attention:
                self._warned_about_attention = True
                logger.info(
                    "optimizer steps are differentiated through the encoder: attention is computed "
                    "unfused there, because the fused kernels have no second derivative"
                )
            yield

    @property
    def has_trained(self) -> bool:
        """Whether an optimizer step was made, or a rule has changed parameters by itself."""
        return self._stepped or self._least.tolist() != self._least_before

    def optimizer_step(self) -> None:
        self._stepped = True
        clipped_step(self.optimizer, self._clipping_groups(), self.max_grad_norm, self.scaler)

    def _clipping_groups(self) -> list[list[nn.Parameter]]:
        if not self.clip_head_separately:
            return [self.parameters]
        placed = list(zip(self.parameters, self.placements, strict=True))
        others = [parameter for parameter, part in placed if part != "primary_head"]
        head = [parameter for parameter, part in placed if part == "primary_head"]
        return [others, head]

    def _require_validation(self) -> ValidationObjective:
        if self.validation is None:
            raise RuntimeError("this run has no validation objective")
        return self.validation

    def _losses(
        self,
        terms: Sequence[Term],
        model: nn.Module | None = None,
        lookahead: int = 0,
        apart: bool = False,
    ) -> Iterator[tuple[Term, Tensor]]:
        """Yield the loss of each term, or of each member (``apart``), with its graph; they sum to
        the mean loss of an objective over the whole batch.
        """
        model, step = self.model if model is None else model, self.number + lookahead
        if not lookahead:
            for name in self.names:  # an earlier pass of this step is replaced
                self.losses.pop(name, None)
            self._observed = Observed(self.encoder)
        substitutes: dict[int, Batch] = {}
        for term in terms:
            batch = term.batch
            if term.shares_primary_batch:
                batch = substitutes.get(term.micro_batch, batch)
            batch = seen_whole(batch) if self.attends_to_padding else batch
            result = self._loss_of(model, batch, step, term)
            if term.name in self.members.weights and not lookahead:
                result = replace(result, loss=self.members.loss(term.name, result.members))
            if result.primary is not None and term.name not in self.isolated:
                substitutes[term.micro_batch] = result.primary
                log, replaced = self.perturbation_log, result.replaced
                if log is not None and replaced is not None and not lookahead:
                    epoch = self.number // self.primary.steps_per_epoch + 1
                    log.add(self.number + 1, epoch, term.name, batch, result.primary, replaced)
            loss, members = result.loss * term.share, dict(result.members) if apart else {}
            del result
            if not lookahead:
                before = self.losses.get(term.name)
                self.losses[term.name] = loss.detach() if before is None else before + loss.detach()
            if members:
                del loss
                for number in list(members):
                    yield replace(term, member=number), members.pop(number) * term.share
            else:
                yield term, loss
                del loss  # frees the graph before the next one is built

    def _own_terms(
        self, without: frozenset[str] = frozenset(), step: int | None = None
    ) -> list[Term]:
        """Return what this process computes of a step, by default of the present one."""
        terms = self._terms(self.number if step is None else step, without)
        return [term for term in terms if self.processes.owns(term.micro_batch)]

    def _terms(self, step: int, without: frozenset[str] = frozenset()) -> list[Term]:
        """Return what a step computes, by micro-batch, the primary task last."""
        whole, count = self.primary.batch(step), self.gradient_accumulation_steps
        primary = split_batch(whole, count)
        batches: list[tuple[Auxiliary | None, list[Batch], list[float]]] = []
        for auxiliary in self.auxiliaries:
            if auxiliary.name in without:
                continue
            with calling(auxiliary.task, "begin_step", auxiliary.name):
                auxiliary.task.begin_step(step, self.total_steps)
            stream = auxiliary.stream
            parts = primary if stream is None else split_batch(stream.batch(step), count)
            batches.append((auxiliary, parts, self._shares(auxiliary, parts, step)))
        batches.append((None, primary, primary_shares(self.encoder.kind, whole, primary)))
        return [
            Term(number, auxiliary, micro_batches[number], shares[number])
            for number in range(max(len(micro_batches) for _, micro_batches, _ in batches))
            for auxiliary, micro_batches, shares in batches
            if number < len(micro_batches)
        ]

    def _shares(self, auxiliary: Auxiliary, batches: Sequence[Batch], step: int) -> list[float]:
        """Return the weight of each micro-batch's mean loss in the mean loss of the batch."""
        if len(batches) == 1:
            return [1.0]
        seen = map(seen_whole, batches) if self.attends_to_padding else batches
        with calling(auxiliary.task, "items", auxiliary.name):
            items = [
                int(auxiliary.task.items(batch, self._generator(auxiliary.name, step, number)))
                for number, batch in enumerate(seen)
            ]
            if min(items) < 0:
                raise ValueError(f"a number of items is at least 0, not {min(items)}")
        return [count / max(1, sum(items)) for count in items]

    def _loss_of(self, model: nn.Module, batch: Batch, step: int, term: Term) -> TaskResult:
        """Return the mean loss of an objective, and what it changes in the primary batch."""
        task, name, number = term.auxiliary, term.name, term.micro_batch
        objective: Objective = self.primary_loss if task is None else task.task
        generator = self._generator(name, step, number)
        watched = task is None and self._watching
        with (
            self._calling(term, "loss", batch),
            rng.seeded(self.seed, name, "dropout", step, number, device=self.encoder.device),
            self.autocast(),
            self._observed.watched(number) if watched else nullcontext(),
        ):
            returned = model(objective.loss, batch, generator)
        result = returned if task and isinstance(returned, TaskResult) else TaskResult(returned)
        if task is not None:
            check_result(objective, name, result, batch)
        if task is None and type(objective).__module__.startswith("auxlearn."):
            check_loss(self.encoder.kind, self.encoder.kind.name, result.loss)  # which computes it
        else:
            check_loss(objective, name, result.loss)
        if name not in self._checked and torch.is_grad_enabled():  # once per process
            self._checked.add(name)
            trained = {id(parameter) for parameter in model.parameters()}
            check_trained(name, objective, result.loss, trained)
            check_frozen(objective, name, self.parameters)
        return result

    @property
    def _watching(self) -> list[Auxiliary]:
        """Tasks that ask for the gradient of the primary loss at each token."""
        return [auxiliary for auxiliary in self.auxiliaries if auxiliary.task.watches_primary]

    def _generator(self, name: str, step: int, micro_batch: int) -> torch.Generator:
        """Return the generator of an objective, in the same state at every call."""
        return rng.generator(self.seed, name, "draws", step, micro_batch)
