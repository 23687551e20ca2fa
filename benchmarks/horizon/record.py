"""Trains a run and keeps what its best checkpoint predicts on dev and test."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from auxlearn import RunConfig, train
from auxlearn.data.load import load_dataset
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.evaluation.evaluator import Evaluator
from auxlearn.objectives.base import outputs_of
from auxlearn.results.predictions import read_stored
from auxlearn.training.loop import TrainingLoop

Autocast = Callable[[], AbstractContextManager[None]]
#: Share of the steps after which evaluations are averaged.
LAST = 0.75
SPLITS = ("dev", "test")


def predict(loop: TrainingLoop, name: str, autocast: Autocast = nullcontext) -> np.ndarray:
    """Return the class probabilities of the present parameters on a split."""
    evaluator: Evaluator = loop.evaluate.func.__self__  # type: ignore[attr-defined]
    split = evaluator.dataset.splits[name]
    encoder: SharedEncoder = loop.training_step.encoder
    texts = evaluator.texts(split)
    with encoder.evaluating():
        return np.asarray(outputs_of(encoder.kind, encoder.classify, texts, (), None, autocast))


def data_labels(settings: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the true classes of dev and test."""
    dataset = load_dataset(settings["dataset"])
    return [np.array(dataset.split(name).labels) for name in SPLITS]


def record(settings: Mapping[str, Any], path: Path) -> float:
    """Train a run, and write class probabilities and true classes on dev and test, and the seconds.

    Returns:
        The seconds of training.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "run")
        results = train(RunConfig(**settings, keep_model=False, patience=0, output=str(output)))
        arrays: dict[str, Any] = {"seconds": np.array(results.seconds["training"])}
        for split, labels in zip(SPLITS, data_labels(settings), strict=True):
            stored = read_stored(output, split, results.kind, results.names_of(split)).values
            arrays[split] = np.array([results.kind.output(value) for value in stored])
            arrays[f"labels_{split}"] = labels
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp.npz")
    np.savez_compressed(temporary, **arrays)
    temporary.replace(path)
    return results.seconds["training"]
