"""Evaluation of a run on every labelled set, and of the classifier that it has exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auxlearn.core.errors import EncoderError, PluginError, RunError, plugin_title, some_of
from auxlearn.core.metric_names import SURROGATE
from auxlearn.core.processes import Processes
from auxlearn.core.settings import OODSource, Windowing
from auxlearn.data.audit import describe_cut, seen_in_train
from auxlearn.data.batches import Batch
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.ood import OODSet
from auxlearn.data.tokens import HEAD, Tokenization, TokenizedTexts
from auxlearn.encoders.device import Compute, default_device, upload
from auxlearn.encoders.load import load_classifier
from auxlearn.encoders.shared import SharedEncoder, pool_windows
from auxlearn.evaluation.metrics import evaluate, predictions_of, true_labels
from auxlearn.kinds.base import Kind
from auxlearn.kinds.predictions import Arrays, LabelMap, SetPredictions
from auxlearn.objectives.base import outputs_of, words_of
from auxlearn.results.folder import model_of
from auxlearn.results.predictions import write_predictions
from auxlearn.results.record import Evaluation, RunResults


@dataclass
class Evaluator:
    """Evaluates the encoder of a run; each of several processes predicts some of the examples."""

    encoder: SharedEncoder
    dataset: TextDataset
    ood_sets: Sequence[OODSet]
    tokenize: Callable[[Split], TokenizedTexts]
    compute: Compute
    predictions: Path  # folder
    processes: Processes
    count_unknown: bool  # whether labels that the model does not know are wrong, or leave a set out
    choose_thresholds: bool  # on dev
    #: Of the exported model's ``config.json``: what predictions, or their evaluation, need.
    entries: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        splits = (self._set_of(name, split) for name, split in self.dataset.everything.items())
        sets = [ood for ood in (*splits, *self.ood_sets) if ood is not None]
        self.sets = {ood.source.name: ood for ood in sets}
        self._dev = self.sets["dev"]
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
        return self._dev_texts if split is self._dev.split else self.tokenize(split)

    def dev_metrics(self, surrogate: str | None) -> dict[str, float]:
        """Return the metrics and the loss on dev, by name; the encoder is in evaluation mode."""
        dev, _ = self._predict_dev()
        metrics = dev.metrics() | {"loss": dev.loss()}
        return metrics if surrogate is None else metrics | {SURROGATE: dev.loss(surrogate)}

    def dev_baseline(self, metric: str) -> float:
        """Return a metric on dev for the constant prediction that is best for train."""
        kind, names = self.encoder.kind, self._dev.labels.label_names
        truth = true_labels(self._dev.split, self._dev)
        constant = [kind.repeated(self._constant, label) for label in truth]
        found = kind.scores(truth, constant, None, names)
        if metric not in found:  # the metric was checked against those that the kind has
            raise PluginError(f"scores of {plugin_title(kind)} has no {metric}")
        return found[metric]

    def evaluate_all(self) -> dict[str, Evaluation]:
        """Evaluate dev, test and further sets, and write the predictions and :attr:`entries`."""
        evaluations = {}
        with self.encoder.evaluating():
            dev, thresholds = self._predict_dev()
            for name, ood in self.sets.items():
                of_set = dev if ood is self._dev else self._predict(ood, ood.split, thresholds)
                partner = self._predict(ood, ood.partner, thresholds) if ood.partner else None
                truth, predicted = (
                    [of_set.kind.written(label, of_set.names) for label in labels]
                    for labels in (of_set.truth, of_set.predicted)
                )
                numbered = zip(map(of_set.kind.line, of_set.outputs), ood.split.ids, strict=True)
                path = self.predictions / f"{name}.jsonl"
                write_predictions(path, truth, predicted, (line | ids for line, ids in numbered))
                seen = seen_in_train(self.dataset.splits["train"], ood.split)
                evaluations[name] = evaluate(ood, of_set, partner, seen, self._constant)
        self.entries = self.encoder.kind.exported(self._constant, thresholds)
        return evaluations

    def _predict_dev(self) -> tuple[SetPredictions, np.ndarray | None]:
        """Return the predictions for dev, and the thresholds that are best on it, if asked for."""
        dev = self._predict(self._dev, self._dev.split, None)
        if not self.choose_thresholds:
            return dev, None
        thresholds = dev.kind.best_thresholds(dev.truth, dev.outputs)
        predicted = [dev.kind.decode(output, thresholds) for output in dev.outputs]
        return replace(dev, predicted=predicted), thresholds

    def _predict(self, ood: OODSet, split: Split, thresholds: np.ndarray | None) -> SetPredictions:
        kind = self.encoder.kind
        outputs = outputs_of(
            kind,
            self.encoder.classify,
            self.texts(split),
            words_of(kind, split.texts),
            self._constant,
            self.compute.autocast,
            self.processes,
        )
        return predictions_of(outputs, ood, split, thresholds)


@dataclass(frozen=True)
class Classifier:
    """The classifier that a run has exported."""

    model: Any  # the transformers classifier, in evaluation mode
    tokenizer: Any  # its tokenizer, whose model_max_length is the run's max_length
    device: torch.device
    results: RunResults  # of the run
    windowing: Windowing = HEAD  # how longer texts are read, as in the run
    notes: list[str] = field(default_factory=list)  # on the texts of which some were cut

    @classmethod
    def of_run(cls, run: Path) -> Classifier:
        """Load the model of a finished run, onto the GPU if there is one."""
        folder = model_of(run)
        device, results = default_device(), RunResults.load(run)
        model, tokenizer = load_classifier(folder, results.kind)
        written = model.config.to_dict()
        windowing = Windowing(**{n: written[n] for n in Windowing.model_fields if n in written})
        classifier = cls(model.to(device), tokenizer, device, results, windowing)
        known = results.dataset.label_names
        if list(classifier.label_names) != list(known):
            raise EncoderError(
                f"{folder} is not the model of this run: it has the labels "
                f"{some_of(classifier.label_names)}, the run {some_of(known)}; train again or copy "
                "the folder again"
            )
        return classifier

    @property
    def kind(self) -> Kind:
        """Kind of the labels."""
        return self.results.kind

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        names = self.model.config.id2label
        return tuple(names[number] for number in range(len(names)))

    def outputs(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, name: str = "the texts"
    ) -> Arrays:
        """Return the outputs of texts, cut or read in windows as in the run, float64: of single
        classes the probabilities of ``transformers.pipeline``.
        """
        if not texts:
            return []
        kind, tokenizer = self.kind, self.tokenizer
        tokenization = Tokenization(tokenizer, tokenizer.model_max_length, self.windowing)
        starts = tokenization.word_starts(texts) if kind.per_token else None
        tokens = tokenization.tokenize(texts, text_pairs, starts=starts)
        pairs = None if text_pairs is None else tuple(text_pairs)
        split = Split(name, tuple(texts), None, (), pairs)
        self.notes.extend(describe_cut(tokenization, split, tokens, None))
        constant = self.constant if kind.per_token else None
        outputs = outputs_of(kind, self._logits, tokens, words_of(kind, texts), constant)
        if not all(np.isfinite(output).all() for output in outputs):
            raise RunError("the model gives NaN for some texts: it is damaged, train again")
        return outputs

    @property
    def thresholds(self) -> np.ndarray | None:
        """Probability from which on each label is predicted; ``None`` for 0.5, or without any."""
        thresholds = getattr(self.model.config, "thresholds", None)
        return None if thresholds is None else np.asarray(thresholds, dtype=float)

    @cached_property
    def constant(self) -> Any:
        """The constant prediction of the run."""
        constant = getattr(self.model.config, "constant_prediction", None)
        if constant is not None:
            return constant
        _, predicted = next(iter(self.results.evaluations.values())).majority.class_counts()
        return max(predicted, key=lambda number: predicted[number])

    def evaluate(self, ood: OODSet, train: Split | None) -> Evaluation:
        """Evaluate on a set whose labels are mapped to those of the model, ``train`` beside it."""
        outputs = self.outputs(ood.split.texts, ood.split.text_pairs, ood.source.name)
        predictions = predictions_of(outputs, ood, ood.split, self.thresholds)
        seen = seen_in_train(train, ood.split) if train else None
        return evaluate(ood, predictions, None, seen, self.constant)

    def _logits(self, batch: Batch) -> Tensor:
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        if batch.token_type_ids is not None:
            inputs["token_type_ids"] = batch.token_type_ids
        logits = self.model(**{k: upload(v, self.device) for k, v in inputs.items()}).logits
        if self.kind.per_token:
            return logits
        return pool_windows(logits, batch, self.windowing.window_pooling)
