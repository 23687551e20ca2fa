"""Trains a run and keeps what the model predicts on dev and test at every evaluation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from torch import Tensor

from auxlearn import RunConfig, train
from auxlearn.data.dataset import Split
from auxlearn.data.load import load_dataset
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.evaluation.evaluator import Evaluator
from auxlearn.objectives.base import output_blocks
from auxlearn.training.loop import TrainingLoop

Autocast = Callable[[], AbstractContextManager[None]]
#: Share of the steps after which evaluations are averaged.
LAST = 0.75


@dataclass
class Recorded:
    """What is kept of a run."""

    steps: list[int] = field(default_factory=list)  # of each evaluation
    #: Class probabilities, ``(evaluations, examples, classes)``; NaN for evaluations that no rule
    #: can choose.
    dev: list[np.ndarray] = field(default_factory=list)
    test: list[np.ndarray] = field(default_factory=list)
    #: Of the parameters averaged over the last quarter, on dev and test.
    average: list[np.ndarray] = field(default_factory=list)
    #: Of the mean of the parameters of the best checkpoint and that of the single task.
    midpoint: list[np.ndarray] = field(default_factory=list)
    labels: list[np.ndarray] = field(default_factory=list)  # of dev and test
    seconds: float = 0.0  # of training
    final: dict[str, Tensor] = field(default_factory=dict)  # of the best checkpoint, not saved

    def save(self, path: Path) -> None:
        """Write all but the parameters."""
        arrays: dict[str, Any] = {
            "steps": np.array(self.steps),
            "dev": np.array(self.dev, dtype=np.float32),
            "test": np.array(self.test, dtype=np.float32),
            "seconds": np.array(self.seconds),
        }
        for name in ("average", "midpoint", "labels"):
            for part, values in zip(("dev", "test"), getattr(self, name), strict=False):
                arrays[f"{name}_{part}"] = values
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp.npz")
        np.savez_compressed(temporary, **arrays)
        temporary.replace(path)


def predict(loop: TrainingLoop, name: str, autocast: Autocast = nullcontext) -> np.ndarray:
    """Return the class probabilities of the present parameters on a split."""
    evaluator: Evaluator = loop.evaluate.func.__self__  # type: ignore[attr-defined]
    texts = evaluator.texts(evaluator.dataset.splits[name])
    encoder: SharedEncoder = loop.training_step.encoder
    probabilities = unknown(loop, name)
    with encoder.evaluating():
        for rows, values in output_blocks(
            encoder.kind, encoder.classify, texts, (), None, autocast
        ):
            probabilities[rows] = values
    return probabilities


def unknown(loop: TrainingLoop, name: str) -> np.ndarray:
    """Return NaN in place of the class probabilities on a split."""
    evaluator: Evaluator = loop.evaluate.func.__self__  # type: ignore[attr-defined]
    split: Split = evaluator.dataset.splits[name]
    return np.full((len(split), len(split.label_names)), np.nan)


def data_labels(settings: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the true classes of dev and test."""
    dataset = load_dataset(settings["dataset"])
    return [np.array(dataset.split(name).labels) for name in ("dev", "test")]


@contextmanager
def _recording(found: Recorded, other: Mapping[str, Tensor], best: bool) -> Iterator[None]:
    """Record every evaluation of the run that is trained in this context."""
    evaluate, load_best = TrainingLoop._evaluate, TrainingLoop._load_best
    sums: dict[str, Tensor] = {}
    count = 0

    def recorded_evaluate(loop: TrainingLoop) -> None:
        nonlocal count
        evaluate(loop)
        state = loop.state
        found.steps.append(state.step)
        found.dev.append((unknown if best else predict)(loop, "dev"))
        last = not best and state.step > LAST * loop.total_steps
        kept = last or (not best and (state.best_step == state.step or _best_loss(found.dev, loop)))
        found.test.append((predict if kept else unknown)(loop, "test"))
        if last:
            for name, tensor in loop.training_step.encoder.tensors().items():
                value = tensor.detach()
                sums[name] = value.clone() if name not in sums else sums[name] + value
            count += 1

    def recorded_load_best(loop: TrainingLoop) -> None:
        encoder = loop.training_step.encoder
        if best:
            load_best(loop)
            at = found.steps.index(loop.state.best_step)
            found.dev[at], found.test[at] = predict(loop, "dev"), predict(loop, "test")
            return
        encoder.load_tensors({name: total / count for name, total in sums.items()})
        found.average = [predict(loop, "dev"), predict(loop, "test")]
        load_best(loop)
        found.final = {k: v.detach().clone() for k, v in encoder.tensors().items()}
        if other:
            mean = {k: (v + other.get(k, v)) / 2 for k, v in found.final.items()}
            encoder.load_tensors(mean)
            found.midpoint = [predict(loop, "dev"), predict(loop, "test")]
            encoder.load_tensors(found.final)

    with (
        mock.patch.object(TrainingLoop, "_evaluate", recorded_evaluate),
        mock.patch.object(TrainingLoop, "_load_best", recorded_load_best),
        mock.patch("auxlearn.results.plots.plot_run"),
    ):
        yield


def _best_loss(dev: list[np.ndarray], loop: TrainingLoop) -> bool:
    """Whether the latest evaluation has the smallest log loss on dev."""
    evaluator: Evaluator = loop.evaluate.func.__self__  # type: ignore[attr-defined]
    labels = np.array(evaluator.dataset.splits["dev"].labels)
    losses = [-np.log(np.maximum(one[np.arange(len(labels)), labels], 1e-9)).mean() for one in dev]
    return losses[-1] == min(losses)


def record(
    settings: Mapping[str, Any], other: Mapping[str, Tensor], best: bool = False
) -> Recorded:
    """Train a run and return what it predicts.

    Args:
        settings: Of the run.
        other: Parameters of the single task's best checkpoint, for the midpoint; or nothing.
        best: Only the best checkpoint predicts, which takes half of the time.
    """
    found = Recorded(labels=data_labels(settings))
    with tempfile.TemporaryDirectory() as folder, _recording(found, other, best):
        config = RunConfig(**settings, keep_model=False, patience=0, output=f"{folder}/run")
        results = train(config)
    found.seconds = results.seconds["training"]
    return found
