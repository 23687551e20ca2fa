"""Significance tests of the difference between methods, as pure functions of their scores.

Scores vary with the seed and with the sample of evaluation examples. A difference is significant
only if neither source of variance explains it, nor both together. So three tests have to reject,
and the p-value of a pair is the largest of theirs:

- over seeds, a paired permutation test (Good, 2005, https://doi.org/10.1007/b138696); with too few
  seeds for it to reject at all, the paired t-test, which assumes normal differences;
- over examples, a paired bootstrap (Efron and Tibshirani, 1993,
  https://doi.org/10.1201/9780429246593);
- over both, a t-test whose variance is that of seeds plus that of examples, minus their
  interaction, which is counted in both (Cameron, Gelbach and Miller, 2011, equation 2.9,
  https://doi.org/10.1198/jbes.2010.07136), with the degrees of freedom of Satterthwaite (1946,
  https://doi.org/10.2307/3002019).

The first two are not enough. Each tests against one source of variance with the other held fixed:
where both are large, the difference varies more than either test assumes (Clark, 1973,
https://doi.org/10.1016/S0022-5371(73)80014-3). ``python -m benchmarks.significance`` measures the
false-positive rate of each.
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

#: Significance level of all tests.
ALPHA = 0.05
#: Up to this many sign patterns, the permutation test is exact; beyond, it samples this many.
PATTERNS = 2**13
#: With fewer seeds no difference is significant: the variance of two is too uncertain.
MINIMUM_SEEDS = 3

SeedTest = Literal["permutation", "t"]


@dataclass(frozen=True)
class Noise:
    """Variance of the mean difference of two methods, by source.

    Attributes:
        seeds: Variance from the seeds, ``s**2 / n`` for the sample variance ``s**2`` of the
            differences of ``n`` seeds; 0 with fewer than two seeds.
        examples: Variance from the sample of examples, measured by the bootstrap.
        interaction: Part that both contain, because each seed errs on other examples.
    """

    seeds: float
    examples: float = 0.0
    interaction: float = 0.0

    @property
    def total(self) -> float:
        """Variance from both sources, never less than that of either of them."""
        return max(self.seeds, self.examples, self.seeds + self.examples - self.interaction)


@dataclass(frozen=True)
class Pair:
    """Two methods compared on the same seeds.

    Attributes:
        first: The method with the higher mean.
        second: The other method.
        difference: Mean over seeds of the score of ``first`` minus that of ``second``.
        p_seeds: p-value of the test over seeds.
        p_examples: p-value of the bootstrap over examples; ``None`` without predictions.
        p_both: p-value of the t-test with the variance of seeds and examples; ``None`` without
            predictions.
        p: Largest of these p-values, corrected by Holm's method for all pairs.
        seed_test: Test that ``p_seeds`` is of.
        noise: Variance of the difference.
    """

    first: str
    second: str
    difference: float
    p_seeds: float
    p_examples: float | None
    p_both: float | None
    p: float
    seed_test: SeedTest
    noise: Noise


def permutation_test(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired permutation test.

    Under the null hypothesis every difference has either sign with the same probability. The test
    is exact up to :data:`PATTERNS` sign patterns; beyond, it samples so many.

    Args:
        differences: Score of one method minus that of the other, one for each seed.

    Returns:
        Share of the sign patterns whose mean is at least as far from 0 as the observed one. With n
        seeds it is at least ``2 ** (1 - n)``; with fewer than two seeds it is 1.

    Examples:
        Of the 16 sign patterns of four seeds, two have a mean as far from 0 as this one.

        >>> permutation_test([0.5, 0.2, 0.4, 0.1])
        0.125
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2 or not values.any():
        return 1.0
    means = np.abs(sign_patterns(len(values)) @ values)
    # Sums of the same terms in another order differ by rounding errors in proportion to the terms,
    # not to the sum, which may be 0.
    tolerance = 1e-10 * np.abs(values).sum()
    extreme = int((means >= abs(values.sum()) - tolerance).sum())
    if len(means) == 2 ** len(values):
        return extreme / len(means)
    return (extreme + 1) / (len(means) + 1)


@lru_cache(maxsize=32)
def sign_patterns(count: int) -> np.ndarray:
    """Return all patterns of signs, -1 and 1, or :data:`PATTERNS` random ones.

    Args:
        count: Number of signs of a pattern.

    Returns:
        ``(patterns, count)``, float64; the first of all patterns has plus signs only.
    """
    if 2**count <= PATTERNS:
        bits = np.arange(2**count)[:, None] >> np.arange(count) & 1
    else:
        generator = np.random.default_rng(derive_seed(0, "permutation test", count))
        bits = generator.integers(0, 2, (PATTERNS, count))
    return 1.0 - 2.0 * bits


def permutation_test_can_reject(seeds: int, pairs: int, alpha: float = ALPHA) -> bool:
    """Return whether the smallest p-value possible with so many seeds passes Holm's first step."""
    smallest = 2.0 ** (1 - seeds) if 2**seeds <= PATTERNS else 1 / (PATTERNS + 1)
    return smallest * max(1, pairs) <= alpha


