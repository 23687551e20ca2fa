"""Scores of the predictions for a set, of any kind of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from auxlearn.core.errors import DataError
from auxlearn.core.metric_names import SURROGATE, Quantity
from auxlearn.data.dataset import Split
from auxlearn.data.ood import OODSet
from auxlearn.kinds.base import Kind
from auxlearn.kinds.predictions import Arrays, Labels, SetPredictions
from auxlearn.results.record import Evaluation, Scores

#: One-sided 5% point of the normal distribution.
LEAST = 1.645


def predictions_of(
    outputs: Arrays, ood: OODSet, split: Split, thresholds: np.ndarray | None = None
) -> SetPredictions:
    """Return predictions for a set, or for the examples paired with it."""
    truth = true_labels(split, ood)
    return split.kind.collect(outputs, truth, ood.labels, ood.source.decision, thresholds)


def true_labels(split: Split, ood: OODSet) -> list[Any]:
    """Return the true labels of a split by the numbers of the labels of a set."""
    if split.labels is None:
        raise DataError(f"split '{split.name}' has no labels to evaluate against")
    number = dict(zip(ood.split.label_names, ood.labels.labels, strict=True))
    written = (split.kind.written(label, split.label_names) for label in split.labels)
    return [split.kind.encode(label, number) for label in written]


def score(
    kind: Kind,
    truth: Labels,
    predicted: Labels,
    outputs: Arrays | None,
    names: Sequence[str],
    whole: bool = True,
) -> Scores:
    """Return scores, of a whole set or of a part of it; without outputs, of a constant."""
    by_class = (whole and outputs is not None) or not kind.abridged(names)
    return Scores(
        examples=len(truth),
        metrics=kind.scores(truth, predicted, outputs, names),
        per_class=kind.per_class(truth, predicted, names) if by_class else {},
        confusion=kind.confusion(truth, predicted, names, whole),
    )


def scores_of(
    of_set: SetPredictions, rows: np.ndarray | None = None, whole: bool = False
) -> Scores:
    """Return the scores of all examples, or of those of some rows."""
    truth, predicted, outputs = of_set.truth, of_set.predicted, of_set.outputs
    if rows is not None:
        truth, predicted, outputs = (
            [column[row] for row in rows.tolist()] for column in (truth, predicted, outputs)
        )
    return score(of_set.kind, truth, predicted, outputs, of_set.names, whole or rows is None)


def evaluate(
    ood: OODSet,
    predictions: SetPredictions,
    partner: SetPredictions | None,
    seen: Sequence[bool] | None,
    constant: Any,
) -> Evaluation:
    """Evaluate predictions on all examples of a set, and on those whose text is not ``seen`` in
    train. Labels that the model does not know are classes of the metrics all the same, wrong in
    accuracy and with an F1 of 0; the loss is over the other examples.

    Of ``partner``, predictions for examples paired with them, a pair is right if no label of the
    two is wrong, the contrast consistency of Gardner et al. (2020,
    https://arxiv.org/abs/2004.02709). ``constant`` is the constant prediction that is best for
    train, by the labels of the model.
    """
    kind, names, truth = predictions.kind, predictions.names, predictions.truth
    unseen = np.flatnonzero(~np.asarray(seen, dtype=bool)) if seen is not None else np.array([])
    # By the labels of the model, whose names are those that its classes have in the set.
    of_model = [names[target] for target in ood.labels.targets]
    numbers = {name: number for number, name in enumerate(names)}
    constants = [
        kind.encode(kind.written(kind.repeated(constant, label), of_model), numbers)
        for label in truth
    ]
    columns = {name: ood.split.meta[name] for name in ood.source.subsets or ()}
    evaluation = Evaluation(
        all=scores_of(predictions),
        unseen=scores_of(predictions, unseen, len(unseen) == len(truth)) if len(unseen) else None,
        seen_examples=None if seen is None else len(truth) - len(unseen),
        majority=score(kind, truth, constants, None, names),
        loss=predictions.loss(),
        subsets={
            f"{name}: {value}": scores_of(predictions, np.flatnonzero(np.asarray(values) == value))
            for name, values in columns.items()
            for value in sorted(set(values))
        },
        unknown_labels=predictions.unknown,
        chance=no_better_than_chance(kind, truth, predictions.predicted, names),
    )
    if partner is None:
        return evaluation
    faults = [kind.fault(*pair) for pair in zip(truth, predictions.predicted, strict=True)]
    pairs = zip(partner.truth, partner.predicted, strict=True)
    wrong = [fault + kind.fault(*pair) for fault, pair in zip(faults, pairs, strict=True)]
    return replace(
        evaluation,
        partner=score(kind, partner.truth, partner.predicted, None, names, False),
        pair_accuracy=wrong.count(0) / len(wrong),
    )


def no_better_than_chance(
    kind: Kind, truth: Labels, predicted: Labels, names: Sequence[str]
) -> str | None:
    """Return in what way predictions say nothing of the labels; ``None`` if they say something."""
    true, guesses = kind.units(truth), kind.units(predicted)
    if len(set(true)) < 2:
        return None
    if len(set(guesses)) > 1:
        z = above_chance(true, guesses)
        if z > LEAST:
            return None
        return f"agrees with the labels no better than chance (z = {z:.2f}, not above {LEAST})"
    if kind.per_token:
        return "predicts the same for every word"
    label = kind.written(predicted[0], names)
    return f"predicts {'no label' if label == [] else repr(label)} for every example"


def above_chance(true: Sequence[Any], guesses: Sequence[Any]) -> float:
    """Return by how many standard deviations predictions agree better than when they are shuffled.

    Labels are numbers, or tuples of the names that they are made of. With rows f and g for labels
    and predictions, numbers or indicators of names less their means, the agreement is
    :math:`\\sum_i f_i g_i`; over all orders of the predictions its mean is 0 and its variance
    :math:`\\sum_{ij} (f_i g_j)^2 / (n - 1)`, which is the sum of the products of the entries of
    :math:`f^T f` and :math:`g^T g` over n - 1. Words count as if they were independent.
    """
    n = len(true)
    if isinstance(true[0], float):
        f, g = (csr_array((np.array(x) - np.mean(x))[:, None]) for x in (true, guesses))
    else:
        names = dict.fromkeys(name for label in (*true, *guesses) for name in label)
        columns = {name: number for number, name in enumerate(names)}
        f, g = (_indicators(values, columns) for values in (true, guesses))
    # The means are taken from the sums, so that the rows stay sparse.
    mean_f, mean_g, ff, gg = f.mean(0), g.mean(0), f.T @ f, g.T @ g
    expected = n * (mean_f @ mean_g)
    squares = (ff * gg).sum() - n * (mean_f @ (gg @ mean_f) + mean_g @ (ff @ mean_g))
    variance = (squares + expected**2) / (n - 1)
    return float(((f * g).sum() - expected) / np.sqrt(variance)) if variance > 0 else 0.0


def _indicators(labels: Sequence[tuple[Any, ...]], columns: Mapping[Any, int]) -> csr_array:
    places = [columns[name] for label in labels for name in label]
    ends = np.cumsum([0, *map(len, labels)])
    return csr_array((np.ones(len(places)), places, ends), shape=(len(labels), len(columns)))


def surrogate_report(
    entries: Sequence[Mapping[str, Any]], metric: str
) -> dict[str, float | int | None] | None:
    """Return how well the surrogate agreed with the metric over the evaluations of a run."""
    from scipy.stats import spearmanr

    key, surrogate = Quantity.DEV.key(metric), Quantity.DEV.key(SURROGATE)
    pairs = [(entry[key], -entry[surrogate]) for entry in entries if surrogate in entry]
    if not pairs:
        return None
    left, right = zip(*pairs, strict=True)
    defined = len(pairs) > 2 and len(set(left)) > 1 and len(set(right)) > 1
    correlation = float(spearmanr(left, right).statistic) if defined else None
    return {"spearman": correlation, "evaluations": len(pairs)}
