"""Minimum detectable difference, by a simulation of the significance tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from auxlearn.comparison.statistics import (
    ALPHA,
    MINIMUM_SEEDS,
    Noise,
    permutation_test_can_reject,
    sign_patterns,
)
from auxlearn.rng import derive_seed

#: Power of the tests at the minimum detectable difference.
POWER = 0.8
#: Simulated pairs in all, and bounds on the number of simulated comparisons.
_PAIRS, _FEWEST, _MOST = 12_000, 400, 8000
#: Seeds up to which the permutation test is simulated; with more, the t-test has the same power.
_EXACT = 10


def minimum_detectable_difference(
    noises: Sequence[Noise], seeds: int, methods: int, examples: int
) -> float:
    """Return the true difference that the significance tests find with probability :data:`POWER`.

    One method is better than all others by this much, and the others are equal; then its difference
    from one of them is significant with that probability. The simulation makes the tests of
    :func:`~auxlearn.comparison.statistics.compare_methods`, with the measured variance from seeds
    and examples (the mean over pairs) and Holm's correction over all pairs.

    Args:
        noises: Variances of each pair.
        seeds: Number of seeds of each pair.
        methods: Number of methods compared.
        examples: Number of examples of the evaluation set.

    Returns:
        The difference in the unit of the metric; infinite with fewer than
        :data:`~auxlearn.comparison.statistics.MINIMUM_SEEDS` seeds.
    """
    if not noises or seeds < MINIMUM_SEEDS:
        return math.inf
    by_seeds = float(np.mean([noise.seeds for noise in noises]))
    by_examples = float(np.mean([noise.examples for noise in noises]))
    interaction = float(np.mean([noise.interaction for noise in noises]))
    shared = max(0.0, by_examples - interaction)  # the same for all seeds
    total = by_seeds + shared
    if total == 0:
        return 0.0
    # The shares of the variance are rounded, so that similar comparisons share one simulation.
    shares = [round(part / total, 2) for part in (shared, by_examples, interaction)]
    return _smallest_shift(seeds, methods, examples, *shares) * math.sqrt(total)


@lru_cache(maxsize=256)
def _smallest_shift(
    seeds: int, methods: int, examples: int, shared: float, measured: float, interaction: float
) -> float:
    """Return the minimum detectable difference in units of its standard error."""
    simulation = _Simulation(seeds, methods, examples, shared, measured, interaction)
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
    """Simulated comparisons of methods; the scores of method 0 are shifted.

    The variance of the mean difference of two methods is 1.

    Args:
        seeds: Number of seeds of each method.
        methods: Number of methods.
        examples: Number of examples of the evaluation set, for the degrees of freedom.
        shared: Variance from the examples that all seeds have in common.
        measured: Variance that the bootstrap measures: ``shared`` and part of the interaction.
        interaction: Part of ``measured`` that the variance of the seeds contains as well.
    """

    def __init__(
        self,
        seeds: int,
        methods: int,
        examples: int,
        shared: float,
        measured: float,
        interaction: float,
    ) -> None:
        generator = np.random.default_rng(derive_seed(0, "power", seeds, methods))
        first, second = np.triu_indices(methods, 1)
        pairs = len(first)
        comparisons = min(_MOST, max(_FEWEST, _PAIRS // pairs))
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
        self.measured = measured
        self.free_seeds = seeds - 1
        parts = self.by_seeds**2 / (seeds - 1) + measured**2 / max(1, examples - 1)
        self.free_both = self.total**2 / np.maximum(parts, 1e-300)
        self.patterns = self.sums = None
        if seeds <= _EXACT and permutation_test_can_reject(seeds, pairs):
            # A sign pattern and its negative have sums of the same absolute value.
            self.patterns = sign_patterns(seeds)[: 2 ** (seeds - 1)].astype(np.float32)
            self.sums = differences.astype(np.float32) @ self.patterns.T

    def power(self, shift: float) -> float:
        """Return the share of the pairs with method 0 whose difference is significant."""
        from scipy.special import ndtr, stdtr

        means = self.means + shift * self.shifted
        size = np.abs(means)
        p_values = 2 * stdtr(self.free_both, -size / np.sqrt(self.total))
        if self.measured:
            p_values = np.maximum(p_values, 2 * ndtr(-size / math.sqrt(self.measured)))
        if self.patterns is None:
            with np.errstate(divide="ignore"):
                p_seeds = 2 * stdtr(self.free_seeds, -size / np.sqrt(self.by_seeds))
        else:
            p_seeds = self._permutation_test(shift)
        return self._rejected(np.maximum(p_values, p_seeds))[:, self.shifted].mean()

    def _permutation_test(self, shift: float) -> np.ndarray:
        assert self.patterns is not None
        assert self.sums is not None
        sums = self.sums.copy()
        sums[:, self.shifted] += np.float32(shift) * self.patterns.sum(1)
        np.abs(sums, out=sums)
        # The first pattern has plus signs only: it is the observed sum.
        return np.asarray((sums >= sums[..., :1] * np.float32(1 - 1e-6)).mean(-1))

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