def seeds_for_permutation_test(pairs: int, alpha: float = ALPHA) -> int | None:
    """Return the number of seeds that the permutation test needs to reject at all.

    Args:
        pairs: Number of pairs that Holm's method corrects for.
        alpha: Significance level.

    Returns:
        ``None`` if no number of seeds is enough, because with many seeds the sign patterns are
        only sampled.
    """
    most = PATTERNS.bit_length()
    counts = range(2, most + 1)
    return next((n for n in counts if permutation_test_can_reject(n, pairs, alpha)), None)


def t_test(difference: float, variance: float, freedom: float) -> float:
    """Return the two-sided p-value of Student's t-test of a mean against 0.

    Args:
        difference: The mean.
        variance: Estimated variance of the mean.
        freedom: Degrees of freedom of the estimate, not necessarily an integer; infinity gives the
            normal distribution.

    Returns:
        The p-value: 1 for a difference of 0, and 0 for any other difference without variance.
    """
    from scipy.special import stdtr

    if difference == 0:
        return 1.0
    if variance == 0:
        return 0.0
    return float(2 * stdtr(freedom, -abs(difference) / math.sqrt(variance)))


def bootstrap_test(differences: np.ndarray) -> float:
    """Return the two-sided p-value of resampled differences: twice the share of the rarer sign.

    Args:
        differences: Difference on each resample, ``(resamples,)``. One is added to the counts, so
            that the p-value is never 0.
    """
    count = len(differences)
    below, above = (differences <= 0).sum(), (differences >= 0).sum()
    return float(min(1.0, 2 * (min(below, above) + 1) / (count + 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple testing by Holm's step-down method.

    Holm, S. (1979), "A simple sequentially rejective multiple test procedure",
    https://www.jstor.org/stable/4615733.

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

    The correction is for all pairs, not only for those with the best method: the best is chosen by
    the same scores, and testing it against the others alone would ignore that selection.

    Args:
        scores: Metric of each method by seed.
        resampled: The same metric on resampled examples; without it the pairs are tested over
            seeds alone.

    Returns:
        One result for every two methods.
    """
    chosen = list(itertools.combinations(scores, 2))
    raw = [_compare_two(a, b, len(chosen), scores, resampled) for a, b in chosen]
    largest = [max(pair.p_seeds, pair.p_examples or 0.0, pair.p_both or 0.0) for pair in raw]
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
    p_examples = p_both = None
    if resampled is not None and seeds:
        values = (resampled.values[name] for name in (a, b))
        one, other = (np.stack([found[seed] for seed in seeds]) for found in values)
        noise = _noise(noise.seeds, one - other)
        p_examples = bootstrap_test(one.mean(0) - other.mean(0))
        if 2 / (one.shape[1] + 1) * pairs > ALPHA:  # the bootstrap cannot give so small a p-value
            p_examples = t_test(mean, noise.examples, math.inf)
        p_both = t_test(mean, noise.total, _freedom(noise, count, resampled.examples))
    names = (a, b) if mean >= 0 else (b, a)
    return Pair(*names, abs(mean), p_seeds, p_examples, p_both, 1.0, seed_test, noise)


def _noise(seeds: float, differences: np.ndarray) -> Noise:
    """Return the variances by source.

    The variance of one seed's difference over resamples is that of the examples plus the
    interaction; the mean over n seeds has only an nth of the interaction. The interaction follows
    from the two variances.

    Args:
        seeds: Variance from the seeds.
        differences: Differences on resampled examples, ``(seeds, resamples)``.
    """
    count = len(differences)
    examples = float(differences.mean(0).var(ddof=1))
    if count < 2:
        return Noise(seeds, examples)
    single = float(differences.var(1, ddof=1).mean())
    return Noise(seeds, examples, max(0.0, (single - examples) / (count - 1)))


def _freedom(noise: Noise, seeds: int, examples: int) -> float:
    """Return Satterthwaite's degrees of freedom of the sum of two variance estimates."""
    parts = noise.seeds**2 / max(1, seeds - 1) + noise.examples**2 / max(1, examples - 1)
    return noise.total**2 / parts if parts else math.inf


def indistinguishable(best: str, pairs: Sequence[Pair], alpha: float = ALPHA) -> set[str]:
    """Return the methods whose difference from the best may be due to chance."""
    found = set()
    for pair in pairs:
        if best in (pair.first, pair.second) and pair.p > alpha:
            found.add(pair.second if pair.first == best else pair.first)
    return found


def mean_interval(values: Sequence[float], level: float = 0.95) -> float:
    """Return half the width of Student's confidence interval of the mean; 0 for a single value."""
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    spread = float(np.std(values, ddof=1))
    return float(t.ppf(0.5 + level / 2, len(values) - 1)) * spread / math.sqrt(len(values))
