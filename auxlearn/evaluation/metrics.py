"""Class probabilities, and the metrics of predictions."""

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
from auxlearn.wording import some_of


def class_probabilities(
    classify: Callable[[Batch], Tensor],
    texts: TokenizedTexts,
    batch_size: int,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> np.ndarray:
    """Return class probabilities of every text, ``(texts, classes)``, float64.

    Args:
        classify: Returns the class logits of a batch on the CPU; expected to be in evaluation mode.
        texts: The texts.
        batch_size: Texts per forward pass.
        autocast: Context manager of the forward passes.
    """
    chunks: list[Tensor] = []
    order = eval_batches(texts, batch_size)
    with torch.inference_mode():
        for rows in order:
            with autocast():
                logits = classify(collate(texts, rows))
            chunks.append(logits.float().softmax(-1))
    probabilities = torch.cat(chunks).cpu().double()  # the only synchronisation with the device
    in_order = torch.empty_like(probabilities)
    in_order[torch.cat(order)] = probabilities
    return in_order.numpy()


def score_predictions(
    labels: Sequence[int] | np.ndarray, predicted: np.ndarray, label_names: Sequence[str]
) -> Scores:
    """Return the scores of predicted classes, by scikit-learn.

    Args:
        labels: True classes, ``(examples,)``.
        predicted: Predicted classes, ``(examples,)``.
        label_names: Names of all classes, in order.

    Examples:
        >>> scores = score_predictions([0, 0, 1, 1], np.array([0, 0, 1, 0]), ["no", "yes"])
        >>> scores.accuracy, scores.confusion
        (0.75, [[2, 0], [1, 1]])
    """
    from sklearn import metrics  # imported here, as it takes a second that `predict` does not need

    classes = list(range(len(label_names)))
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        labels, predicted, labels=classes, zero_division=0
    )
    return Scores(
        examples=len(predicted),
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
    """Evaluate predictions on all examples of a set, and on those whose text is not in train.

    Args:
        probabilities: Class probabilities, ``(examples, classes)``.
        labels: True classes, ``(examples,)``.
        label_names: Names of all classes, in order.
        seen: Which examples have a text that is in train, ``(examples,)``.
        majority: The most frequent class of train.
        predicted: Predicted classes, ``(examples,)``; by default the most likely ones.
    """
    truth = np.asarray(labels)
    predicted = probabilities.argmax(1) if predicted is None else predicted
    unseen = ~np.asarray(seen, dtype=bool)
    of_truth = np.clip(probabilities[np.arange(len(truth)), truth], 1e-300, None)
    return Evaluation(
        all=score_predictions(truth, predicted, label_names),
        unseen=score_predictions(truth[unseen], predicted[unseen], label_names)
        if unseen.any()
        else None,
        seen_examples=int((~unseen).sum()),
        majority=score_predictions(truth, np.full_like(truth, majority), label_names),
        loss=float(-np.log(of_truth).mean()),
    )


def metric_of(scores: Scores, metric: Metric) -> float:
    """Return the score by one metric."""
    return scores.accuracy if metric == "accuracy" else scores.macro_f1


def to_model_labels(split: Split, label_names: Sequence[str]) -> list[int]:
    """Return the labels of a split as class numbers of a model, matched by name.

    Raises:
        DataError: The split is not labelled, or has a label that is unknown to the model.
    """
    if split.labels is None:
        raise DataError(f"split '{split.name}' has no labels to evaluate against")
    unknown = sorted(set(split.label_names) - set(label_names))
    if unknown:
        raise DataError(
            f"'{split.name}' has the labels {some_of(split.label_names)}, "
            f"the model knows {some_of(label_names)}: no match for {some_of(unknown)}"
        )
    number = {name: index for index, name in enumerate(label_names)}
    return [number[split.label_names[label]] for label in split.labels]
