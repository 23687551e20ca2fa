"""Minimum detectable difference, by a simulation of the significance tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from auxlearn.comparison.statistics import ALPHA, MINIMUM_SEEDS, Pair
from auxlearn.core.rng import derive_seed

#: Power of the tests at the minimum detectable difference.
POWER = 0.8
#: Simulated pairs in all, and bounds on the number of simulated comparisons.
_PAIRS, _FEWEST, _MOST = 12_000, 400, 8000


def minimum_detectable_difference(
    pairs: Sequence[Pair], methods: int, examples: int, against: bool = False
) -> float:
    """Return the true difference of one method from all others, which are equal, that the tests of
    :mod:`auxlearn.comparison.statistics` find with probability :data:`POWER`; infinite if there is
    none, or no noise in the pairs to simulate.
    """
    seeds = min((pair.seeds for pair in pairs), default=0)
    if seeds < MINIMUM_SEEDS:
        return math.inf
    by_seeds, by_examples, interaction = (
        float(np.mean([getattr(pair.noise, part) for pair in pairs]))
        for part in ("seeds", "examples", "interaction")
    )
    shared = max(0.0, by_examples - interaction)  # the same for all seeds
    total = by_seeds + shared
    if total == 0:
        return math.inf
    # The shares of the variance are rounded, so that similar comparisons share one simulation.
    shares = [round(part / total, 2) for part in (shared, by_examples, interaction)]
    return _smallest_shift(seeds, methods, examples, against, *shares) * math.sqrt(total)


@lru_cache(maxsize=256)
def _smallest_shift(
    seeds: int,
    methods: int,
    examples: int,
    against: bool,
    shared: float,
    by_examples: float,
    interaction: float,
) -> float:
    """Return the minimum detectable difference in units of its standard error, by simulation."""
    from scipy.special import stdtr

    generator = np.random.default_rng(derive_seed(0, "power", seeds, methods))
    first, second = np.triu_indices(methods, 1)
    if against:
        first, second = first[first == 0], second[first == 0]
    comparisons = min(_MOST, max(_FEWEST, _PAIRS // len(first)))
    # The variance of a difference is that of two methods, so each has half of it.
    scores = generator.normal(size=(comparisons, methods, seeds))
    scores *= math.sqrt(max(0.0, 1 - shared) * seeds / 2)
    scores += math.sqrt(shared / 2) * generator.normal(size=(comparisons, methods, 1))
    differences = scores[:, first] - scores[:, second]
    shifted, means = first == 0, differences.mean(-1)
    by_seeds = differences.var(-1, ddof=1) / seeds
    total = np.maximum(np.maximum(by_seeds, by_examples), by_seeds + by_examples - interaction)
    parts = by_seeds**2 / (seeds - 1) + by_examples**2 / max(1, examples - 1)
    freedom = total**2 / np.maximum(parts, 1e-300)

    def power(shift: float) -> float:
        """Return the share of the pairs with method 0 whose difference is significant."""
        size = np.abs(means + shift * shifted)
        with np.errstate(divide="ignore"):
            p_seeds = 2 * stdtr(seeds - 1, -size / np.sqrt(by_seeds))
        p_values = np.maximum(p_seeds, 2 * stdtr(freedom, -size / np.sqrt(total)))
        # Holm's method, for all comparisons at once.
        order = np.argsort(p_values, axis=1)
        corrected = np.take_along_axis(p_values, order, 1) * np.arange(len(first), 0, -1)
        rejected = np.logical_and.accumulate(corrected <= ALPHA, axis=1)
        return float(np.take_along_axis(rejected, np.argsort(order, axis=1), 1)[:, shifted].mean())

    highest = 3.0
    while power(highest) < POWER:
        highest *= 2
        if highest > 1e4:
            return math.inf
    lowest = 0.0
    while highest - lowest > 0.005 * highest:
        middle = (lowest + highest) / 2
        lowest, highest = (lowest, middle) if power(middle) >= POWER else (middle, highest)
    return highest
