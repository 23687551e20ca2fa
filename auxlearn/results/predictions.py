"""The files of ``predictions/`` in a run folder: one JSON line for each evaluated example."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from auxlearn.core.errors import RunError
from auxlearn.core.files import read_checked_json
from auxlearn.results.record import MANY_LABELS


def prediction_lines(run: Path, name: str) -> list[str]:
    """Return the lines of a run's predictions for an evaluation set; there is at least one.

    Args:
        run: The run folder.
        name: The evaluation set.

    Raises:
        RunError: There is no such file, or it cannot be read, is empty or ends within a line.
    """
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


def stored_probabilities(
    run: Path, name: str, label_names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what a run has stored for an evaluation set.

    Args:
        run: The run folder.
        name: The evaluation set.
        label_names: The classes, in the order of the stored probabilities.

    Returns:
        True classes and predicted classes, ``(examples,)`` each, and class probabilities,
        ``(examples, classes)``.

    Raises:
        RunError: There are no predictions, they are damaged, or hold the probabilities of some
            classes only.
    """
    if len(label_names) > MANY_LABELS:
        raise RunError(
            f"{run} holds the probabilities of the most likely of {len(label_names)} classes only: "
            "name the data with --dataset, so that the models are run"
        )
    number = {label: index for index, label in enumerate(label_names)}
    truth, predicted, rows = [], [], []
    for line, text in enumerate(prediction_lines(run, name), 1):
        try:
            content = json.loads(text)
            truth.append(number[content["label"]])
            predicted.append(number[content["predicted"]])
            row = [float(value) for value in content["probabilities"]]
            whole = len(row) == len(label_names) and abs(sum(row) - 1) < 1e-3 and min(row) >= 0
            if not whole:  # so neither for what is not finite
                raise ValueError("no distribution over the classes")
            rows.append(row)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RunError(
                f"{predictions_path(run, name)} is damaged: line {line} holds no label with the "
                f"probabilities of {len(label_names)} classes"
            ) from None
    return np.array(truth), np.array(predicted), np.array(rows)


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
