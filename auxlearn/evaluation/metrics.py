"""Predictions and the figures that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from auxlearn.config import Metric
from auxlearn.data.batches import Batch, collate, eval_batches
from auxlearn.data.dataset import Split
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.errors import DataError
from auxlearn.results.record import Evaluation, Scores


def class_probabilities(
    classify: Callable[[Batch], Tensor],
    texts: TokenizedTexts,
    batch_size: int,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> np.ndarray:
    """Return class probabilities of every text, ``(texts, classes)``, float64.

    Args:
        classify: Gives class logits of a batch on the CPU; expected to be in evaluation mode.
        texts: The texts.
        batch_size: Texts at once.
        autocast: Context of the forward passes.
    """
    parts: list[Tensor] = []
    order = eval_batches(texts, batch_size)
    with torch.inference_mode():
        for rows in order:
            with autocast():
                logits = classify(collate(texts, rows))
            parts.append(logits.float().softmax(-1))
    probabilities = torch.cat(parts).cpu().double()  # the one wait for the device
    back = torch.empty_like(probabilities)
    back[torch.cat(order)] = probabilities
    return back.numpy()


def score_predictions(
    labels: Sequence[int] | np.ndarray, predicted: np.ndarray, label_names: Sequence[str]
) -> Scores:
    """Return the figures for predicted classes.

    Args:
        labels: True classes, ``(rows,)``.
        predicted: Predicted classes, ``(rows,)``.
        label_names: Names of all classes, in order.

    Examples:
        >>> scores = score_predictions([0, 0, 1, 1], np.array([0, 0, 1, 0]), ["no", "yes"])
        >>> scores.accuracy, scores.confusion
        (0.75, [[2, 0], [1, 1]])
    """
    from sklearn import metrics  # takes a second to import, which `predict` need not wait for

    classes = list(range(len(label_names)))
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        labels, predicted, labels=classes, zero_division=0
    )
    return Scores(
        rows=len(predicted),
        accuracy=float(metrics.accuracy_score(labels, predicted)),
        macro_f1=float(metrics.f1_score(labels, predicted, average="macro", zero_division=0)),
        per_class={
            name: {
                "precision": float(precision[number]),
                "recall": float(recall[number]),
                "f1": float(f1[number]),
                "support": int(support[number]),
            }
            for number, name in enumerate(label_names)
        },
        confusion=metrics.confusion_matrix(labels, predicted, labels=classes).tolist(),
    )


def evaluate(
    probabilities: np.ndarray,
    labels: Sequence[int],
    label_names: Sequence[str],
    seen: Sequence[bool],
    majority: int,
    predicted: np.ndarray | None = None,
) -> Evaluation:
    """Return the figures on an evaluation set, on all its rows and on those not in train.

    Args:
        probabilities: Of each class, ``(rows, classes)``.
        labels: True classes, ``(rows,)``.
        label_names: Names of all classes, in order.
        seen: Which rows have a text that is in train, ``(rows,)``.
        majority: The most frequent class of train.
        predicted: Predicted classes, ``(rows,)``; by default the likeliest ones.
    """
    truth = np.asarray(labels)
    predicted = probabilities.argmax(1) if predicted is None else predicted
    unseen = ~np.asarray(seen, dtype=bool)
    picked = np.clip(probabilities[np.arange(len(truth)), truth], 1e-300, None)
    return Evaluation(
        all=score_predictions(truth, predicted, label_names),
        unseen=score_predictions(truth[unseen], predicted[unseen], label_names)
        if unseen.any()
        else None,
        seen_rows=int((~unseen).sum()),
        majority=score_predictions(truth, np.full_like(truth, majority), label_names),
        loss=float(-np.log(picked).mean()),
    )


def metric_of(scores: Scores, metric: Metric) -> float:
    """Return the figure that a run is judged by."""
    return scores.accuracy if metric == "accuracy" else scores.macro_f1


def to_model_labels(split: Split, label_names: Sequence[str]) -> list[int]:
    """Return the labels of a split as a model numbers them, matched by name.

    Raises:
        DataError: The split is not labelled, or has a label that the model does not know.
    """
    if split.labels is None:
        raise DataError(f"split '{split.name}' has no labels to evaluate against")
    unknown = sorted(set(split.label_names) - set(label_names))
    if unknown:
        raise DataError(
            f"'{split.name}' has the labels {', '.join(split.label_names)}, "
            f"the model knows {', '.join(label_names)}: no match for {', '.join(unknown)}"
        )
    number = {name: index for index, name in enumerate(label_names)}
    return [number[split.label_names[label]] for label in split.labels]
