"""The predictions of all runs of a setting, read from their folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from auxlearn.comparison.runs import Method
from auxlearn.comparison.scores import Predictions
from auxlearn.errors import RunError, SweepError
from auxlearn.results.predictions import other_predictions, prediction_lines, predictions_path


def read_predictions(
    methods: Sequence[Method], name: str
) -> tuple[Predictions, dict[tuple[str, int], int]]:
    """Read the predictions of all runs of a setting for an evaluation set.

    Args:
        methods: The methods, each of which has runs with that set.
        name: The evaluation set.

    Returns:
        The predictions, and the index of each method and seed in them.

    Raises:
        UserError: Predictions are missing, damaged, not those of the results, or of other examples.
    """
    numbers: dict[str, int] = {}
    runs: dict[tuple[str, int], int] = {}
    rows: list[np.ndarray] = []
    truth, origin = np.empty(0, dtype=np.int32), ""
    for method in methods:
        for seed, path in method.runs.items():
            if name not in method.results[seed].evaluations:
                continue
            found, predicted = _read_file(path, name, numbers)
            recorded = method.results[seed].evaluations[name].all
            right = float((found == predicted).mean())
            if len(found) != recorded.examples or abs(right - recorded.accuracy) > 1e-9:
                raise other_predictions(path, name)
            if not rows:
                truth, origin = found, f"'{method.name}' (seed {seed})"
            elif not np.array_equal(found, truth):
                raise SweepError(
                    f"'{method.name}' (seed {seed}) and {origin} were evaluated on different "
                    f"examples of '{name}': the data has changed in between, run them again"
                )
            runs[method.name, seed] = len(rows)
            rows.append(predicted)
    # Classes in alphabetical order, so that the order of the runs changes no digit.
    rank = np.argsort(np.argsort(list(numbers)))
    labels = tuple(sorted(numbers))
    return Predictions(labels, rank[truth], rank[np.stack(rows)]), runs


def _read_file(run: Path, name: str, numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the predicted classes of a file, ``(examples,)`` each.

    Args:
        run: The run folder.
        name: Evaluation set.
        numbers: Number of each label; labels that are not in it are added.
    """
    known: dict[str, tuple[int, int]] = {}
    cells = []
    for number, line in enumerate(prediction_lines(run, name), 1):
        # What follows the labels differs from line to line; a quote within a label is escaped.
        head, comma, _ = line.partition(', "probabilities": ')
        if head not in known:
            try:
                content = json.loads(head + "}" if comma else head)
                labels = [content["label"], content["predicted"]]
                if not all(isinstance(label, str) for label in labels):
                    raise ValueError("a label is not a text")
            except (ValueError, KeyError, TypeError, RecursionError):
                raise RunError(
                    f"{predictions_path(run, name)} is damaged: line {number} holds no labels"
                ) from None
            true, said = (numbers.setdefault(label, len(numbers)) for label in labels)
            known[head] = true, said
        cells.append(known[head])
    truth, predicted = np.array(cells, dtype=np.int32).T
    return truth, predicted
