"""Which of two runs predicts the same examples better, and by more than chance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from auxlearn.results.predictions import read_stored
from auxlearn.results.record import RunResults


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences, positive where the second model is better."""

    mean: float
    error: float


def example_weights(labels: np.ndarray, balanced: bool) -> np.ndarray:
    """Return weights of examples with mean 1; with ``balanced``, every class has the same sum."""
    if not balanced:
        return np.ones(len(labels))
    counts = np.bincount(labels)
    return np.asarray(len(labels) / (np.count_nonzero(counts) * counts[labels]))


def paired_difference(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> Difference:
    """Return the weighted mean of ``first - second`` with its error; weights have mean 1."""
    values = weights * (first - second)
    count = len(values)
    error = values.std(ddof=1) / np.sqrt(count) if count > 1 else np.inf
    return Difference(float(values.mean()), float(error))


@dataclass(frozen=True)
class ExampleErrors:
    """Errors of a run on the dev examples whose label the model knows."""

    labels: np.ndarray
    #: 1 for a wrong prediction; the share of wrong ones of examples with several; of numbers, by
    #: how much the prediction is off.
    wrong: np.ndarray

    @classmethod
    def of(cls, path: Path, results: RunResults) -> ExampleErrors:
        """Read them from the predictions of a run."""
        kind, names = results.kind, results.names_of("dev")
        stored = read_stored(path, "dev", kind, names)
        wrong = np.array(
            [
                kind.fault(truth, predicted) / kind.most_faults(truth, names)
                for truth, predicted in zip(stored.truth, stored.predicted, strict=True)
            ]
        )
        if not kind.offers("unknown_labels count"):
            return cls(np.zeros(len(wrong), dtype=int), wrong)
        labels = np.array(stored.truth)
        known = labels < len(results.dataset.label_names)
        return cls(labels[known], wrong[known])

    def minus(self, other: ExampleErrors, balanced: bool) -> Difference:
        """Return by how much the errors of the other run are smaller."""
        weights = example_weights(self.labels, balanced)
        return paired_difference(self.wrong, other.wrong, weights)
