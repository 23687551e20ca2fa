"""The training loop: optimizer steps, evaluations, early stopping, checkpoints."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from pydantic import TypeAdapter
from torch import Tensor

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import Interrupted, TrainingDiverged
from auxlearn.core.metric_names import Quantity
from auxlearn.core.processes import ALONE, Processes
from auxlearn.core.progress import Reporter
from auxlearn.core.signals import StopRequest
from auxlearn.encoders.optimizer import Schedule, run_optimizer
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.kinds.metrics import sign
from auxlearn.results.folder import RunFolder, append_jsonl, truncate_jsonl
from auxlearn.training.checkpoint import (
    CheckpointFolder,
    EndedBy,
    TrainingState,
    check_tensors,
    load_optimizer_tensors,
)
from auxlearn.training.plugin_checks import (
    calling,
    check_stepped,
    check_weights,
    numbers_of,
    state_of,
)
from auxlearn.training.step import RunStep
from auxlearn.weighting.base import Weighting
from auxlearn.weighting.state import optimizer_tensors

#: Optimizer steps between two logged losses and weights; reading a loss synchronises with a GPU.
LOG_EVERY = 10


@dataclass(eq=False)
class Loop(ABC):
    """Optimizer steps from the latest checkpoint to the last one, which may end early. Of several
    processes the leader reads and writes checkpoints.
    """

    title: ClassVar[str] = "training"

    encoder: SharedEncoder
    checkpoints: CheckpointFolder
    total_steps: int
    reporter: Reporter
    processes: Processes = ALONE

    def __post_init__(self) -> None:
        self.state = TrainingState()
        self._started = 0.0

    @property
    def stopped_early(self) -> bool:
        """Whether the training ends before its last step."""
        return False

    @abstractmethod
    def run_step(self) -> None:
        """Make one optimizer step."""

    @abstractmethod
    def after_step(self) -> None:
        """Log, evaluate and save what is due after a step."""

    @abstractmethod
    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return what a checkpoint holds beside the encoder, by group."""

    @abstractmethod
    def restore(self, tensors: Mapping[str, dict[str, Tensor]]) -> None:
        """Restore what :meth:`tensors` returned; ``state`` and encoder are restored before."""

    def resume(self) -> bool:
        """Restore the latest checkpoint, if there is one; return whether there is."""
        checkpoint = self._shared_checkpoint()
        if checkpoint is None:
            return False
        self.state, tensors = checkpoint
        check_tensors("the encoder", self.encoder.tensors(), tensors["encoder"])
        self.encoder.load_tensors(tensors["encoder"])
        self.restore(tensors)
        self.reporter.message(f"resumed from step {self.state.step} of {self.total_steps}")
        return True

    def _shared_checkpoint(self) -> tuple[TrainingState, dict[str, dict[str, Tensor]]] | None:
        """Return the latest checkpoint in all processes, or ``None`` if there is none."""
        checkpoint = self.checkpoints.load() if self.processes.leads else None
        if self.processes.count == 1:
            return checkpoint
        state = self.processes.share(None if checkpoint is None else asdict(checkpoint[0]))
        if state is None:
            return None
        tensors = self.processes.share_tensors(None if checkpoint is None else checkpoint[1])
        return TypeAdapter(TrainingState).validate_python(state), tensors

    def save(self) -> None:
        self.state.seconds = time.perf_counter() - self._started
        self.checkpoints.save(self.state, {"encoder": self.encoder.tensors(), **self.tensors()})

    def train(self, stop: StopRequest) -> None:
        """Train to the last step, or until a signal asks to stop."""
        before = self.state.step
        with self.reporter.progress_of_rest(self.title, self.total_steps, before) as advance:
            self.encoder.train()
            while self.state.step < self.total_steps and not self.stopped_early:
                self.run_step()
                advance(1)
                self.after_step()
                if self.processes.any(stop.requested):
                    self.save()
                    self.processes.share()  # the others wait until it is written
                    raise Interrupted(
                        f"stopped at step {self.state.step} of {self.total_steps}: "
                        "run the same command again to resume"
                    )


