"""Evaluation of labels of any kind but single classes: outputs, scores, files of predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from auxlearn.core.metric_names import SURROGATE
from auxlearn.data.dataset import Split
from auxlearn.data.ood import OODSet
from auxlearn.evaluation.evaluator import RunEvaluator, subset_scores
from auxlearn.kinds.base import Kind
from auxlearn.objectives.base import outputs_of, words_of
from auxlearn.results.predictions import write_predictions
from auxlearn.results.record import Evaluation, Scores


def evaluate_labels(
    kind: Kind,
    truth: Sequence[Any],
    predicted: Sequence[Any],
    outputs: Sequence[np.ndarray],
    names: Sequence[str],
    *,
    seen: Sequence[bool] | None,
    constant: Any,
) -> Evaluation:
    """Evaluate predictions on all examples of a set, and on those whose text is not in train."""
    unseen = [row for row in range(len(truth)) if seen is not None and not seen[row]]
    new: list[Any] = [[one[row] for row in unseen] for one in (truth, predicted, outputs)]
    all_new = len(unseen) == len(truth)
    return Evaluation(
        all=score_labels(kind, truth, predicted, outputs, names),
        unseen=score_labels(kind, new[0], new[1], new[2], names, all_new) if unseen else None,
        seen_examples=None if seen is None else len(truth) - len(unseen),
        majority=score_labels(
            kind, truth, [kind.repeated(constant, label) for label in truth], None, names
        ),
        loss=kind.mean_loss(truth, outputs, len(names), ""),
    )


def with_subsets(
    found: Evaluation,
    ood: OODSet,
    predicted: Sequence[Any],
    outputs: Sequence[np.ndarray],
    partner: Sequence[Any] | None,
) -> Evaluation:
    """Add the scores of subsets and of paired examples; a pair is right if no label is wrong."""
    kind, truth, names = ood.split.kind, ood.split.labels or (), ood.split.label_names

    def score(rows: np.ndarray) -> Scores:
        of: list[Any] = [[one[row] for row in rows] for one in (truth, predicted, outputs)]
        return score_labels(kind, of[0], of[1], of[2], names, False)

    subsets = subset_scores(ood, score)
    if partner is None or ood.partner is None:
        return replace(found, subsets=subsets)
    other = ood.partner.labels or ()
    wrong = [
        kind.fault(one, said) + kind.fault(two, told)
        for one, said, two, told in zip(truth, predicted, other, partner, strict=True)
    ]
    return replace(
        found,
        subsets=subsets,
        partner=score_labels(kind, other, partner, None, names),
        pair_accuracy=wrong.count(0) / len(wrong),
    )


def score_labels(
    kind: Kind,
    truth: Sequence[Any],
    predicted: Sequence[Any],
    outputs: Sequence[np.ndarray] | None,
    names: Sequence[str],
    whole: bool = True,
) -> Scores:
    """Return scores; those by class where there are outputs, and of a whole set alone."""
    by_class = whole and outputs is not None
    return Scores(
        examples=len(truth),
        metrics=kind.scores(truth, predicted, outputs, names),
        per_class=kind.per_class(truth, predicted, names) if by_class else {},
        confusion=[],
    )


@dataclass
class LabelEvaluator(RunEvaluator):
    """Evaluates labels of any kind but single classes."""

    choose_thresholds: bool  # on dev

    @property
    def _kind(self) -> Kind:
        return self.encoder.kind

    @cached_property
    def _constant(self) -> Any:
        """The constant prediction that is best for train."""
        return self._kind.constant(self.dataset.splits["train"].labels or ())

    def dev_metrics(self, surrogate: str | None) -> dict[str, float]:
        """Return the metrics and the loss on dev, by name; the encoder is in evaluation mode."""
        outputs = self._outputs(self.dev)
        found = self._score(self.dev, self._decoded(outputs, self._thresholds(outputs)), outputs)
        metrics = found.all.metrics | {"loss": found.loss}
        if surrogate is not None:
            metrics[SURROGATE] = self._kind.mean_loss(
                self._truth(self.dev), outputs, len(self.dataset.label_names), surrogate
            )
        return metrics

    def dev_baseline(self, metric: str) -> float:
        """Return a metric on dev for the constant prediction that is best for train."""
        truth = self._truth(self.dev)
        constant = [self._kind.repeated(self._constant, label) for label in truth]
        return self._kind.scores(truth, constant, None, self.dataset.label_names)[metric]

    def evaluate_all(self) -> dict[str, Evaluation]:
        """Evaluate dev, test and further sets, and write the predictions; the exported
        configuration gets the constant prediction, and thresholds chosen on dev.
        """
        evaluations = {}
        with self.encoder.evaluating():
            thresholds = self._thresholds(self._outputs(self.dev))
            for name, split in self._labelled():
                evaluations[name], *_ = self._evaluate(name, split, thresholds)
            for ood in self.ood_sets:
                name = ood.source.name
                found, said, outputs = self._evaluate(name, ood.split, thresholds)
                paired = self._outputs(ood.partner) if ood.partner else None
                partner = None if paired is None else self._decoded(paired, thresholds)
                evaluations[name] = with_subsets(found, ood, said, outputs, partner)
        config = self.encoder.config
        config.constant_prediction = self._constant
        if thresholds is not None:
            config.thresholds = thresholds.tolist()
        elif hasattr(config, "thresholds"):  # of a model that was trained further
            del config.thresholds
        return evaluations

    def _evaluate(
        self, name: str, split: Split, thresholds: np.ndarray | None
    ) -> tuple[Evaluation, list[Any], list[np.ndarray]]:
        """Evaluate a set and write its predictions; return them and the outputs as well."""
        outputs, names = self._outputs(split), self.dataset.label_names
        predicted = self._decoded(outputs, thresholds)
        write_predictions(
            self.predictions / f"{name}.jsonl",
            [self._kind.written(label, names) for label in self._truth(split)],
            [self._kind.written(label, names) for label in predicted],
            map(self._kind.line, outputs),
        )
        return self._score(split, predicted, outputs), predicted, outputs

    def _decoded(self, outputs: Sequence[np.ndarray], thresholds: np.ndarray | None) -> list[Any]:
        return [self._kind.decode(output, thresholds) for output in outputs]

    def _labelled(self) -> Iterator[tuple[str, Split]]:
        for name, split in (self.dataset.splits | self.dataset.ood).items():
            same = split.label_names == self.dataset.label_names
            if name != "train" and split.labels is not None and same:
                yield name, split

    def _truth(self, split: Split) -> Sequence[Any]:
        assert split.labels is not None
        return split.labels

    def _thresholds(self, outputs: Sequence[np.ndarray]) -> np.ndarray | None:
        if not self.choose_thresholds:
            return None
        return self._kind.best_thresholds(self._truth(self.dev), outputs)

    def _outputs(self, split: Split) -> list[np.ndarray]:
        return outputs_of(
            self._kind,
            self.encoder.classify,
            self.texts(split),
            words_of(self._kind, split.texts),
            self._constant,
            self.compute.autocast,
            self.processes,
        )

    def _score(
        self, split: Split, predicted: Sequence[Any], outputs: Sequence[np.ndarray]
    ) -> Evaluation:
        return evaluate_labels(
            self._kind,
            self._truth(split),
            predicted,
            outputs,
            self.dataset.label_names,
            seen=self.seen(split),
            constant=self._constant,
        )
