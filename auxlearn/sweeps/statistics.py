"""Whether a difference between methods is more than chance: pure functions of numbers.

Two things vary: the seed, and which rows happen to be in the evaluation set. A difference counts
only if neither explains it: a paired permutation test over seeds and a paired bootstrap over rows
both have to reject, so the larger of the two p-values stands for the pair (an intersection-union
test, whose level is that of its parts).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from auxlearn.config import Metric
from auxlearn.streams import derive_seed

#: Level of all tests.
ALPHA = 0.05
#: Sign patterns up to which the permutation test takes all; beyond, it draws this many.
PATTERNS = 2**13
#: Resamples of the rows.
RESAMPLES = 2000
#: Share of true differences of the minimum detectable size that are found.
POWER = 0.8


@dataclass(frozen=True)
class Predictions:
    """Predicted classes of one method on one evaluation set.

    Attributes:
        truth: True classes, ``(rows,)``.
        predicted: Predicted classes by seed, ``(seeds, rows)``.
        classes: How many classes there are.
    """

    truth: np.ndarray
    predicted: np.ndarray
    classes: int


@dataclass(frozen=True)
class Pair:
    """Two methods compared on the same seeds.

    Attributes:
        first: The method with the higher mean.
        second: The other.
        difference: Mean over seeds of first minus second.
        p_seeds: Permutation test over seeds.
        p_rows: Bootstrap over rows; ``None`` if there are no predictions.
        p: The larger of the two, corrected by Holm for all pairs of the column.
    """

    first: str
    second: str
    difference: float
    p_seeds: float
    p_rows: float | None
    p: float


def permutation_test(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired permutation test.

    If the methods are the same, every difference could as well have the other sign. All sign
    patterns are tried up to :data:`PATTERNS` of them, else so many are drawn.

    Args:
        differences: Of one method to the other, one for each seed.

    Returns:
        The share of the patterns whose mean is at least as far from 0. With n seeds it cannot be
        below ``2 ** (1 - n)``. 1 if there are fewer than two seeds.
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2 or not values.any():
        return 1.0
    means = np.abs(_sign_patterns(len(values)) @ values)
    # Sums of the same numbers in another order differ in the last digits.
    extreme = int((means >= abs(values.sum()) * (1 - 1e-10)).sum())
    if len(means) == 2 ** len(values):
        return extreme / len(means)
    return (extreme + 1) / (len(means) + 1)


@lru_cache(maxsize=32)
def _sign_patterns(count: int) -> np.ndarray:
    """Return all patterns of so many signs, or :data:`PATTERNS` drawn ones, one in each row."""
    if 2**count <= PATTERNS:
        bits = np.arange(2**count)[:, None] >> np.arange(count) & 1
    else:
        draws = np.random.default_rng(derive_seed(0, "permutation test", count))
        bits = draws.integers(0, 2, (PATTERNS, count))
    return 1.0 - 2.0 * bits


def bootstrap_scores(predictions: Predictions, metric: Metric, weights: np.ndarray) -> np.ndarray:
    """Return the metric on resampled rows, mean over seeds, ``(resamples,)``.

    Args:
        predictions: Of one method.
        metric: Which one; macro-F1 is the mean over classes that occur in labels or predictions.
        weights: How often each row is drawn, ``(resamples, rows)``.
    """
    truth, scores = predictions.truth, []
    for predicted in predictions.predicted:
        if metric == "accuracy":
            scores.append(weights @ (predicted == truth) / weights.sum(1))
            continue
        classes = np.arange(predictions.classes)
        is_true = truth[:, None] == classes
        is_predicted = predicted[:, None] == classes
        hits = weights @ (is_true & is_predicted)
        found = weights @ is_true.astype(float) + weights @ is_predicted.astype(float)
        f1 = np.divide(2 * hits, found, out=np.zeros_like(found), where=found > 0)
        scores.append(f1.sum(1) / (found > 0).sum(1))
    return np.asarray(np.mean(scores, axis=0))


def resample_weights(rows: int, resamples: int = RESAMPLES) -> np.ndarray:
    """Return how often each row is drawn in each resample, ``(resamples, rows)``.

    The draws depend on the number of rows alone: methods are compared on the same resamples.
    """
    draws = np.random.default_rng(derive_seed(0, "bootstrap", rows))
    return draws.multinomial(rows, np.full(rows, 1 / rows), size=resamples).astype(float)


def bootstrap_test(differences: np.ndarray) -> float:
    """Return the two-sided p-value of resampled differences: how often the sign turns, twice."""
    count = len(differences)
    below, above = (differences <= 0).sum(), (differences >= 0).sum()
    return float(min(1.0, 2 * (min(below, above) + 1) / (count + 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's step-down method.

    Holm, S. (1979), "A simple sequentially rejective multiple test procedure".
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def compare_methods(
    scores: Mapping[str, Mapping[int, float]],
    predictions: Mapping[str, Mapping[int, Predictions]] | None = None,
    metric: Metric = "accuracy",
) -> list[Pair]:
    """Compare every two methods on the seeds that both have.

    The correction is for all pairs, not only for those with the best: which method is best is
    seen in the same figures, and a test of the best against the others alone would forget that.

    Args:
        scores: Figure of each method by seed.
        predictions: Of each method by seed; a pair without is tested over seeds alone.
        metric: What the figures are.
    """
    raw = []
    for a, b in itertools.combinations(scores, 2):
        seeds = sorted(set(scores[a]) & set(scores[b]))
        differences = [scores[a][seed] - scores[b][seed] for seed in seeds]
        p_seeds = permutation_test(differences)
        p_rows = None
        if predictions is not None and seeds:
            p_rows = _row_test(predictions[a], predictions[b], seeds, metric)
        mean = float(np.mean(differences)) if seeds else 0.0
        names = (a, b) if mean >= 0 else (b, a)
        raw.append((*names, abs(mean), p_seeds, p_rows))
    corrected = holm([max(p_seeds, p_rows or 0.0) for *_, p_seeds, p_rows in raw])
    return [Pair(*values, p) for values, p in zip(raw, corrected, strict=True)]


def _row_test(
    first: Mapping[int, Predictions],
    second: Mapping[int, Predictions],
    seeds: Sequence[int],
    metric: Metric,
) -> float:
    one, other = _stack(first, seeds), _stack(second, seeds)
    weights = resample_weights(len(one.truth))
    return bootstrap_test(
        bootstrap_scores(one, metric, weights) - bootstrap_scores(other, metric, weights)
    )


def _stack(by_seed: Mapping[int, Predictions], seeds: Sequence[int]) -> Predictions:
    members = [by_seed[seed] for seed in seeds]
    predicted = np.concatenate([member.predicted for member in members])
    return Predictions(members[0].truth, predicted, members[0].classes)


def indistinguishable(best: str, pairs: Sequence[Pair], alpha: float = ALPHA) -> set[str]:
    """Return the methods whose difference to the best may be chance."""
    found = set()
    for pair in pairs:
        if best in (pair.first, pair.second) and pair.p > alpha:
            found.add(pair.second if pair.first == best else pair.first)
    return found


def fewest_seeds(pairs: int, alpha: float = ALPHA) -> int:
    """Return how many seeds the permutation test needs before it can reject at all.

    Args:
        pairs: How many pairs Holm's method corrects for.
        alpha: Level.
    """
    return math.ceil(1 + math.log2(max(1, pairs) / alpha))


def minimum_detectable_difference(
    spreads: Sequence[float], seeds: int, alpha: float = ALPHA, power: float = POWER
) -> float:
    """Return the true difference that this many seeds find with the given power.

    By the paired t-test's power at Holm's first step, level alpha over the number of pairs; the
    permutation test is close to it where it can reject at all.

    Args:
        spreads: Standard deviation over seeds of the paired difference, one for each pair.
        seeds: How many there are.
        alpha: Level before the correction.
        power: Share of such differences that are found.

    Returns:
        The difference in the unit of the spreads; infinite with fewer than :func:`fewest_seeds`.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if not spreads or seeds < fewest_seeds(len(spreads), alpha):
        return math.inf
    spread = math.sqrt(float(np.mean(np.square(spreads))))
    if spread == 0:
        return 0.0
    free = seeds - 1
    critical = t.ppf(1 - alpha / len(spreads) / 2, free)

    def missing(shift: float) -> float:
        # The far tail is so small that SciPy gives NaN for it.
        far = np.nan_to_num(nct.cdf(-critical, free, shift))
        return float(1 - nct.cdf(critical, free, shift) + far) - power

    highest = critical
    while missing(highest) < 0:
        highest *= 1.5
    shift = brentq(missing, 0.0, highest)
    return float(shift) * spread / math.sqrt(seeds)


def mean_interval(values: Sequence[float], level: float = 0.95) -> float:
    """Return half the width of Student's interval of the mean; 0 for a single value."""
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    spread = float(np.std(values, ddof=1))
    return float(t.ppf(0.5 + level / 2, len(values) - 1)) * spread / math.sqrt(len(values))
