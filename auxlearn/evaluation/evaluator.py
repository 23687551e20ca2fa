"""Evaluation of a run: on dev during training, on every labelled set after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from auxlearn.core.errors import DataError
from auxlearn.core.metric_names import SURROGATE
from auxlearn.core.processes import Processes
from auxlearn.core.settings import Metric
from auxlearn.data.audit import seen_in_train
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.ood import LabelMap, OODSet
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import Compute
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.evaluation.metrics import (
    Predictions,
    Surrogate,
    evaluate,
    probability_blocks,
    reduce_predictions,
    score_predictions,
    surrogate_from_sums,
    surrogate_metric,
    to_model_labels,
)
from auxlearn.results.predictions import write_predictions
from auxlearn.results.record import MANY_LABELS, Evaluation, Scores


def map_predictions(
    probabilities: np.ndarray, labels: LabelMap, decision: Literal["sum", "argmax"]
) -> tuple[np.ndarray, np.ndarray]:
    """Map class probabilities to those of the labels of a set, and to predicted labels.

    Several classes of the model may correspond to one label, as neutral and contradiction do to
    the non-entailment of HANS: their probabilities are summed, and ``sum`` predicts the most likely
    label by that sum; ``argmax`` that of the most likely class, as in McCoy et al. (2019,
    https://arxiv.org/abs/1902.01007). Returns ``(examples, labels)`` and ``(examples,)``.
    """
    summed = np.zeros((len(probabilities), len(labels.label_names)))
    for number, target in enumerate(labels.targets):
        summed[:, target] += probabilities[:, number]
    if decision == "sum":
        return summed, summed.argmax(1)
    return summed, np.asarray(labels.targets)[probabilities.argmax(1)]


def true_labels(split: Split, ood: OODSet) -> np.ndarray:
    """Return the true labels of a split of the set, by class number, ``(examples,)``."""
    if split.labels is None:
        raise DataError(f"split '{split.name}' has no labels to evaluate against")
    number = dict(zip(ood.split.label_names, ood.labels.labels, strict=True))
    return np.asarray([number[split.label_names[label]] for label in split.labels])


def evaluate_ood(
    ood: OODSet,
    found: Predictions,
    partner: np.ndarray | None,
    seen: Sequence[bool] | None,
    majority: int,
) -> Evaluation:
    """Evaluate predictions on an out-of-distribution set.

    ``partner``: predicted labels of the examples paired with them. A pair is right if both are, the
    contrast consistency of Gardner et al. (2020, https://arxiv.org/abs/2004.02709). ``seen``: which
    examples have a text that is in train; ``majority``: the class most frequent there.
    """
    truth = true_labels(ood.split, ood)
    names = ood.labels.label_names
    evaluation = evaluate(
        found, truth, names, seen, majority=ood.labels.targets[majority], known=ood.labels.known
    )
    brief: Any = {"per_class": False, "confusion": False}
    subsets = subset_scores(
        ood, lambda rows: score_predictions(truth[rows], found.predicted[rows], names, **brief)
    )
    if partner is None or ood.partner is None:
        return replace(evaluation, subsets=subsets)
    other = true_labels(ood.partner, ood)
    both = (found.predicted == truth) & (partner == other)
    return replace(
        evaluation,
        subsets=subsets,
        partner=score_predictions(other, partner, names, **brief),
        pair_accuracy=float(both.mean()),
    )


def subset_scores(ood: OODSet, score: Callable[[np.ndarray], Scores]) -> dict[str, Scores]:
    """Return the scores of the rows with each value of each column of subsets."""
    columns = {name: ood.split.meta[name] for name in ood.source.subsets or ()}
    return {
        f"{name}: {value}": score(np.flatnonzero(np.asarray(values) == value))
        for name, values in columns.items()
        for value in sorted(set(values))
    }


#: Texts per forward pass without gradients.
EVAL_BATCH = 128


@dataclass
class RunEvaluator:
    """Evaluates the current weights of the encoder of a run.

    Of several processes each predicts some of the examples, and all have the same results.
    """

    encoder: SharedEncoder
    dataset: TextDataset
    ood_sets: Sequence[OODSet]
    tokenize: Callable[[Split], TokenizedTexts]
    compute: Compute
    predictions: Path  # folder
    processes: Processes

    def __post_init__(self) -> None:
        self.dev = self.dataset.splits["dev"]
        self._dev_texts = self.tokenize(self.dev)  # dev is evaluated repeatedly

    @cached_property
    def _dev_seen(self) -> list[bool]:
        return seen_in_train(self.dataset.splits["train"], self.dev)

    def texts(self, split: Split) -> TokenizedTexts:
        """Return the tokens of a split."""
        return self._dev_texts if split is self.dev else self.tokenize(split)

    def seen(self, split: Split) -> list[bool]:
        """Return which examples of a split have a text that is in train."""
        train = self.dataset.splits["train"]
        return self._dev_seen if split is self.dev else seen_in_train(train, split)


@dataclass
class Evaluator(RunEvaluator):
    """Evaluates single classes."""

    count_unknown: bool

    @cached_property
    def _majority(self) -> int:
        """The most frequent class of train."""
        return Counter(self.dataset.splits["train"].labels or ()).most_common(1)[0][0]

    def dev_metrics(self, surrogate: Surrogate | None) -> dict[str, float]:
        """Return accuracy, macro-F1 and loss on dev; the encoder is in evaluation mode."""
        labels = to_model_labels(self.dev, self._names(self.dev))
        found = self._predict(self.dev, labels)
        evaluation = self._score(self.dev, found, labels)
        metrics = {
            "accuracy": evaluation.all.accuracy,
            "macro_f1": evaluation.all.macro_f1,
            "loss": evaluation.loss,
        }
        if surrogate is not None:
            metrics[SURROGATE] = self._surrogate(found, np.asarray(labels), surrogate)
        return metrics

    def _surrogate(self, found: Predictions, labels: np.ndarray, surrogate: Surrogate) -> float:
        """Return a surrogate on the examples whose label the model knows."""
        classes = len(self.dataset.label_names)
        known = labels < classes
        if len(found.mass) > MANY_LABELS:
            return surrogate_from_sums(
                found.of_truth[known], found.mass[:classes], labels[known], surrogate
            )
        return surrogate_metric(found.probabilities[known, :classes], labels[known], surrogate)

    def dev_baseline(self, metric: Metric) -> float:
        """Return a metric on dev for always predicting the most frequent class of train."""
        names = self._names(self.dev)
        truth = to_model_labels(self.dev, names)
        constant = np.full(len(truth), self._majority)
        return score_predictions(truth, constant, names).metrics[metric]

    def evaluate_all(self) -> dict[str, Evaluation]:
        """Evaluate dev, test and every out-of-distribution set, and write the predictions."""
        evaluations = {}
        with self.encoder.evaluating():
            for name, split in (self.dataset.splits | self.dataset.ood).items():
                foreign = set(split.label_names) - set(self._names(split))
                if name == "train" or split.labels is None or foreign:
                    continue
                evaluations[name] = self._evaluate(name, split)
            for ood in self.ood_sets:
                evaluations[ood.source.name] = self._evaluate_ood(ood)
        return evaluations

    def _evaluate(self, name: str, split: Split) -> Evaluation:
        label_names = self._names(split)
        labels = to_model_labels(split, label_names)
        found = self._predict(split, labels)
        write_classes(self.predictions / f"{name}.jsonl", found, labels, label_names)
        return self._score(split, found, labels)

    def _evaluate_ood(self, ood: OODSet) -> Evaluation:
        found = self._predict_ood(ood, ood.split)
        partner = None if ood.partner is None else self._predict_ood(ood, ood.partner).predicted
        write_classes(
            self.predictions / f"{ood.source.name}.jsonl",
            found,
            true_labels(ood.split, ood).tolist(),
            ood.labels.label_names,
        )
        seen = self.seen(ood.split)
        return evaluate_ood(ood, found, partner, seen, self._majority)

    def _predict_ood(self, ood: OODSet, split: Split) -> Predictions:
        return reduce_predictions(
            self._blocks(split),
            true_labels(split, ood),
            len(ood.labels.label_names),
            lambda block: map_predictions(block, ood.labels, ood.source.decision),
        )

    def _predict(self, split: Split, labels: Sequence[int]) -> Predictions:
        classes = len(self.dataset.label_names)
        unknown = len(self._names(split)) - classes

        def decide(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.pad(block, ((0, 0), (0, unknown))), block.argmax(1)

        return reduce_predictions(
            self._blocks(split),
            labels,
            len(self._names(split)),
            decide if unknown else None,
            classes,
        )

    def _names(self, split: Split) -> tuple[str, ...]:
        """Return the classes of the model, then the labels of a split that it does not know."""
        names = self.dataset.label_names
        follows = self.count_unknown and split.label_names[: len(names)] == names
        return split.label_names if follows else names

    def _blocks(self, split: Split) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        classify, texts = self.encoder.classify, self.texts(split)
        return probability_blocks(
            classify, texts, EVAL_BATCH, self.compute.autocast, self.processes
        )

    def _score(self, split: Split, found: Predictions, labels: Sequence[int]) -> Evaluation:
        return evaluate(
            found,
            labels,
            self._names(split),
            self.seen(split),
            majority=self._majority,
            known=len(self.dataset.label_names),
        )


def write_classes(
    path: Path, found: Predictions, labels: Sequence[int], label_names: Sequence[str]
) -> None:
    """Write the predictions of classes; with many of them, the highest probabilities."""

    def numbers() -> Iterator[dict[str, Any]]:
        for classes, row in zip(found.top, found.probabilities, strict=True):
            values = [round(float(p), 8) for p in row]
            names = (label_names[number] for number in classes)
            many = len(label_names) > MANY_LABELS
            yield {"probabilities": dict(zip(names, values, strict=True)) if many else values}

    truth, said = ([label_names[int(n)] for n in one] for one in (labels, found.predicted))
    write_predictions(path, truth, said, numbers())