@dataclass(eq=False, kw_only=True)
class TrainingLoop(Loop):
    """Trains until all epochs are done or the dev metric has stopped improving."""

    config: RunConfig
    folder: RunFolder
    training_step: RunStep
    weighting: Weighting
    evaluate: Callable[[], dict[str, float]]  # on dev
    baseline: float  # the metric of a constant prediction

    def __post_init__(self) -> None:
        super().__post_init__()
        step = self.training_step
        self.steps_per_epoch = step.primary.steps_per_epoch
        self._auxiliaries = step.auxiliaries  # the primary-only phase drops them there
        self.state.micro_batches = step.gradient_accumulation_steps
        self.eval_steps = self.config.eval_steps or self.steps_per_epoch
        # What was measured in the latest steps, on the device, and in earlier ones, as numbers.
        self._latest: list[tuple[int, dict[str, Tensor]]] = []
        self._read: list[tuple[int, dict[str, float]]] = []

    @property
    def stopped_early(self) -> bool:
        """Whether patience ran out before the last step of the present phase."""
        config = self.config
        patience = config.final_patience if self.in_primary_only_phase else config.patience
        exhausted = 0 < patience <= self.state.evaluations_since_best
        return exhausted and self.state.step < self.total_steps

    @property
    def ended_by(self) -> EndedBy:
        return "patience" if self.stopped_early else "epochs"

    @property
    def in_primary_only_phase(self) -> bool:
        """Whether the primary task is trained alone, after training with all objectives."""
        return self.state.primary_only_from >= 0

    def run(self) -> TrainingState:
        """Train to the end and load the weights of the best checkpoint into the encoder."""
        if not self.resume():
            self._drop_records_after(0)
        self._started = time.perf_counter() - self.state.seconds
        with StopRequest() as stop:
            self.train(stop)
            if self.config.final_epochs and not self.in_primary_only_phase:
                self._begin_primary_only_phase()
                self.train(stop)
        self._load_best()
        return self.state

    def evaluate_at(self, tensors: dict[str, dict[str, Tensor]] | None) -> None:
        """Evaluate parameters, given to the leader, as the only checkpoint of the run."""
        self._drop_records_after(0)
        self.encoder.load_tensors(self.processes.share_tensors(tensors)["encoder"])
        self._evaluate()

    def run_step(self) -> None:
        self.training_step.begin(self.state.step)
        if self.in_primary_only_phase:
            self.training_step.backward((1.0,))
            self.training_step.optimizer_step()
        else:
            with calling(self.weighting, "step"):
                self.weighting.step(self.training_step)
            check_stepped(self.weighting, bool(self.training_step.losses), "computes no loss")
        self.state.step += 1
        losses = self.training_step.losses
        measured = {Quantity.LOSS.key(name): loss for name, loss in losses.items()}
        self._latest.append((self.state.step, measured | self.training_step.gradient_metrics))

    def after_step(self) -> None:
        step = self.state.step
        if step % LOG_EVERY == 0:
            self._log()
        if step % self.eval_steps == 0 or step == self.total_steps:
            check_stepped(self.weighting, self.training_step.has_trained, "trains nothing")
            self._evaluate()
            self.save()

    def restore(self, tensors: Mapping[str, dict[str, Tensor]]) -> None:
        self._latest, self._read = [], list(self.state.pending_metrics)
        if self.in_primary_only_phase:
            self._prepare_primary_only_phase()
        load_optimizer_tensors(self.training_step.optimizer, tensors["optimizer"])
        if scaler := tensors.get("scaler"):
            state = {name: value.item() for name, value in scaler.items()}
            self.training_step.scaler.load_state_dict(state)
        with calling(self.weighting, "load_state_dict"):
            self.weighting.load_state_dict(tensors.get("weighting", {}))
        for group, plugin in self._stateful().items():
            with calling(plugin, "load_state_dict"):
                plugin.load_state_dict(tensors.get(group, {}))
        self._drop_records_after(self.state.step)

    def save(self) -> None:
        """Write a checkpoint, with what was measured since the last entry of the log."""
        self._read_latest()
        if self.training_step.perturbation_log is not None:
            self.training_step.perturbation_log.flush(self.processes)
        if self.processes.leads:
            self.state.pending_metrics = list(self._read)
            super().save()

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        optimizer = optimizer_tensors(self.training_step.optimizer)
        scaler = self.training_step.scaler.state_dict()
        groups = {
            "optimizer": optimizer,
            "weighting": state_of(self.weighting),
            "scaler": {name: torch.tensor(value) for name, value in scaler.items()},
        }
        return groups | {group: state_of(plugin) for group, plugin in self._stateful().items()}

    def _stateful(self) -> dict[str, Any]:
        """Return objectives by group of a checkpoint; tasks are evaluated in the last phase too."""
        objectives: dict[str, Any] = {"loss": self.training_step.primary_loss}
        return objectives | {
            f"task-{auxiliary.name}": auxiliary.task for auxiliary in self._auxiliaries
        }

    def task_metrics(self) -> dict[str, dict[str, float]]:
        """Return the metrics of tasks on dev examples of their own; processes divide the tasks."""
        encoder = self.encoder
        with encoder.evaluating(), self.training_step.autocast(), torch.no_grad():
            local = {
                auxiliary.name: numbers_of(auxiliary.task, "evaluate", encoder, name=auxiliary.name)
                for number, auxiliary in enumerate(self._auxiliaries)
                if self.processes.owns(number)
            }
        metrics = {
            name: values for part in self.processes.gather(local) for name, values in part.items()
        }
        return {
            auxiliary.name: metrics[auxiliary.name]
            for auxiliary in self._auxiliaries
            if metrics[auxiliary.name]
        }

    def _load_best(self) -> None:
        best = None
        if self.processes.leads:
            best = {"encoder": self.checkpoints.load_best(self.state.best_step)}
        shared = self.processes.share_tensors(best)
        self.encoder.load_tensors(shared["encoder"])

    def _begin_primary_only_phase(self) -> None:
        """Continue from the best checkpoint with the primary task alone."""
        self._load_best()
        self.state.joint_ended_by = self.ended_by
        self.state.primary_only_from = self.state.step
        self.state.evaluations_since_best = 0
        self._prepare_primary_only_phase()
        self.save()
        self.reporter.message("training the primary task alone")

    def _prepare_primary_only_phase(self) -> None:
        config, start = self.config, self.state.primary_only_from
        steps = config.final_epochs * self.steps_per_epoch
        self.total_steps = start + steps
        rates = {"learning_rate": config.final_learning_rate, "head_learning_rate": None}
        optimizer = run_optimizer(config.model_copy(update=rates), self.encoder)
        self.training_step.train_primary_only(
            Schedule(optimizer, steps, config.warmup_ratio, config.final_schedule, start)
        )

    def _drop_records_after(self, step: int) -> None:
        self.folder.check_lock()
        truncate_jsonl(self.folder.metrics_path, step)
        if self.training_step.perturbation_log is not None:
            self.training_step.perturbation_log.truncate(step)

    def _log(self) -> None:
        """Log the means since the last entry, the weights and the learning rate."""
        self._read_latest()
        if not self._read:
            return
        values_of: dict[str, list[float]] = {}
        for _, measured in self._read:
            for key, value in measured.items():
                if math.isfinite(value):  # gradients may overflow where losses do not
                    values_of.setdefault(key, []).append(value)
        self._read = []
        entry = self._entry("train")
        entry |= {key: sum(values) / len(values) for key, values in values_of.items()}
        if not self.in_primary_only_phase:
            with calling(self.weighting, "weights"):
                weights = self.weighting.weights.tolist()
                entry |= Quantity.WEIGHT.row(self.training_step.names, weights)
            entry |= numbers_of(self.weighting, "metrics")
        entry["learning_rate"] = self.training_step.schedule.rate
        self._write(entry)

    def _evaluate(self) -> None:
        """Evaluate on dev, keep the best weights, and count evaluations without improvement."""
        self._log()
        encoder, state = self.encoder, self.state
        with encoder.evaluating():
            # All have the same predictions, but their libraries may not round alike.
            metrics = self.processes.share(self.evaluate())
        task_metrics = self.task_metrics()
        value = sign(self.config.metric) * metrics[self.config.metric]
        improved = value > state.best_value
        if improved or (value == state.best_value and self._ties_replace):
            state.best_step, state.best_value = state.step, value
            if self.processes.leads:
                self.checkpoints.save_best(state.step, encoder.tensors())
        if improved:
            state.evaluations_since_best = 0
        elif self._patience_counts:
            state.evaluations_since_best += 1
        entry = self._entry("eval") | Quantity.DEV.row(metrics, metrics.values())
        for name, values in task_metrics.items():
            entry |= Quantity.AUX.row([f"{name}/{metric}" for metric in values], values.values())
        self._write(entry)

    @property
    def _ties_replace(self) -> bool:
        """Whether an equal metric replaces the best weights; never those of the joint phase."""
        state = self.state
        replaceable = not self.in_primary_only_phase or state.best_step > state.primary_only_from
        return replaceable and self.config.ties == "later"

    @property
    def _patience_counts(self) -> bool:
        """Whether patience counts: after ``min_epochs``, once dev is above the baseline."""
        state = self.state
        return self.in_primary_only_phase or (
            state.best_value > self.baseline
            and state.step >= self.config.min_epochs * self.steps_per_epoch
        )

    def _entry(self, kind: str) -> dict[str, Any]:
        step = self.state.step
        return {"kind": kind, "step": step, "epoch": step / self.steps_per_epoch}

    def _write(self, entry: dict[str, Any]) -> None:
        self.folder.check_lock()
        append_jsonl(self.folder.metrics_path, [entry])
        self.reporter.log(entry)

    def _read_latest(self) -> None:
        """Convert what was measured in the latest steps to numbers, with one synchronisation."""
        if not self._latest:
            return
        tensors = [value for _, measured in self._latest for value in measured.values()]
        values = iter(torch.stack([tensor.double() for tensor in tensors]).tolist())
        read = [(step, {key: next(values) for key in measured}) for step, measured in self._latest]
        self._read += read
        self._latest = []
        for step, measured in read:
            losses = Quantity.LOSS.read(measured)
            for name, loss in losses.items():
                if not math.isfinite(loss):
                    if step == 1:
                        raise TrainingDiverged(
                            f"the loss of '{name}' is {loss} in its first step, before any "
                            "parameter has changed: correct the objective or its data"
                        )
                    rate = self.training_step.schedule.rate
                    clips = self.config.max_grad_norm > 0
                    clipping = "a smaller --max-grad-norm" if clips else "--max-grad-norm 1"
                    raise TrainingDiverged(
                        f"the loss of '{name}' became {loss} at step {step}, learning rate "
                        f"{rate:.3g}: try a lower --learning-rate or {clipping}"
                    )
            check_weights(self.weighting, step, self.training_step.unusable)
