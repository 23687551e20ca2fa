"""How often comparisons reject wrongly, and how often they find what they say they find.

Tables of methods are drawn whose true differences are known, with noise of seeds, of examples and
of both, and compared as ``auxlearn compare`` does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from auxlearn.sweeps.bootstrap import RESAMPLES, Resampled, resample_counts
from auxlearn.sweeps.power import minimum_detectable_difference
from auxlearn.sweeps.statistics import ALPHA, Noise, Pair, compare_methods

#: Standard deviation of a prediction's chance to be right: between seeds, and between examples
#: under one method. That a prediction is right or not adds noise to all of them.
NOISES = {"seeds": (0.04, 0.0), "both": (0.03, 0.25), "examples": (0.0, 0.35)}


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
        levels = np.full((self.methods, 1, 1), 0.5)
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

    def false_positives(self, tables: int) -> dict[str, float]:
        """Return the share of null tables in which a pair is told apart.

        By the tests, and, for two methods, by the test over seeds, by the bootstrap, and by these
        two without the test over both.
        """
        drawn = list(self.draw(tables))
        found = {"tests": np.mean([min(pair.p for pair in pairs) <= ALPHA for pairs in drawn])}
        if self.methods == 2:
            seeds = np.array([pair.p_seeds for (pair,) in drawn])
            examples = np.array([pair.p_rows for (pair,) in drawn])
            found["seeds alone"] = np.mean(seeds <= ALPHA)
            found["examples alone"] = np.mean(examples <= ALPHA)
            found["without both"] = np.mean(np.maximum(seeds, examples) <= ALPHA)
        return {name: float(share) for name, share in found.items()}

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "significance.json"
    )
    options = parser.parse_args()
    rows = []
    for methods in (2, 3):
        for noise in NOISES:
            for seeds in (3, 5, 10):
                tables = Tables(len(rows), noise, methods, seeds)
                row = {"methods": methods, "noise": noise, "seeds": seeds}
                row |= tables.false_positives(options.tables)
                row |= {"detectable": tables.detectable}
                row |= {"power": tables.power(options.tables, tables.detectable)}
                rows.append(row)
                print(json.dumps(row), flush=True)
    options.output.write_text(json.dumps({"tables": options.tables, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
