"""Whether a difference between methods is more than chance: pure functions of numbers.

Two things vary: the seed, and which examples happen to be in the evaluation set. A difference
counts only if neither explains it, nor both together. So three tests have to reject, and the
largest of their p-values stands for the pair:

- over seeds, a paired permutation test (Good, 2005); with too few seeds for it to reject at all,
  the paired t-test, which assumes normal differences;
- over examples, a paired bootstrap (Efron and Tibshirani, 1993);
- over both, a t-test whose standard error has the variance of seeds and that of examples, less
  their interaction, which is in both (Cameron, Gelbach and Miller, 2011, equation 2.9), with the
  degrees of freedom of Satterthwaite (1946).

The first two alone are not enough. Each asks whether one source of chance suffices when the other
is held: where both are of a size, the difference varies more than either knows of (Clark, 1973).
``python -m benchmarks.significance`` measures how often each rejects wrongly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from auxlearn.comparison.bootstrap import Resampled
from auxlearn.rng import derive_seed

#: Level of all tests.
ALPHA = 0.05
#: Sign patterns up to which the permutation test takes all; beyond, it draws this many.
PATTERNS = 2**13
#: Seeds below which nothing is told apart: the spread of two says next to nothing.
MINIMUM_SEEDS = 3

SeedTest = Literal["permutation", "t"]


@dataclass(frozen=True)
class Noise:
    """Variances of the mean difference of two methods.

    Attributes:
        seeds: What the draw of the seeds adds, ``s**2 / n``; 0 with fewer than two seeds.
        examples: What the draw of the examples adds: the bootstrap's variance.
        interaction: The part that is in both, because a seed errs on examples of its own.
    """

    seeds: float
    examples: float = 0.0
    interaction: float = 0.0

    @property
    def total(self) -> float:
        """The variance from both sources, never less than that of one of them."""
        return max(self.seeds, self.examples, self.seeds + self.examples - self.interaction)


@dataclass(frozen=True)
class Pair:
    """Two methods compared on the same seeds.

    Attributes:
        first: The method with the higher mean.
        second: The other.
        difference: Mean over seeds of first minus second.
        p_seeds: Test over seeds.
        p_rows: Bootstrap over examples; ``None`` if there are no predictions.
        p_both: t-test with the variance of seeds and examples; ``None`` without predictions.
        p: The largest of them, corrected by Holm for all pairs of the column.
        seed_test: Which test ``p_seeds`` is of.
        noise: How much the difference varies.
    """

    first: str
    second: str
    difference: float
    p_seeds: float
    p_rows: float | None
    p_both: float | None
    p: float
    seed_test: SeedTest
    noise: Noise


def permutation_test(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired permutation test.

    If the methods are the same, every difference could as well have the other sign. All sign
    patterns are tried up to :data:`PATTERNS` of them, else so many are drawn.

    Args:
        differences: Of one method to the other, one for each seed.

    Returns:
        The share of the patterns whose mean is at least as far from 0. With n seeds it cannot be
        below ``2 ** (1 - n)``. 1 if there are fewer than two seeds.

    Examples:
        Of the 16 sign patterns of four seeds, two have a mean as far from 0 as this one.

        >>> permutation_test([0.5, 0.2, 0.4, 0.1])
        0.125
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2 or not values.any():
        return 1.0
    means = np.abs(sign_patterns(len(values)) @ values)
    # Sums of the same numbers in another order differ in the last digits of their terms; the sum
    # itself may be 0.
    tolerance = 1e-10 * np.abs(values).sum()
    extreme = int((means >= abs(values.sum()) - tolerance).sum())
    if len(means) == 2 ** len(values):
        return extreme / len(means)
    return (extreme + 1) / (len(means) + 1)


@lru_cache(maxsize=32)
def sign_patterns(count: int) -> np.ndarray:
    """Return all patterns of so many signs, or :data:`PATTERNS` drawn ones, one in each row."""
    if 2**count <= PATTERNS:
        bits = np.arange(2**count)[:, None] >> np.arange(count) & 1
    else:
        draws = np.random.default_rng(derive_seed(0, "permutation test", count))
        bits = draws.integers(0, 2, (PATTERNS, count))
    return 1.0 - 2.0 * bits


def permutation_test_can_reject(seeds: int, pairs: int, alpha: float = ALPHA) -> bool:
    """Return whether the smallest p-value that so many seeds allow passes Holm's first step."""
    smallest = 2.0 ** (1 - seeds) if 2**seeds <= PATTERNS else 1 / (PATTERNS + 1)
    return smallest * max(1, pairs) <= alpha


def seeds_for_permutation_test(pairs: int, alpha: float = ALPHA) -> int | None:
    """Return how many seeds the permutation test needs before it can reject at all.

    Args:
        pairs: How many pairs Holm's method corrects for.
        alpha: Level.

    Returns:
        ``None`` if no number of seeds is enough, because beyond some only a part of the sign
        patterns is drawn.
    """
    most = PATTERNS.bit_length()
    counts = range(2, most + 1)
    return next((n for n in counts if permutation_test_can_reject(n, pairs, alpha)), None)


