"""The files of ``predictions/`` in a run folder: one JSON line for each evaluated example."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auxlearn.core.errors import RunError
from auxlearn.core.files import read_checked_json, write_bytes
from auxlearn.kinds.base import Kind, Labels
from auxlearn.results.record import RunResults, recorded_file


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
    lines = [
        json.dumps({"label": label, "predicted": said, **further}, ensure_ascii=False)
        for label, said, further in zip(labels, predicted, numbers, strict=True)
    ]
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def prediction_lines(run: Path, name: str) -> list[str]:
    """Return the lines of a run's predictions for an evaluation set; there is at least one."""
    path = recorded_file(run, f"predictions/{name}.jsonl")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise RunError(f"{run} holds no predictions for '{name}'") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}): check its permissions") from None
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
            content = _content(run, name, number, head + "}" if comma else head)
            found = content if isinstance(content, dict) else {}
            labels = [found.get(key) for key in ("label", "predicted")]
            if not all(isinstance(label, str) for label in labels):
                raise _damaged(run, name, number, "labels")
            true, said = (numbers.setdefault(str(label), len(numbers)) for label in labels)
            known[head] = true, said
        cells.append(known[head])
    truth, predicted = np.array(cells, dtype=np.int32).T
    return truth, predicted


def read_predictions(
    run: Path, name: str, kind: Kind, label_names: Sequence[str]
) -> Iterator[Prediction]:
    """Yield the predictions for an evaluation set, example by example."""
    index = {label: number for number, label in enumerate(label_names)}
    for number, line in enumerate(prediction_lines(run, name), 1):
        content = _content(run, name, number, line)
        try:
            found = content.get("probabilities", []) if not kind.per_token else []
            if not isinstance(found, dict):
                found = dict(zip(label_names, found, strict=bool(found)))
            yield Prediction(
                kind.encode(content["label"], index),
                kind.encode(content["predicted"], index),
                content,
                {str(label): float(value) for label, value in found.items()},
            )
        except (KeyError, ValueError, TypeError, AttributeError):
            raise _not_of(kind, run, name, number, label_names) from None


def read_stored(run: Path, name: str, kind: Kind, label_names: Sequence[str]) -> Stored:
    """Return what a run has stored of an evaluation set, of any kind of labels."""
    found = Stored([], [], [])
    for number, one in enumerate(read_predictions(run, name, kind, label_names), 1):
        found.truth.append(one.truth)
        found.predicted.append(one.predicted)
        try:
            found.values.append(kind.stored(one.content, label_names))
        except (KeyError, ValueError, TypeError):
            raise _not_of(kind, run, name, number, label_names) from None
        if not np.isfinite(found.values[-1]).all():
            raise _damaged(run, name, number, "finite numbers")
    return found


def _not_of(kind: Kind, run: Path, name: str, number: int, names: Sequence[str]) -> RunError:
    what = f"label of {kind.name}, or not the probabilities of {len(names)} classes"
    return _damaged(run, name, number, what)


def _content(run: Path, name: str, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged(run, name, number, "JSON") from None


def _damaged(run: Path, name: str, number: int, what: str) -> RunError:
    return RunError(f"{predictions_path(run, name)} is damaged: line {number} holds no {what}")


def predictions_path(run: Path, name: str) -> Path:
    return run / "predictions" / f"{name}.jsonl"


def recorded_ood_content(run: Path, name: str) -> dict[str, str] | None:
    """Return the digests of an out-of-distribution set by split as a run recorded them, if so."""
    try:
        # auxlearn.training.inputs reads this file too, but takes torch to import.
        inputs = read_checked_json(run / "inputs.json")["inputs"]
        return dict(inputs[f"out-of-distribution set {name}"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_recorded(
    run: Path, name: str, results: RunResults, truth: Labels, predicted: Labels
) -> None:
    """Check that predictions for an evaluation set are those of the run's results."""
    kind, recorded = results.kind, results.evaluations[name].all
    metric = next(one for one in kind.metrics if one in recorded.metrics)
    score = kind.scores(truth, predicted, None, results.names_of(name))[metric]
    if len(truth) != recorded.examples or abs(score - recorded.metrics[metric]) > 1e-9:
        raise other_predictions(run, name)


def other_predictions(run: Path, name: str) -> RunError:
    """Return the error for predictions that are not those of the run's results."""
    return RunError(
        f"{run}: the predictions for '{name}' are not those that results.json describes: delete "
        "the folder and run again"
    )
