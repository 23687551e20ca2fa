"""What is kept of the predictions for a set, of any kind of labels, and its scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from auxlearn.core.errors import DataError
from auxlearn.core.metric_names import SURROGATE, Quantity
from auxlearn.core.settings import Metric
from auxlearn.data.dataset import Split
from auxlearn.data.ood import LabelMap, OODSet
from auxlearn.kinds.base import Arrays, Kind, Labels
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.objectives.base import in_order
from auxlearn.results.record import Evaluation, Scores

TOP_CLASSES = 20  # classes of an example whose probabilities are kept, if there are many classes

#: One-sided 5% point of the normal distribution.
LEAST = 1.645

#: Numbers of texts and their outputs, of some texts at a time.
Blocks = Iterable[tuple[np.ndarray, Arrays]]


@dataclass(frozen=True)
class Predictions:
    """What is kept of the predictions for a set, one entry for each example."""

    kind: Kind
    names: Sequence[str]  # of the labels
    truth: Labels  # true labels, encoded
    predicted: Labels  # predicted labels, encoded
    outputs: Arrays
    unknown: int = 0  # examples whose label the model does not know

    def loss(self, metric: str = "") -> float:
        """Return the mean loss, or the smooth form of a metric."""
        return self.kind.mean_loss(self.truth, self.outputs, len(self.names), metric)

    def metrics(self) -> dict[str, float]:
        return self.kind.scores(self.truth, self.predicted, self.outputs, self.names)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield what a file of predictions holds of each example besides the labels."""
        return map(self.kind.line, self.outputs)

    def scores(self, rows: np.ndarray | None = None, whole: bool = False) -> Scores:
        """Return the scores of all examples, or of those of some rows."""
        truth, said, outputs = self.truth, self.predicted, self.outputs
        if rows is not None:
            truth, said, outputs = (
                [one[n] for n in rows.tolist()] for one in (truth, said, outputs)
            )
        return score(self.kind, truth, said, outputs, self.names, whole or rows is None)


@dataclass(frozen=True, kw_only=True)
class ClassPredictions(Predictions):
    """Predictions of single classes, as arrays; outputs are ``(examples, kept)``, float64: of very
    many classes the most likely ones. Losses are over the examples whose label the model knows.
    """

    of_truth: np.ndarray  # probability of the true class, (examples,)
    known: int  # number of the classes that the model can predict, which come first
    # Of very many classes:
    top: np.ndarray | None  # those that are kept, best first, (examples, kept)
    mass: np.ndarray  # sums over the examples whose label is known, (classes,)

    def loss(self, metric: str = "") -> float:
        knows = np.asarray(self.truth) < self.known
        if not knows.any():
            raise DataError(
                "the model knows none of the labels of the examples: map them by 'labels'"
            )
        truth, of_truth = np.asarray(self.truth)[knows], self.of_truth[knows]
        if metric and self.top is None:
            outputs = np.asarray(self.outputs)[knows, : self.known]
            return self.kind.mean_loss(truth, outputs, self.known, metric)
        if metric == "accuracy":
            return float(1 - of_truth.mean())
        if metric != "macro_f1":
            return float(-np.log(np.clip(of_truth, 1e-300, None)).mean())
        there = np.bincount(truth, minlength=self.known)
        overlap = 2 * np.bincount(truth, weights=of_truth, minlength=self.known)
        f1 = (overlap / (self.mass[: self.known] + there))[there > 0]
        return float(1 - f1.mean())

    def lines(self) -> Iterator[dict[str, Any]]:
        if self.top is None:
            yield from super().lines()
            return
        for classes, output in zip(self.top, self.outputs, strict=True):
            values = self.kind.line(output)["probabilities"]
            names = (self.names[number] for number in classes)
            yield {"probabilities": dict(zip(names, values, strict=True))}


def predictions_of(
    blocks: Blocks, ood: OODSet, split: Split, thresholds: np.ndarray | None = None
) -> Predictions:
    """Return predictions for a set, or for the examples paired with it, from blocks of outputs."""
    kind, labels, names = split.kind, ood.labels, ood.labels.label_names
    if kind is not CLASSIFICATION:
        outputs = in_order(blocks)
        said = [kind.decode(one, thresholds) for one in outputs]
        return Predictions(kind, names, true_labels(split, ood), said, outputs)
    truth, many = np.array(true_labels(split, ood)), kind.abridged(names)
    knows, kept = truth < labels.known, min(TOP_CLASSES, len(names)) if many else len(names)
    predicted, of_truth = np.empty(len(truth), dtype=np.int64), np.empty(len(truth))
    top = np.empty((len(truth), kept), dtype=np.int32) if many else None
    probabilities, mass = np.empty((len(truth), kept)), np.zeros(len(names))
    for rows, block in blocks:
        values, predicted[rows] = map_predictions(block, labels, ood.source.decision)
        of_truth[rows] = values[np.arange(len(rows)), truth[rows]]
        if top is not None:
            mass += values[knows[rows]].sum(0)
            top[rows] = best = _most_likely(values, kept)
            values = np.take_along_axis(values, best, 1)
        probabilities[rows] = values
    return ClassPredictions(
        *(kind, names, truth, predicted, probabilities, int((~knows).sum())),
        of_truth=of_truth,
        known=labels.known,
        top=top,
        mass=mass,
    )


