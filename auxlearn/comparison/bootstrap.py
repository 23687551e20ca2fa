"""Metrics on resampled examples, of all methods and seeds at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from auxlearn.config import Metric
from auxlearn.rng import derive_seed

#: Number of bootstrap resamples.
RESAMPLES = 2000
#: Resamples are drawn in chunks of at most this many counts, to bound memory.
_CHUNK = 2**19


@dataclass(frozen=True)
class Resampled:
    """A metric on the same resamples of one evaluation set.

    Attributes:
        examples: Number of examples of the set.
        values: Metric of each method by seed, arrays of shape ``(resamples,)``.
    """

    examples: int
    values: Mapping[str, Mapping[int, np.ndarray]]


def resample_counts(examples: int, resamples: int = RESAMPLES) -> Iterator[np.ndarray]:
    """Yield how often each resample has each example, in chunks ``(examples, resamples)``, float32.

    The random stream depends on the number of examples alone, so that all methods are compared on
    the same resamples.

    Args:
        examples: Number of examples.
        resamples: Number of resamples of all chunks together.
    """
    generator = np.random.default_rng(derive_seed(0, "bootstrap", examples))
    shares = np.full(examples, 1 / examples)
    chunk = max(8, _CHUNK // examples)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        counts = generator.multinomial(examples, shares, size=size)
        # Single precision holds every count below 2**24 exactly.
        yield np.ascontiguousarray(counts.T, dtype=np.float32)


def bootstrap_metrics(
    truth: np.ndarray, predicted: np.ndarray, classes: int, resamples: int = RESAMPLES
) -> dict[Metric, np.ndarray]:
    """Return each metric of each run on resampled examples.

    Efron and Tibshirani (1993), "An Introduction to the Bootstrap",
    https://doi.org/10.1201/9780429246593.

    Both metrics are functions of the number of predictions of each class and the number of these
    that are right. A run is therefore a sparse matrix with a one for each example, and its product
    with the counts of the resamples gives all of these numbers.

    Args:
        truth: True classes, ``(examples,)``, from 0.
        predicted: Predicted classes, ``(runs, examples)``.
        classes: Number of classes.
        resamples: Number of resamples.

    Returns:
        Arrays ``(runs, resamples)``, float64, by metric. Macro-F1 is the mean over the classes that
        occur in the labels or the predictions of the resample.
    """
    examples = len(truth)
    true_cells = _cells(truth, classes)
    cells = [_cells(2 * run + (run == truth), 2 * classes) for run in predicted]
    accuracy, macro_f1 = (np.empty((len(predicted), resamples)) for _ in range(2))
    done = 0
    for counts in resample_counts(examples, resamples):
        part = slice(done, done + counts.shape[1])
        done = part.stop
        occurring = (true_cells @ counts).T.astype(float)
        for number, matrix in enumerate(cells):
            found = (matrix @ counts).T.astype(float)
            hits = np.ascontiguousarray(found[:, 1::2])
            accuracy[number, part] = hits.sum(1) / examples
            either = occurring + (found[:, ::2] + hits)
            f1 = np.divide(2 * hits, either, out=np.zeros_like(either), where=either > 0)
            macro_f1[number, part] = f1.sum(1) / (either > 0).sum(1)
    return {"accuracy": accuracy, "macro_f1": macro_f1}


def _cells(numbers: np.ndarray, count: int) -> Any:
    """Return a sparse matrix ``(count, examples)`` with a one where an example has that number."""
    from scipy.sparse import csr_array

    order = np.argsort(numbers, kind="stable").astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count))])
    ones = np.ones(len(numbers), dtype=np.float32)
    return csr_array((ones, order, starts.astype(np.int32)), shape=(count, len(numbers)))
