"""Evaluation of a run: on dev during training, on every labelled set after it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from auxlearn.config import Metric
from auxlearn.data.audit import seen_in_train
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.ood import OODSet
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.precision import Compute
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.evaluation.metrics import (
    class_probabilities,
    evaluate,
    metric_of,
    score_predictions,
    to_model_labels,
)
from auxlearn.evaluation.ood import evaluate_ood, map_predictions, true_labels
from auxlearn.evaluation.surrogate import surrogate_metric
from auxlearn.files import write_bytes
from auxlearn.metric_keys import SURROGATE
from auxlearn.results.record import Evaluation

#: Texts per forward pass without gradients.
EVAL_BATCH = 128


class Evaluator:
    """Evaluates the current weights of the encoder of a run.

    Args:
        encoder: The encoder, with its classification head.
        dataset: The data set of the run.
        ood_sets: Out-of-distribution sets, whose labels may differ from those of the model.
        tokenize: Tokenizes a split.
        compute: Device and precision.
        predictions: Folder that :meth:`evaluate_all` writes predictions to.
    """

    def __init__(
        self,
        encoder: SharedEncoder,
        dataset: TextDataset,
        ood_sets: Sequence[OODSet],
        tokenize: Callable[[Split], TokenizedTexts],
        compute: Compute,
        predictions: Path,
    ) -> None:
        self._encoder = encoder
        self._dataset = dataset
        self._ood_sets = ood_sets
        self._tokenize = tokenize
        self._compute = compute
        self._predictions = predictions
        # Dev is evaluated repeatedly, so it is tokenized once.
        self._dev = dataset.splits["dev"]
        self._dev_texts = tokenize(self._dev)
        train_labels = dataset.splits["train"].labels or ()
        self._majority = Counter(train_labels).most_common(1)[0][0]

    def dev_metrics(self, surrogate: Metric | None) -> dict[str, float]:
        """Return accuracy, macro-F1 and loss on dev, by name.

        The encoder must be in evaluation mode.

        Args:
            surrogate: Metric whose differentiable surrogate is added under "surrogate"; ``None``
                adds none.
        """
        probabilities = self._probabilities(self._dev)
        evaluation = self._score(self._dev, probabilities)
        metrics = {
            "accuracy": evaluation.all.accuracy,
            "macro_f1": evaluation.all.macro_f1,
            "loss": evaluation.loss,
        }
        if surrogate is not None:
            labels = to_model_labels(self._dev, self._dataset.label_names)
            metrics[SURROGATE] = surrogate_metric(probabilities, labels, surrogate)
        return metrics

    def dev_baseline(self, metric: Metric) -> float:
        """Return a metric on dev for always predicting the most frequent class of train."""
        truth = to_model_labels(self._dev, self._dataset.label_names)
        constant = np.full(len(truth), self._majority)
        return metric_of(score_predictions(truth, constant, self._dataset.label_names), metric)

    def evaluate_all(self) -> dict[str, Evaluation]:
        """Evaluate dev, test and every out-of-distribution set, and write the predictions.

        Returns:
            The evaluation of each set by name; sets without labels are left out.
        """
        evaluations = {}
        with self._encoder.evaluating():
            for name, split in (self._dataset.splits | self._dataset.ood).items():
                if name == "train" or split.labels is None:
                    continue
                evaluations[name] = self._evaluate(name, split)
            for ood in self._ood_sets:
                evaluations[ood.source.name] = self._evaluate_ood(ood)
        return evaluations

    def _evaluate(self, name: str, split: Split) -> Evaluation:
        probabilities = self._probabilities(split)
        label_names = self._dataset.label_names
        write_predictions(
            self._predictions / f"{name}.jsonl",
            probabilities,
            to_model_labels(split, label_names),
            label_names,
        )
        return self._score(split, probabilities)

    def _evaluate_ood(self, ood: OODSet) -> Evaluation:
        decision = ood.source.decision
        mapped = map_predictions(self._probabilities(ood.split), ood.labels, decision)
        partner = None
        if ood.partner is not None:
            partner = map_predictions(self._probabilities(ood.partner), ood.labels, decision)
        write_predictions(
            self._predictions / f"{ood.source.name}.jsonl",
            mapped.probabilities,
            true_labels(ood.split, ood).tolist(),
            ood.labels.label_names,
            mapped.predicted,
        )
        seen = seen_in_train(self._dataset.splits["train"], ood.split)
        return evaluate_ood(ood, mapped, partner, seen, self._majority)

    def _probabilities(self, split: Split) -> np.ndarray:
        texts = self._dev_texts if split is self._dev else self._tokenize(split)
        return class_probabilities(
            self._encoder.classify, texts, EVAL_BATCH, self._compute.autocast
        )

    def _score(self, split: Split, probabilities: np.ndarray) -> Evaluation:
        label_names = self._dataset.label_names
        return evaluate(
            probabilities,
            to_model_labels(split, label_names),
            label_names,
            self._dev_seen if split is self._dev else self._seen(split),
            majority=self._majority,
        )

    @cached_property
    def _dev_seen(self) -> list[bool]:
        return self._seen(self._dev)

    def _seen(self, split: Split) -> list[bool]:
        return seen_in_train(self._dataset.splits["train"], split)


def write_predictions(
    path: Path,
    probabilities: np.ndarray,
    labels: list[int],
    label_names: tuple[str, ...],
    predicted: np.ndarray | None = None,
) -> None:
    """Write one JSON line per example: its label, the predicted label, the class probabilities.

    Args:
        path: The file.
        probabilities: Class probabilities, ``(examples, classes)``.
        labels: True classes.
        label_names: Names of all classes, in order.
        predicted: Predicted classes, ``(examples,)``; by default the most likely ones.
    """
    chosen = probabilities.argmax(1) if predicted is None else predicted
    lines = []
    for values, label, best in zip(probabilities, labels, chosen, strict=True):
        record = {
            "label": label_names[label],
            "predicted": label_names[int(best)],
            "probabilities": [round(float(p), 8) for p in values],
        }
        lines.append(json.dumps(record, ensure_ascii=False))
    write_bytes(path, ("\n".join(lines) + "\n").encode())
