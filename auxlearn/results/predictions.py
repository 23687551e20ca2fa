"""The files of ``predictions/`` in a run folder: one JSON line for each evaluated example."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auxlearn.core.errors import RunError
from auxlearn.core.files import write_bytes
from auxlearn.kinds.base import Kind
from auxlearn.results.record import recorded_file


@dataclass(frozen=True)
class Prediction:
    """What a model says of an example."""

    truth: Any  # the true label, encoded
    predicted: Any  # the predicted label, encoded
    content: dict[str, Any]  # the line of the file
    #: By label, with very many classes of the likely ones; empty for numbers and tags.
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Stored:
    """What a run has stored of an evaluation set, one entry for each example."""

    truth: list[Any]  # true labels, encoded
    predicted: list[Any]  # predicted labels, encoded
    values: list[np.ndarray]  # probabilities, or the predicted number; see :meth:`Kind.stored`


def write_predictions(
    path: Path,
    labels: Iterable[Any],
    predicted: Iterable[Any],
    numbers: Iterable[Mapping[str, Any]],
) -> None:
    """Write one JSON line per example: its label, the predicted one, and probabilities."""
    rows = (
        {"label": true, "predicted": guess, **further}
        for true, guess, further in zip(labels, predicted, numbers, strict=True)
    )
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def prediction_lines(run: Path, name: str) -> list[str]:
    """Return the lines of a run's predictions for an evaluation set."""
    path = recorded_file(run, f"predictions/{name}.jsonl")
    if not path.is_file():
        raise RunError(f"{run} holds no predictions for '{name}'")
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def read_labels(run: Path, name: str, numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the predicted classes of an evaluation set, ``(examples,)`` each."""
    known: dict[str, tuple[int, int]] = {}
    cells = []
    for line in prediction_lines(run, name):
        # What follows the labels differs from line to line; a quote within a label is escaped.
        head, comma, _ = line.partition(', "probabilities": ')
        if head not in known:
            content = json.loads(head + "}" if comma else head)
            true = numbers.setdefault(content["label"], len(numbers))
            known[head] = true, numbers.setdefault(content["predicted"], len(numbers))
        cells.append(known[head])
    truth, predicted = np.array(cells, dtype=np.int32).T
    return truth, predicted


def read_predictions(
    run: Path, name: str, kind: Kind, label_names: Sequence[str]
) -> Iterator[Prediction]:
    """Yield the predictions for an evaluation set, example by example."""
    index = {label: number for number, label in enumerate(label_names)}
    for line in prediction_lines(run, name):
        content = json.loads(line)
        values = content.get("probabilities", []) if not kind.per_token else []
        yield Prediction(
            kind.encode(content["label"], index),
            kind.encode(content["predicted"], index),
            content,
            {label: float(p) for label, p in zip(label_names, values, strict=bool(values))},
        )


def read_stored(run: Path, name: str, kind: Kind, label_names: Sequence[str]) -> Stored:
    """Return what a run has stored of an evaluation set, of any kind of labels."""
    stored = Stored([], [], [])
    for prediction in read_predictions(run, name, kind, label_names):
        stored.truth.append(prediction.truth)
        stored.predicted.append(prediction.predicted)
        stored.values.append(kind.stored(prediction.content, label_names))
    return stored
