"""Minimum detectable difference, by a simulation of the significance tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

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
    :mod:`auxlearn.comparison.statistics` find with probability :data:`POWER`, by the measured
    variances (their means over pairs).
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
        return 0.0
    # The shares of the variance are rounded, so that similar comparisons share one simulation.
    shares = [round(part / total, 2) for part in (shared, by_examples, interaction)]
    return _smallest_shift(_Design(seeds, methods, examples, against, *shares)) * math.sqrt(total)


class _Design(NamedTuple):
    """What is compared, and three shares of the variance."""

    seeds: int
    methods: int
    examples: int
    against: bool
    shared: float
    measured: float
    interaction: float


@lru_cache(maxsize=256)
def _smallest_shift(design: _Design) -> float:
    """Return the minimum detectable difference in units of its standard error."""
    simulation = _Simulation(design)
    highest = 3.0
    while simulation.power(highest) < POWER:
        highest *= 2
        if highest > 1e4:
            return math.inf
    lowest = 0.0
    while highest - lowest > 0.005 * highest:
        middle = (lowest + highest) / 2
        lowest, highest = (
            (lowest, middle) if simulation.power(middle) >= POWER else (middle, highest)
        )
    return highest


class _Simulation:
    """Simulated comparisons of methods, those of method 0 shifted; variance of a difference: 1."""

    def __init__(self, design: _Design) -> None:
        seeds, methods, examples, against, shared, measured, interaction = design
        generator = np.random.default_rng(derive_seed(0, "power", seeds, methods))
        first, second = np.triu_indices(methods, 1)
        if against:
            first, second = first[first == 0], second[first == 0]
        comparisons = min(_MOST, max(_FEWEST, _PAIRS // len(first)))
        # The variance of a difference is that of two methods, so each has half of it.
        single = generator.normal(size=(comparisons, methods, seeds))
        single *= math.sqrt(max(0.0, 1 - shared) * seeds / 2)
        single += math.sqrt(shared / 2) * generator.normal(size=(comparisons, methods, 1))
        differences = single[:, first] - single[:, second]
        self.shifted = first == 0
        self.means = differences.mean(-1)
        self.by_seeds = differences.var(-1, ddof=1) / seeds
        both = self.by_seeds + measured - interaction
        self.total = np.maximum(np.maximum(self.by_seeds, measured), both)
        self.free_seeds = seeds - 1
        parts = self.by_seeds**2 / (seeds - 1) + measured**2 / max(1, examples - 1)
        self.free_both = self.total**2 / np.maximum(parts, 1e-300)

    def power(self, shift: float) -> float:
        """Return the share of the pairs with method 0 whose difference is significant."""
        from scipy.special import stdtr

        size = np.abs(self.means + shift * self.shifted)
        with np.errstate(divide="ignore"):
            p_seeds = 2 * stdtr(self.free_seeds, -size / np.sqrt(self.by_seeds))
        p_both = 2 * stdtr(self.free_both, -size / np.sqrt(self.total))
        return self._rejected(np.maximum(p_seeds, p_both))[:, self.shifted].mean()

    @staticmethod
    def _rejected(p_values: np.ndarray) -> np.ndarray:
        """Return which hypotheses Holm's method rejects, ``(comparisons, pairs)``, bool."""
        pairs = p_values.shape[1]
        order = np.argsort(p_values, axis=1)
        ranked = np.take_along_axis(p_values, order, 1)
        passed = np.logical_and.accumulate(ranked * np.arange(pairs, 0, -1) <= ALPHA, axis=1)
        rejected = np.empty_like(passed)
        np.put_along_axis(rejected, order, passed, 1)
        return rejected