def t_test(difference: float, variance: float, freedom: float) -> float:
    """Return the two-sided p-value of Student's test of a mean.

    Args:
        difference: The mean.
        variance: Of the mean, estimated.
        freedom: Degrees of freedom of the estimate, not necessarily whole; infinite for normal.

    Returns:
        1 for a difference of 0; 0 for any other if there is no variance.
    """
    from scipy.special import stdtr

    if difference == 0:
        return 1.0
    if variance == 0:
        return 0.0
    return float(2 * stdtr(freedom, -abs(difference) / math.sqrt(variance)))


def bootstrap_test(differences: np.ndarray) -> float:
    """Return the two-sided p-value of resampled differences: how often the sign turns, twice."""
    count = len(differences)
    below, above = (differences <= 0).sum(), (differences >= 0).sum()
    return float(min(1.0, 2 * (min(below, above) + 1) / (count + 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's step-down method.

    Holm, S. (1979), "A simple sequentially rejective multiple test procedure".

    Examples:
        >>> holm([0.25, 0.125, 0.5])
        [0.5, 0.375, 0.5]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def compare_methods(
    scores: Mapping[str, Mapping[int, float]], resampled: Resampled | None = None
) -> list[Pair]:
    """Compare every two methods on the seeds that both have.

    The correction is for all pairs, not only for those with the best: which method is best is
    seen in the same figures, and a test of the best against the others alone would forget that.

    Args:
        scores: Metric of each method by seed.
        resampled: The same on resampled examples; without, the pairs are tested over seeds alone.
    """
    chosen = list(itertools.combinations(scores, 2))
    raw = [_compare_two(a, b, len(chosen), scores, resampled) for a, b in chosen]
    largest = [max(pair.p_seeds, pair.p_rows or 0.0, pair.p_both or 0.0) for pair in raw]
    return [replace(pair, p=p) for pair, p in zip(raw, holm(largest), strict=True)]


def _compare_two(
    a: str,
    b: str,
    pairs: int,
    scores: Mapping[str, Mapping[int, float]],
    resampled: Resampled | None,
) -> Pair:
    seeds = sorted(set(scores[a]) & set(scores[b]))
    count = len(seeds)
    differences = [scores[a][seed] - scores[b][seed] for seed in seeds]
    mean = float(np.mean(differences)) if seeds else 0.0
    noise = Noise(float(np.var(differences, ddof=1)) / count if count > 1 else 0.0)
    seed_test: SeedTest = "permutation" if permutation_test_can_reject(count, pairs) else "t"
    if count < MINIMUM_SEEDS:
        p_seeds = 1.0
    elif seed_test == "permutation":
        p_seeds = permutation_test(differences)
    else:
        p_seeds = t_test(mean, noise.seeds, count - 1)
    p_rows = p_both = None
    if resampled is not None and seeds:
        values = (resampled.values[name] for name in (a, b))
        one, other = (np.stack([found[seed] for seed in seeds]) for found in values)
        noise = _noise(noise.seeds, one - other)
        p_rows = bootstrap_test(one.mean(0) - other.mean(0))
        if 2 / (one.shape[1] + 1) * pairs > ALPHA:  # the smallest p-value would be too large
            p_rows = t_test(mean, noise.examples, math.inf)
        p_both = t_test(mean, noise.total, _freedom(noise, count, resampled.examples))
    names = (a, b) if mean >= 0 else (b, a)
    return Pair(*names, abs(mean), p_seeds, p_rows, p_both, 1.0, seed_test, noise)


def _noise(seeds: float, differences: np.ndarray) -> Noise:
    """Add what the examples contribute, from resampled differences ``(seeds, resamples)``.

    The variance of one seed's difference is that of the examples plus the interaction; averaging
    over n seeds leaves an nth of the latter. The two together give it.
    """
    count = len(differences)
    examples = float(differences.mean(0).var(ddof=1))
    if count < 2:
        return Noise(seeds, examples)
    single = float(differences.var(1, ddof=1).mean())
    return Noise(seeds, examples, max(0.0, (single - examples) / (count - 1)))


def _freedom(noise: Noise, seeds: int, examples: int) -> float:
    """Return Satterthwaite's degrees of freedom of the sum of two estimated variances."""
    parts = noise.seeds**2 / max(1, seeds - 1) + noise.examples**2 / max(1, examples - 1)
    return noise.total**2 / parts if parts else math.inf


def indistinguishable(best: str, pairs: Sequence[Pair], alpha: float = ALPHA) -> set[str]:
    """Return the methods whose difference to the best may be chance."""
    found = set()
    for pair in pairs:
        if best in (pair.first, pair.second) and pair.p > alpha:
            found.add(pair.second if pair.first == best else pair.first)
    return found


def mean_interval(values: Sequence[float], level: float = 0.95) -> float:
    """Return half the width of Student's interval of the mean; 0 for a single value."""
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    spread = float(np.std(values, ddof=1))
    return float(t.ppf(0.5 + level / 2, len(values) - 1)) * spread / math.sqrt(len(values))
