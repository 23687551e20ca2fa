"""The files of ``predictions/`` in a run folder: one JSON line for each evaluated example."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auxlearn.core.errors import RunError
from auxlearn.core.files import read_checked_json
from auxlearn.kinds.base import Kind
from auxlearn.results.record import MANY_LABELS


@dataclass(frozen=True)
class Prediction:
    """What a model says of an example.

    Attributes:
        label: The true label.
        predicted: The predicted label.
        probabilities: Probability by class; with very many classes, of the most likely ones.
    """

    label: str
    predicted: str
    probabilities: dict[str, float]


def prediction_lines(run: Path, name: str) -> list[str]:
    """Return the lines of a run's predictions for an evaluation set; there is at least one."""
    path = predictions_path(run, name)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise RunError(f"{run} holds no predictions for '{name}'") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RunError(f"{path} is damaged: it is not UTF-8") from None
    if len(lines) < 2 or lines[-1]:
        raise RunError(f"{path} is damaged: it is empty or ends within a line")
    return lines[:-1]


def read_labels(run: Path, name: str, numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the predicted classes of an evaluation set, ``(examples,)`` each."""
    known: dict[str, tuple[int, int]] = {}
    cells = []
    for number, line in enumerate(prediction_lines(run, name), 1):
        # What follows the labels differs from line to line; a quote within a label is escaped.
        head, comma, _ = line.partition(', "probabilities": ')
        if head not in known:
            labels = _labels(_content(run, name, number, head + "}" if comma else head))
            if labels is None:
                raise _damaged(run, name, number, "labels")
            true, said = (numbers.setdefault(label, len(numbers)) for label in labels)
            known[head] = true, said
        cells.append(known[head])
    truth, predicted = np.array(cells, dtype=np.int32).T
    return truth, predicted


def read_predictions(run: Path, name: str, label_names: Sequence[str]) -> Iterator[Prediction]:
    """Yield the predictions for an evaluation set, example by example."""
    for number, line in enumerate(prediction_lines(run, name), 1):
        content = _content(run, name, number, line)
        labels = _labels(content)
        try:
            values = content["probabilities"]
            if not isinstance(values, dict):
                values = dict(zip(label_names, values, strict=True))
            found = {str(label): float(value) for label, value in values.items()}
        except (KeyError, ValueError, TypeError):
            found = {}
        if labels is None or not found:
            raise _damaged(
                run, name, number, f"label with the probabilities of {len(label_names)} classes"
            )
        yield Prediction(*labels, found)


def stored_probabilities(
    run: Path, name: str, label_names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what a run has stored for an evaluation set.

    Returns:
        True classes and predicted classes, ``(examples,)`` each, and class probabilities,
        ``(examples, classes)``.
    """
    if len(label_names) > MANY_LABELS:
        raise RunError(
            f"{run} holds the probabilities of the most likely of {len(label_names)} classes only: "
            "name the data with --dataset, so that the models are run"
        )
    index = {label: number for number, label in enumerate(label_names)}
    truth, predicted, rows = [], [], []
    for number, one in enumerate(read_predictions(run, name, label_names), 1):
        row = list(one.probabilities.values())
        whole = len(row) == len(label_names) and abs(sum(row) - 1) < 1e-5 and min(row) >= 0
        if not whole or {one.label, one.predicted} - {*index}:  # so neither for what is not finite
            raise _damaged(
                run, name, number, f"label with the probabilities of {len(label_names)} classes"
            )
        truth.append(index[one.label])
        predicted.append(index[one.predicted])
        rows.append(row)
    return np.array(truth), np.array(predicted), np.array(rows)


def read_outputs(
    run: Path, name: str, kind: Kind, label_names: Sequence[str]
) -> tuple[list[Any], list[Any], list[np.ndarray]]:
    """Return the true and predicted labels and the outputs of a set, of any kind of labels."""
    index = {label: number for number, label in enumerate(label_names)}
    truth, predicted, outputs = [], [], []
    for number, line in enumerate(prediction_lines(run, name), 1):
        content = _content(run, name, number, line)
        try:
            truth.append(kind.decode_written(content["label"], index))
            predicted.append(kind.decode_written(content["predicted"], index))
            outputs.append(kind.output(content, label_names))
        except (KeyError, ValueError, TypeError):
            raise _damaged(run, name, number, f"labels of {kind.name}") from None
        if not np.isfinite(outputs[-1]).all():
            raise _damaged(run, name, number, "finite probabilities")
    return truth, predicted, outputs


def _content(run: Path, name: str, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged(run, name, number, "JSON") from None


def _labels(content: Any) -> tuple[str, str] | None:
    """Return the true and the predicted label of a line, or ``None`` if it has none."""
    try:
        label, predicted = content["label"], content["predicted"]
    except (KeyError, TypeError):
        return None
    return (label, predicted) if isinstance(label, str) and isinstance(predicted, str) else None


def _damaged(run: Path, name: str, number: int, what: str) -> RunError:
    return RunError(f"{predictions_path(run, name)} is damaged: line {number} holds no {what}")


def predictions_path(run: Path, name: str) -> Path:
    """Return the file of a run's predictions for an evaluation set."""
    return run / "predictions" / f"{name}.jsonl"


def recorded_ood_content(run: Path, name: str) -> dict[str, str] | None:
    """Return the digests of an out-of-distribution set by split as a run recorded them, if so."""
    try:
        # auxlearn.training.inputs reads this file too, but takes torch to import.
        inputs = read_checked_json(run / "inputs.json")["inputs"]
        return dict(inputs[f"out-of-distribution set {name}"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def other_predictions(run: Path, name: str) -> RunError:
    """Return the error for predictions that are not those of the run's results."""
    return RunError(
        f"{run}: the predictions for '{name}' are not those that results.json describes: delete "
        "the folder and run again"
    )
