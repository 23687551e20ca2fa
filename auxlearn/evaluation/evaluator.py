"""Evaluation of a run: on dev during training, on every labelled set after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from auxlearn.core.metric_names import SURROGATE
from auxlearn.core.processes import Processes
from auxlearn.core.settings import OODSource
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
    predictions_of,
    true_labels,
)
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.objectives.base import output_blocks, words_of
from auxlearn.results.predictions import write_predictions
from auxlearn.results.record import Evaluation


@dataclass
class Evaluator:
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
    count_unknown: bool  # whether labels that the model does not know are wrong, or leave a set out
    choose_thresholds: bool  # on dev

    def __post_init__(self) -> None:
        own = (self._set_of(name, one) for name, one in self.dataset.everything.items())
        self._sets = {one.source.name: one for one in (*own, *self.ood_sets) if one is not None}
        self._dev = self._sets["dev"]
        self._dev_texts = self.tokenize(self._dev.split)  # dev is evaluated repeatedly

    def _set_of(self, name: str, split: Split) -> OODSet | None:
        """Return a split as a set that a model is evaluated on, if it can be."""
        names, known = self.dataset.label_names, len(self.dataset.label_names)
        if self.count_unknown and split.label_names[:known] == names:
            names = split.label_names  # those that the model does not know follow
        if name == "train" or split.labels is None or not {*names} >= {*split.label_names}:
            return None
        labels = tuple(names.index(label) for label in split.label_names)
        source = OODSource.model_construct(dataset=name, name=name)
        return OODSet(source, split, LabelMap(names, tuple(range(known)), labels, known))

    @cached_property
    def _constant(self) -> Any:
        """The constant prediction that is best for train."""
        return self.encoder.kind.constant(self.dataset.splits["train"].labels or ())

    def texts(self, split: Split) -> TokenizedTexts:
        """Return the tokens of a split."""
        return self._dev_texts if split is self._dev.split else self.tokenize(split)

    def dev_metrics(self, surrogate: Surrogate | None) -> dict[str, float]:
        """Return the metrics and the loss on dev, by name; the encoder is in evaluation mode."""
        found, _ = self._predict_dev()
        metrics = found.metrics() | {"loss": found.loss()}
        return metrics if surrogate is None else metrics | {SURROGATE: found.loss(surrogate)}

    def dev_baseline(self, metric: str) -> float:
        """Return a metric on dev for the constant prediction that is best for train."""
        kind, names = self.encoder.kind, self._dev.labels.label_names
        truth = true_labels(self._dev.split, self._dev)
        constant = [kind.repeated(self._constant, label) for label in truth]
        return kind.scores(truth, constant, None, names)[metric]

    def evaluate_all(self) -> dict[str, Evaluation]:
        """Evaluate dev, test and further sets, and write the predictions; the exported
        configuration gets thresholds chosen on dev, and the constant prediction of any labels but
        single classes.
        """
        evaluations = {}
        with self.encoder.evaluating():
            dev, thresholds = self._predict_dev()
            for name, one in self._sets.items():
                found = dev if one is self._dev else self._predict(one, one.split, thresholds)
                partner = self._predict(one, one.partner, thresholds) if one.partner else None
                truth, said = (
                    [found.kind.written(label, found.names) for label in labels]
                    for labels in (found.truth, found.predicted)
                )
                path = self.predictions / f"{name}.jsonl"
                write_predictions(path, truth, said, found.lines())
                seen = seen_in_train(self.dataset.splits["train"], one.split)
                evaluations[name] = evaluate(one, found, partner, seen, self._constant)
        config = self.encoder.config
        if self.encoder.kind is not CLASSIFICATION:
            config.constant_prediction = self._constant
        if thresholds is not None:
            config.thresholds = thresholds.tolist()
        elif hasattr(config, "thresholds"):  # of a model that was trained further
            del config.thresholds
        return evaluations

    def _predict_dev(self) -> tuple[Predictions, np.ndarray | None]:
        """Return the predictions for dev, and the thresholds that are best on it, if asked for."""
        found = self._predict(self._dev, self._dev.split, None)
        if not self.choose_thresholds:
            return found, None
        thresholds = found.kind.best_thresholds(found.truth, found.outputs)
        said = [found.kind.decode(one, thresholds) for one in found.outputs]
        return replace(found, predicted=said), thresholds

    def _predict(self, ood: OODSet, split: Split, thresholds: np.ndarray | None) -> Predictions:
        kind = self.encoder.kind
        blocks = output_blocks(
            *(kind, self.encoder.classify, self.texts(split), words_of(kind, split.texts)),
            *(self._constant, self.compute.autocast, self.processes),
        )
        return predictions_of(blocks, ood, split, thresholds)
