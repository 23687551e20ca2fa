"""Figures on out-of-distribution sets, whose labels need not be those of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from auxlearn.data.dataset import Split
from auxlearn.data.ood import LabelMap, OODSet
from auxlearn.errors import DataError
from auxlearn.evaluation.metrics import evaluate, score_predictions
from auxlearn.results.record import Evaluation, Scores


@dataclass(frozen=True)
class Mapped:
    """Predictions of a model in the labels of an evaluation set.

    Attributes:
        probabilities: Of each label of the set, ``(rows, labels)``.
        predicted: Predicted labels, ``(rows,)``.
    """

    probabilities: np.ndarray
    predicted: np.ndarray


def map_predictions(
    probabilities: np.ndarray, labels: LabelMap, decision: Literal["sum", "argmax"]
) -> Mapped:
    """Turn class probabilities into probabilities of the labels of a set.

    Several classes of the model may stand for one label, as neutral and contradiction do for
    HANS's non-entailment. Their probabilities are summed. The decision is the likeliest label by
    that sum, or with ``argmax`` the label of the model's likeliest class: the two differ where,
    say, entailment has 0.4 and the others 0.3 each. (McCoy et al. 2019 take the likeliest class.)

    Args:
        probabilities: Of each class of the model, ``(rows, classes)``.
        labels: What the classes are in the set.
        decision: How several classes become one.
    """
    summed = np.zeros((len(probabilities), len(labels.label_names)))
    for number, target in enumerate(labels.targets):
        summed[:, target] += probabilities[:, number]
    if decision == "sum":
        return Mapped(summed, summed.argmax(1))
    return Mapped(summed, np.asarray(labels.targets)[probabilities.argmax(1)])


def true_labels(split: Split, ood: OODSet) -> np.ndarray:
    """Return the labels of the rows of a split of the set, as figures number them.

    Raises:
        DataError: The split is not labelled.
    """
    if split.labels is None:
        raise DataError(f"split '{split.name}' has no labels to evaluate against")
    number = dict(zip(ood.split.label_names, ood.labels.labels, strict=True))
    return np.asarray([number[split.label_names[label]] for label in split.labels])


def evaluate_ood(
    ood: OODSet,
    mapped: Mapped,
    partner: Mapped | None,
    seen: Sequence[bool],
    majority: int,
) -> Evaluation:
    """Return the figures on an out-of-distribution set.

    Args:
        ood: The set.
        mapped: Predictions for its rows.
        partner: Predictions for the rows paired with them, if it has pairs. A pair is right if
            both its rows are (the contrast consistency of Gardner et al. 2020).
        seen: Which rows have a text that is in train, ``(rows,)``.
        majority: The class of the model that is most frequent in train.
    """
    truth = true_labels(ood.split, ood)
    names = ood.labels.label_names
    evaluation = evaluate(
        mapped.probabilities,
        truth.tolist(),
        names,
        seen,
        majority=ood.labels.targets[majority],
        predicted=mapped.predicted,
    )
    subsets: dict[str, Scores] = {}
    for column in ood.source.subsets or ():
        values = np.asarray(ood.split.meta[column])
        for value in sorted(set(ood.split.meta[column])):
            rows = values == value
            subsets[f"{column}: {value}"] = score_predictions(
                truth[rows], mapped.predicted[rows], names
            )
    if partner is None or ood.partner is None:
        return replace(evaluation, subsets=subsets)
    other = true_labels(ood.partner, ood)
    both = (mapped.predicted == truth) & (partner.predicted == other)
    return replace(
        evaluation,
        subsets=subsets,
        partner=score_predictions(other, partner.predicted, names),
        pair_accuracy=float(both.mean()),
    )
