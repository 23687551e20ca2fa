"""The training loop: steps, evaluations, early stopping, checkpoints."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from auxlearn.config import RunConfig
from auxlearn.errors import Interrupted, TrainingDiverged
from auxlearn.reporting.reporter import Reporter
from auxlearn.results.folder import RunFolder
from auxlearn.training.checkpoint import (
    CheckpointFolder,
    Progress,
    load_optimizer_tensors,
    optimizer_tensors,
    write_tensors,
)
from auxlearn.training.optimization import (
    ConstantSchedule,
    LinearSchedule,
    optimizer_of_last_stage,
)
from auxlearn.training.step import RunStep
from auxlearn.training.stopping import StopRequest
from auxlearn.weighting.base import Weighting

logger = logging.getLogger(__name__)

#: Steps from one row of losses and weights to the next; looking at a loss makes a GPU wait.
LOG_EVERY = 10


class TrainingLoop:
    """Trains until the epochs are over or the dev metric has stopped rising.

    Args:
        config: The resolved configuration.
        folder: The run folder.
        objectives: What is trained.
        weighting: How it is combined.
        evaluate: Returns figures on dev by name; ``config.metric`` is one of them.
        baseline: ``config.metric`` on dev of always predicting the majority class of train. Early
            stopping waits for the dev metric to leave it.
        reporter: Shows progress.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        objectives: RunStep,
        weighting: Weighting,
        evaluate: Callable[[], dict[str, float]],
        baseline: float,
        reporter: Reporter,
    ) -> None:
        self.config = config
        self.folder = folder
        self.objectives = objectives
        self.weighting = weighting
        self.evaluate = evaluate
        self.baseline = baseline
        self.reporter = reporter
        self.checkpoints = CheckpointFolder(folder.checkpoint_path)
        self.progress = Progress()
        self.steps_per_epoch = objectives.primary.steps_per_epoch
        self.total_steps = config.epochs * self.steps_per_epoch
        self.eval_steps = config.eval_steps or self.steps_per_epoch
        self._losses: list[tuple[int, dict[str, Tensor]]] = []  # of steps, still on the device
        self._read: list[tuple[int, dict[str, float]]] = []  # of earlier steps, as numbers
        self._started = 0.0

    @property
    def stopped_early(self) -> bool:
        """Whether patience ran out in the present stage before its last step."""
        config = self.config
        patience = config.final_patience if self.in_final_stage else config.patience
        return 0 < patience <= self.progress.stale and self.progress.step < self.total_steps

    @property
    def in_final_stage(self) -> bool:
        """Whether the primary task is trained alone, after the run with all objectives."""
        return self.progress.final_from >= 0

    def run(self) -> Progress:
        """Train to the end and put the best weights into the encoder.

        Raises:
            TrainingDiverged: A loss became NaN or infinite.
            Interrupted: The user asked to stop; a checkpoint has been written.
            RunError: The checkpoint is damaged.
        """
        self.resume()
        self._started = time.perf_counter() - self.progress.seconds
        with StopRequest() as stop:
            self._train(stop)
            if self.config.final_epochs and not self.in_final_stage:
                self._load_best()
                self.progress.final_from, self.progress.stale = self.progress.step, 0
                self._enter_final_stage()
                self.save()
                self.reporter.message("training the primary task alone")
                self._train(stop)
        self._load_best()
        return self.progress

    def _train(self, stop: StopRequest) -> None:
        """Train to the end of the present stage."""
        with self.reporter.progress("training", self.total_steps) as advance:
            advance(self.progress.step)
            self.objectives.encoder.train()
            while self.progress.step < self.total_steps and not self.stopped_early:
                self._step()
                advance(1)
                step = self.progress.step
                if step % LOG_EVERY == 0:
                    self._log()
                if step % self.eval_steps == 0 or step == self.total_steps:
                    self._evaluate()
                    self.save()
                if stop.asked:
                    self.save()
                    raise Interrupted(
                        f"stopped at step {step} of {self.total_steps}: "
                        "the same command goes on from there"
                    )

    def _load_best(self) -> None:
        path = self.checkpoints.best_path(self.progress.best_step)
        self.objectives.encoder.load_tensors(load_file(path))

    def _enter_final_stage(self) -> None:
        config, objectives = self.config, self.objectives
        steps = config.final_epochs * self.steps_per_epoch
        self.total_steps = self.progress.final_from + steps
        optimizer = optimizer_of_last_stage(config, objectives.encoder)
        schedule = (
            ConstantSchedule(optimizer)
            if config.final_schedule == "constant"
            else LinearSchedule(
                optimizer, steps, config.warmup_ratio, start=self.progress.final_from
            )
        )
        objectives.train_primary_alone(optimizer, schedule)

    def resume(self) -> None:
        """Go back to the latest checkpoint, if there is one."""
        found = self.checkpoints.load()
        if found is None:
            self._cut(0)
            return
        progress, tensors = found
        self.progress = progress
        self._losses, self._read = [], list(progress.pending)
        self.objectives.encoder.load_tensors(tensors["encoder"])
        if self.in_final_stage:
            self._enter_final_stage()
        load_optimizer_tensors(self.objectives.optimizer, tensors["optimizer"])
        self.weighting.load_state_dict(tensors.get("weighting", {}))
        for auxiliary in self.objectives.auxiliaries:
            auxiliary.task.load_state_dict(tensors.get(f"task-{auxiliary.name}", {}))
        self._cut(progress.step)
        self.reporter.message(f"going on from step {progress.step} of {self.total_steps}")

    def save(self) -> None:
        """Write a checkpoint."""
        self._read_losses()
        if self.objectives.log is not None:
            self.objectives.log.flush()
        self.progress.seconds = time.perf_counter() - self._started
        self.progress.pending = list(self._read)
        groups = {
            "encoder": self.objectives.encoder.tensors(),
            "optimizer": optimizer_tensors(self.objectives.optimizer),
            "weighting": self.weighting.state_dict(),
        }
        for auxiliary in self.objectives.auxiliaries:
            groups[f"task-{auxiliary.name}"] = auxiliary.task.state_dict()
        self.checkpoints.save(self.progress, groups)

    def _cut(self, last_step: int) -> None:
        """Drop what was written after the checkpoint, which is made again."""
        self.folder.cut_metrics(last_step)
        if self.objectives.log is not None:
            self.objectives.log.cut(last_step)

    def _step(self) -> None:
        self.objectives.begin(self.progress.step)
        if self.in_final_stage:
            self.objectives.backward((1.0,))
            self.objectives.update()
        else:
            self.weighting.step(self.objectives)
        self.progress.step += 1
        self._losses.append((self.progress.step, self.objectives.losses))

    def _log(self) -> None:
        """Write a row with the mean losses since the last one."""
        self._read_losses()
        if not self._read:
            return
        means: dict[str, list[float]] = {}
        for _, losses in self._read:
            for name, loss in losses.items():
                means.setdefault(name, []).append(loss)
        self._read = []
        row = self._row("train")
        row |= {f"loss/{name}": sum(values) / len(values) for name, values in means.items()}
        if not self.in_final_stage:
            weights = zip(self.objectives.names, self.weighting.weights.tolist(), strict=True)
            row |= {f"weight/{name}": weight for name, weight in weights}
            row |= self.weighting.record()
        row["learning_rate"] = self.objectives.schedule.rate
        self._write(row)

    def _evaluate(self) -> None:
        self._log()
        encoder = self.objectives.encoder
        with encoder.evaluating():
            figures = self.evaluate()
        progress, value = self.progress, figures[self.config.metric]
        improved = value > progress.best_value
        if improved or (value == progress.best_value and self._ties_replace):
            progress.best_step, progress.best_value = progress.step, value
            write_tensors(self.checkpoints.best_path(progress.step), encoder.tensors())
        if improved:
            progress.stale = 0
        elif self._patience_counts:
            progress.stale += 1
        self._write(self._row("eval") | {f"dev/{name}": value for name, value in figures.items()})

    @property
    def _ties_replace(self) -> bool:
        """Whether an equal dev metric replaces the best checkpoint.

        Never the checkpoint that the last stage began from: the stage is kept only if dev improves.
        """
        ours = not self.in_final_stage or self.progress.best_step > self.progress.final_from
        return ours and self.config.ties == "later"

    @property
    def _patience_counts(self) -> bool:
        """Whether an evaluation without improvement counts towards early stopping.

        A classifier often predicts the majority class alone for its first epochs, and the dev
        metric is constant then. Stopping in that phase would export a model that has not begun to
        learn, so patience starts once the metric has been above the majority baseline, and never
        within the first ``min_epochs``. The primary-only phase begins from a trained model.
        """
        progress = self.progress
        return self.in_final_stage or (
            progress.best_value > self.baseline
            and progress.step >= self.config.min_epochs * self.steps_per_epoch
        )

    def _row(self, kind: str) -> dict[str, Any]:
        step = self.progress.step
        return {"kind": kind, "step": step, "epoch": step / self.steps_per_epoch}

    def _write(self, row: dict[str, Any]) -> None:
        self.folder.append_metrics(row)
        self.reporter.row(row)

    def _read_losses(self) -> None:
        """Turn the losses of the last steps into numbers; the device is waited for once.

        Raises:
            TrainingDiverged: One of them is NaN or infinite; the first such step is named.
        """
        if not self._losses:
            return
        stacked = torch.stack([loss for _, losses in self._losses for loss in losses.values()])
        values = iter(stacked.tolist())
        read = [(step, {name: next(values) for name in losses}) for step, losses in self._losses]
        self._read += read
        self._losses = []
        for step, losses in read:
            for name, loss in losses.items():
                if not math.isfinite(loss):
                    rate = self.objectives.schedule.rate
                    raise TrainingDiverged(
                        f"the loss of '{name}' became {loss} at step {step}, learning rate "
                        f"{rate:.3g}: try a lower --learning-rate or a smaller --max-grad-norm"
                    )
