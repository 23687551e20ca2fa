"""How often comparisons reject wrongly, and how often they find what they say they find.

False positives: mean differences of two equal methods are drawn from normal distributions, with a
part of the variance from examples, the same for all seeds, and the rest from seeds. Power: whole
tables of predictions are drawn whose true differences are known, and compared as
``auxlearn compare`` does.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.special import ndtr, stdtr

from auxlearn.comparison.bootstrap import RESAMPLES, Resampled, resample_counts
from auxlearn.comparison.power import minimum_detectable_difference
from auxlearn.comparison.statistics import (
    ALPHA,
    Noise,
    Pair,
    compare_methods,
    permutation_test,
    permutation_test_can_reject,
)

#: Standard deviation of a prediction's chance to be right: between seeds, and between examples
#: under one method. That a prediction is right or not adds noise to all of them.
NOISES = {"seeds": (0.025, 0.0), "both": (0.03, 0.2), "examples": (0.0, 0.3)}
#: Shares of the variance of a mean difference that are from examples.
SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)


class Tables:
    """Tables of accuracies, drawn from a known distribution.

    A prediction is right with a probability that is the sum of a level, a deviation of the example
    under the method, and a deviation of the seed under the method. The deviations have mean 0, so
    the true difference of two methods is that of their levels.

    Args:
        seed: Of the draws.
        noise: One of :data:`NOISES`.
        methods: Of each table; the first can be better than the others, which are equal.
        seeds: Of each method.
        examples: Of the evaluation set.
        resamples: Of the bootstrap.
    """

    def __init__(
        self,
        seed: int,
        noise: str,
        methods: int,
        seeds: int,
        examples: int = 300,
        resamples: int = RESAMPLES,
    ) -> None:
        self._draws = np.random.default_rng(seed)
        self._noise = NOISES[noise]
        self.methods, self.seeds, self.examples = methods, seeds, examples
        self._counts = np.concatenate(list(resample_counts(examples, resamples)), axis=1)

    @property
    def noise(self) -> Noise:
        """The true variances of the mean difference of two methods."""
        of_seeds, of_examples = (deviation**2 for deviation in self._noise)
        single = 0.25 - of_seeds - of_examples  # mean of p (1 - p) around a half
        count, examples = self.seeds, self.examples
        interaction = 2 * single / (count * examples)
        return Noise(
            2 * of_seeds / count + interaction,
            2 * of_examples / examples + interaction,
            interaction,
        )

    @property
    def detectable(self) -> float:
        """The minimum detectable difference."""
        return minimum_detectable_difference([self.noise], self.seeds, self.methods, self.examples)

    def draw(self, tables: int, difference: float = 0.0) -> Iterator[list[Pair]]:
        """Yield the pairs of so many tables."""
        of_seeds, of_examples = self._noise
        names = [f"method {number}" for number in range(self.methods)]
        levels = np.full((self.methods, 1, 1), 0.5 - difference / 2)
        levels[0] += difference
        for _ in range(tables):
            signs = self._draws.choice([-1, 1], (self.methods, 1, self.examples))
            shift = self._draws.normal(0, of_seeds, (self.methods, self.seeds, 1))
            drawn = self._draws.random((self.methods, self.seeds, self.examples))
            right = (drawn < levels + of_examples * signs + shift).astype(np.float32)
            values = right @ self._counts / self.examples
            scores = {name: dict(enumerate(right[i].mean(1))) for i, name in enumerate(names)}
            resampled = {name: dict(enumerate(values[i])) for i, name in enumerate(names)}
            yield compare_methods(scores, Resampled(self.examples, resampled))

    def false_positives(self, tables: int) -> float:
        """Return the share of null tables in which a pair is told apart."""
        drawn = self.draw(tables)
        return float(np.mean([min(pair.p for pair in pairs) <= ALPHA for pairs in drawn]))

    def power(self, tables: int, difference: float) -> float:
        """Return the share of the others that the first method is told apart from."""
        first = "method 0"
        found = [
            pair.first == first and pair.p <= ALPHA
            for pairs in self.draw(tables, difference)
            for pair in pairs
            if first in (pair.first, pair.second)
        ]
        return float(np.mean(found))


def false_positives(seeds: int, share: float, tables: int = 60_000) -> dict[str, float]:
    """Return how often two equal methods are told apart, by each test and by several together.

    Args:
        seeds: How many.
        share: Part of the variance of the mean difference that is from examples.
        tables: How many are drawn.
    """
    draws = np.random.default_rng([seeds, round(100 * share)])
    of_examples = draws.normal(0, math.sqrt(share), (tables, 1))
    differences = of_examples + draws.normal(0, math.sqrt((1 - share) * seeds), (tables, seeds))
    size = np.abs(differences.mean(1))
    by_seeds = differences.var(1, ddof=1) / seeds
    total = by_seeds + share
    freedom = total**2 / (by_seeds**2 / (seeds - 1) + share**2 / 999)  # of 1,000 examples
    with np.errstate(divide="ignore"):
        p_examples = 2 * ndtr(-size / np.sqrt(share))
        p_seeds = 2 * stdtr(seeds - 1, -size / np.sqrt(by_seeds))
    if permutation_test_can_reject(seeds, 1):
        p_seeds = np.array([permutation_test(row) for row in differences])
    p_both = 2 * stdtr(freedom, -size / np.sqrt(total))
    apart = np.maximum(p_seeds, p_examples)
    found = {
        "seeds alone": p_seeds,
        "examples alone": p_examples,
        "seeds and examples": apart,
        "all three": np.maximum(apart, p_both),
    }
    return {name: float(np.mean(p_values <= ALPHA)) for name, p_values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1500, help="for each row of the power")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "significance.json"
    )
    options = parser.parse_args()
    wrong = []
    for seeds in (3, 5, 10):
        for share in SHARES:
            wrong.append({"seeds": seeds, "share": share} | false_positives(seeds, share))
            print(json.dumps(wrong[-1]), flush=True)
    power = []
    for methods in (2, 3):
        for seeds in (3, 5, 10):
            tables = Tables(len(power), "both", methods, seeds)
            found = tables.power(options.tables, tables.detectable)
            row = {"methods": methods, "seeds": seeds, "detectable": tables.detectable}
            power.append(row | {"power": found})
            print(json.dumps(power[-1]), flush=True)
    content = {"false_positives": wrong, "tables": options.tables, "power": power}
    options.output.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
