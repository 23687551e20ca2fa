"""Evaluation on out-of-distribution sets, whose labels may differ from those of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from auxlearn.data.dataset import Split
from auxlearn.data.ood import LabelMap, OODSet
from auxlearn.errors import DataError
from auxlearn.evaluation.metrics import Predictions, evaluate, score_predictions
from auxlearn.results.record import Evaluation, Scores


def map_predictions(
    probabilities: np.ndarray, labels: LabelMap, decision: Literal["sum", "argmax"]
) -> tuple[np.ndarray, np.ndarray]:
    """Map class probabilities to probabilities of the labels of a set.

    Several classes of the model may correspond to one label, as neutral and contradiction do to
    the non-entailment of HANS. Their probabilities are summed. With ``sum`` the predicted label is
    the most likely one by that sum; with ``argmax`` it is the label of the most likely class of the
    model, as in McCoy et al. (2019, https://arxiv.org/abs/1902.01007). The two differ if, for
    example, entailment has probability 0.4 and the other classes 0.3 each.

    Args:
        probabilities: Class probabilities of the model, ``(examples, classes)``.
        labels: Label of the set for each class of the model.
        decision: Rule of the predicted label.

    Returns:
        Probability of each label of the set, ``(examples, labels)``, and predicted labels,
        ``(examples,)``.
    """
    summed = np.zeros((len(probabilities), len(labels.label_names)))
    for number, target in enumerate(labels.targets):
        summed[:, target] += probabilities[:, number]
    if decision == "sum":
        return summed, summed.argmax(1)
    return summed, np.asarray(labels.targets)[probabilities.argmax(1)]


def true_labels(split: Split, ood: OODSet) -> np.ndarray:
    """Return the true labels of a split of the set, numbered as its label names, ``(examples,)``.

    Raises:
        DataError: The split is not labelled.
    """
    if split.labels is None:
        raise DataError(f"split '{split.name}' has no labels to evaluate against")
    number = dict(zip(ood.split.label_names, ood.labels.labels, strict=True))
    return np.asarray([number[split.label_names[label]] for label in split.labels])


def evaluate_ood(
    ood: OODSet,
    found: Predictions,
    partner: np.ndarray | None,
    seen: Sequence[bool],
    majority: int,
) -> Evaluation:
    """Evaluate predictions on an out-of-distribution set.

    Args:
        ood: The set.
        found: Predictions for its examples.
        partner: Predicted labels of the examples paired with them, if the set has pairs. A pair is
            right if both examples are: the contrast consistency of Gardner et al. (2020,
            https://arxiv.org/abs/2004.02709).
        seen: Which examples have a text that is in train, ``(examples,)``.
        majority: The class of the model that is most frequent in train.
    """
    truth = true_labels(ood.split, ood)
    names = ood.labels.label_names
    evaluation = evaluate(
        found, truth, names, seen, majority=ood.labels.targets[majority], known=ood.labels.known
    )
    subsets: dict[str, Scores] = {}
    for column in ood.source.subsets or ():
        values = np.asarray(ood.split.meta[column])
        for value in sorted(set(ood.split.meta[column])):
            members = values == value
            subsets[f"{column}: {value}"] = score_predictions(
                truth[members], found.predicted[members], names, per_class=False, confusion=False
            )
    if partner is None or ood.partner is None:
        return replace(evaluation, subsets=subsets)
    other = true_labels(ood.partner, ood)
    both = (found.predicted == truth) & (partner == other)
    return replace(
        evaluation,
        subsets=subsets,
        partner=score_predictions(other, partner, names, per_class=False, confusion=False),
        pair_accuracy=float(both.mean()),
    )