def map_predictions(
    probabilities: Arrays, labels: LabelMap, decision: Literal["sum", "argmax"]
) -> tuple[np.ndarray, np.ndarray]:
    """Map class probabilities to those of the labels of a set, ``(examples, labels)``, summed where
    several classes have one label, and to predicted labels, ``(examples,)``: ``sum`` predicts by
    the sums, ``argmax`` the label of the most likely class, as in McCoy et al. (2019,
    https://arxiv.org/abs/1902.01007) for HANS.
    """
    found, shape = np.asarray(probabilities), (len(probabilities), len(labels.label_names))
    if labels.targets == tuple(range(shape[1])):
        summed = found
    else:
        summed = np.zeros(shape)
        for number, target in enumerate(labels.targets):
            summed[:, target] += found[:, number]
    if decision == "sum":
        return summed, summed.argmax(1)
    return summed, np.asarray(labels.targets)[found.argmax(1)]


def _most_likely(values: np.ndarray, count: int) -> np.ndarray:
    """Return the classes of the greatest values of each row, best first, ``(rows, count)``."""
    if count < values.shape[1]:
        found = np.sort(np.argpartition(-values, count, axis=1)[:, :count], axis=1)
    else:
        found = np.broadcast_to(np.arange(count), values.shape)
    order = np.argsort(-np.take_along_axis(values, found, 1), axis=1, kind="stable")
    return np.take_along_axis(found, order, 1)


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


def evaluate(
    ood: OODSet,
    found: Predictions,
    partner: Predictions | None,
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
    kind, names, truth = found.kind, found.names, found.truth
    unseen = np.flatnonzero(~np.asarray(seen, dtype=bool)) if seen is not None else np.array([])
    if kind is CLASSIFICATION:
        constant = ood.labels.targets[constant]
    constants = [kind.repeated(constant, label) for label in truth]
    columns = {name: ood.split.meta[name] for name in ood.source.subsets or ()}
    evaluation = Evaluation(
        all=found.scores(),
        # Those of classes are abridged although they may be of all examples.
        unseen=found.scores(unseen, len(unseen) == len(truth) and kind is not CLASSIFICATION)
        if len(unseen)
        else None,
        seen_examples=None if seen is None else len(truth) - len(unseen),
        majority=score(kind, truth, constants, None, names),
        loss=found.loss(),
        subsets={
            f"{name}: {value}": found.scores(np.flatnonzero(np.asarray(values) == value))
            for name, values in columns.items()
            for value in sorted(set(values))
        },
        unknown_labels=found.unknown,
        chance=no_better_than_chance(kind, truth, found.predicted, names),
    )
    if partner is None:
        return evaluation
    wrong = [
        kind.fault(one, said) + kind.fault(two, told)
        for one, said, two, told in zip(
            *(truth, found.predicted, partner.truth, partner.predicted), strict=True
        )
    ]
    return replace(
        evaluation,
        partner=score(kind, partner.truth, partner.predicted, None, names, False),
        pair_accuracy=wrong.count(0) / len(wrong),
    )


def no_better_than_chance(
    kind: Kind, truth: Labels, predicted: Labels, names: Sequence[str]
) -> str | None:
    """Return in what way predictions say nothing of the labels, as "the model ..." goes on;
    ``None`` if they say something, or if all labels are the same, so that nothing can show it.
    """
    true, told = kind.units(truth), kind.units(predicted)
    if len(set(true)) < 2:
        return None
    if len(set(told)) > 1:
        z = above_chance(true, told)
        if z > LEAST:
            return None
        return f"agrees with the labels no better than chance (z = {z:.2f}, not above {LEAST})"
    if kind.per_token:
        return "predicts the same for every word"
    label = kind.written(predicted[0], names)
    return f"predicts {'no label' if label == [] else repr(label)} for every example"


def above_chance(true: Sequence[Any], told: Sequence[Any]) -> float:
    """Return by how many standard deviations predictions agree better than when they are shuffled.

    Labels are numbers, or tuples of the names that they are made of. With rows f and g for labels
    and predictions, numbers or indicators of names less their means, the agreement is
    :math:`\\sum_i f_i g_i`; over all orders of the predictions its mean is 0 and its variance
    :math:`\\sum_{ij} (f_i g_j)^2 / (n - 1)`, which is the sum of the products of the entries of
    :math:`f^T f` and :math:`g^T g` over n - 1. Words count as if they were independent.
    """
    n = len(true)
    if isinstance(true[0], float):
        f, g = (csr_array((np.array(one) - np.mean(one))[:, None]) for one in (true, told))
    else:
        names = dict.fromkeys(name for label in (*true, *told) for name in label)
        columns = {name: number for number, name in enumerate(names)}
        f, g = (_indicators(one, columns) for one in (true, told))
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


#: What a validation loss stands for: a metric, or nothing but itself.
Surrogate = Metric | Literal["cross_entropy"]


def surrogate_report(
    entries: Sequence[Mapping[str, Any]], metric: Metric
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
