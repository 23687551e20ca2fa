"""How often comparisons reject wrongly, and how often they find what they say they find.

False positives: mean differences of two equal methods are drawn from normal distributions, with a
part of the variance from examples, the same for all seeds, and the rest from seeds. Power, and
false positives of whole comparisons: tables of predictions are drawn whose true differences are
known, and compared as ``auxlearn compare`` does. Candidates are what could have been done instead.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.special import ndtr, stdtr

from auxlearn.comparison.power import minimum_detectable_difference
from auxlearn.comparison.scores import Predictions, scores_and_covariance
from auxlearn.comparison.statistics import ALPHA, Column, Noise, Pair, compare_methods, make_pair
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.kinds.metrics import metric_title
from benchmarks.common import RESULTS
from benchmarks.tables import table, write_section

#: Standard deviation of a prediction's chance to be right: between seeds, and between examples
#: under one method. That a prediction is right or not adds noise to all of them.
NOISES = {"seeds": (0.025, 0.0), "both": (0.03, 0.2), "examples": (0.0, 0.3)}
#: Shares of the variance of a mean difference that are from examples.
SHARES = (0.0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
#: What ``auxlearn compare`` does.
CHOSEN = "both t-tests"
SEEDS = (3, 5, 10)


class Tables:
    """Tables of predictions, drawn from a known distribution.

    A prediction is right with a probability that is the sum of a level, a deviation of the example
    under the method, and a deviation of the seed under the method. The deviations have mean 0, so
    the true difference of two methods is that of their levels.

    Args:
        seed: Of the draws.
        noise: One of :data:`NOISES`.
        methods: Of each table; the first can be better than the others, which are equal.
        seeds: Of each method.
        examples: Of the evaluation set.
        metric: Metric of the comparison, of three unbalanced classes.
        against: Whether all are compared with the first only.
    """

    def __init__(
        self,
        seed: int,
        noise: str,
        methods: int,
        seeds: int,
        examples: int = 300,
        metric: str = "accuracy",
        against: bool = False,
    ) -> None:
        self._draws = np.random.default_rng(seed)
        self._noise = NOISES[noise]
        self.methods, self.seeds, self.examples = methods, seeds, examples
        self._metric, self._against = metric, against
        self._truth = np.repeat([0, 1, 2], [examples - examples // 3, examples // 5, examples])
        self._truth = self._truth[:examples]

    @property
    def noise(self) -> Noise:
        """The true variances of the mean difference in accuracy of two methods."""
        of_seeds, of_examples = (deviation**2 for deviation in self._noise)
        single = 0.25 - of_seeds - of_examples  # mean of p (1 - p) around a half
        count, examples = self.seeds, self.examples
        interaction = 2 * single / (count * examples)
        return Noise(
            2 * of_seeds / count + interaction,
            2 * of_examples / examples + interaction,
            interaction,
            count - 1,
            examples - 1,
        )

    @property
    def detectable(self) -> float:
        """The minimum detectable difference in accuracy."""
        pair = make_pair("a", "b", self.seeds, 0.0, 0.5, self.noise)
        return minimum_detectable_difference([pair], self.methods, self.examples, self._against)

    def draw(self, tables: int, difference: float = 0.0) -> Iterator[list[Pair]]:
        """Yield the pairs of so many tables."""
        of_seeds, of_examples = self._noise
        names = [f"method {number}" for number in range(self.methods)]
        levels = np.full((self.methods, 1, 1), 0.5 - difference / 2)
        levels[0] += difference
        runs = [(name, seed) for name in names for seed in range(self.seeds)]
        places = {run: number for number, run in enumerate(runs)}
        for _ in range(tables):
            signs = self._draws.choice([-1, 1], (self.methods, 1, self.examples))
            shift = self._draws.normal(0, of_seeds, (self.methods, self.seeds, 1))
            drawn = self._draws.random((self.methods, self.seeds, self.examples))
            right = (drawn < levels + of_examples * signs + shift).reshape(-1, self.examples)
            wrong = (self._truth + 1 + (drawn.reshape(right.shape) > 0.75)) % 3
            predicted = np.where(right, self._truth, wrong)
            sums = [np.stack([self._truth, one], 1) for one in predicted]
            found = Predictions(CLASSIFICATION, ("0", "1", "2"), self._truth, sums)
            values, covariance = scores_and_covariance(found, self._metric)
            scores = {name: {} for name in names}  # type: dict[str, dict[int, float]]
            for (name, seed), place in places.items():
                scores[name][seed] = float(values[place])
            column = Column(scores, places, covariance, self.examples)
            yield compare_methods(column, names[0] if self._against else None)

    def false_positives(self, tables: int) -> float:
        """Return the share of null tables in which a pair is told apart."""
        return float(np.mean([any(p.significant for p in pairs) for pairs in self.draw(tables)]))

    def power(self, tables: int, difference: float) -> float:
        """Return the share of the others that the first method is told apart from."""
        first = "method 0"
        found = [
            pair.first == first and pair.significant
            for pairs in self.draw(tables, difference)
            for pair in pairs
            if first in pair.names
        ]
        return float(np.mean(found))


def p_values(differences: np.ndarray, by_examples: np.ndarray, interaction: np.ndarray) -> dict:
    """Return the p-values of every candidate.

    Args:
        differences: Of the seeds of many tables, ``(tables, seeds)``.
        by_examples: Variance of their means from examples, ``(tables,)``.
        interaction: Part of it that the variance of the seeds has as well, ``(tables,)``.
    """
    seeds = differences.shape[1]
    size = np.abs(differences.mean(1))
    by_seeds = differences.var(1, ddof=1) / seeds
    both = by_seeds + by_examples - interaction
    total = np.maximum(np.maximum(by_seeds, by_examples), both)
    freedom = total**2 / (by_seeds**2 / (seeds - 1) + by_examples**2 / 999)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_examples = np.nan_to_num(2 * ndtr(-size / np.sqrt(by_examples)))
        p_seeds = 2 * stdtr(seeds - 1, -size / np.sqrt(by_seeds))
    p_crossed = 2 * stdtr(freedom, -size / np.sqrt(total))
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=seeds)))
    sums = np.abs(differences @ signs.T)
    tolerance = 1e-10 * np.abs(differences).sum(1, keepdims=True)
    permutation = (sums >= sums[:, :1] - tolerance).mean(1)
    return {
        "seeds alone": p_seeds,
        "permutation alone": permutation,
        "examples alone": p_examples,
        "crossed t-test alone": p_crossed,
        "permutation, examples and crossed": np.max([permutation, p_examples, p_crossed], axis=0),
        CHOSEN: np.maximum(p_seeds, p_crossed),
    }


def rejections(seeds: int, share: float, shift: float, tables: int) -> dict[str, float]:
    """Return how often two methods are told apart, by each candidate.

    Args:
        seeds: How many.
        share: Part of the variance of the mean difference that is from examples.
        shift: True difference, in units of its standard error.
        tables: How many are drawn.
    """
    draws = np.random.default_rng([seeds, round(100 * share)])
    found: dict[str, list[float]] = {}
    for first in range(0, tables, 10_000):
        size = min(10_000, tables - first)
        of_examples = shift + draws.normal(0, math.sqrt(share), (size, 1))
        deviations = draws.normal(0, math.sqrt((1 - share) * seeds), (size, seeds))
        every = p_values(of_examples + deviations, np.full(size, share), np.zeros(size))
        for name, values in every.items():
            found.setdefault(name, []).append(float((values <= ALPHA).sum()))
    return {name: sum(counts) / tables for name, counts in found.items()}


def false_positives(seeds: int, share: float, tables: int = 60_000) -> dict[str, float]:
    """Return how often two equal methods are told apart, by each candidate."""
    return rejections(seeds, share, 0.0, tables)


def plot(content: dict, path: Path) -> None:
    """Draw power by true difference, one panel for each number of seeds."""
    from auxlearn.results.figures import (
        PRINT_DPI,
        PRINT_FONT,
        PRINT_WIDTH,
        colour,
        figure_of,
        figure_style,
        legend_below,
        save_figure,
    )

    names = {
        "crossed t-test alone": "crossed t-test alone",
        CHOSEN: "both t-tests (as compared)",
        "permutation, examples and crossed": "permutation, examples and crossed",
    }
    with figure_style(PRINT_FONT):
        figure, panels = figure_of(PRINT_WIDTH, 2.1, len(SEEDS), len(SEEDS), sharey=True)
        for axes, seeds in zip(panels, SEEDS, strict=True):
            rows = [row for row in content["curves"] if row["seeds"] == seeds]
            for number, (name, title) in enumerate(names.items()):
                line = ("-", "--", ":")[number]
                x = [row["shift"] for row in rows]
                axes.plot(x, [row[name] for row in rows], line, color=colour(number), label=title)
            axes.axhline(ALPHA, color="0.5", linewidth=0.5)
            axes.set_title(f"{seeds} seeds")
            axes.set_ylim(0, 1)
        panels[0].set_ylabel("told apart")
        panels[1].set_xlabel("true difference / its standard error")
        legend_below(figure, panels)
        save_figure(figure, path.with_name(f"{path.name}.png"), PRINT_DPI)


def tables(content: dict) -> dict[str, str]:
    """Return the tables of the page by the name of their section."""

    def share(value: float) -> str:
        return f"{100 * value:.1f}"

    names = [name for name in content["false_positives"][0] if name not in ("seeds", "share")]
    equal = table(
        ["seeds", "variance from examples", *(f"**{n}**" if n == CHOSEN else n for n in names)],
        [
            [str(row["seeds"]), f"{row['share']:.0%}", *(share(row[name]) for name in names)]
            for row in content["false_positives"]
        ],
    )
    whole = table(
        ["metric", "noise from", *(f"{seeds} seeds" for seeds in SEEDS)],
        [
            [metric_title(metric), noise, *(share(row["false_positives"]) for row in rows)]
            for (metric, noise), rows in (
                (key, list(rows))
                for key, rows in itertools.groupby(
                    content["whole"], lambda row: (row["metric"], row["noise"])
                )
            )
        ],
    )
    power = table(
        ["methods", "compared", "seeds", "detectable difference", "found"],
        [
            [
                str(row["methods"]),
                "with one" if row["against"] else "all",
                str(row["seeds"]),
                f"{100 * row['detectable']:.1f} points",
                share(row["power"]),
            ]
            for row in content["power"]
        ],
    )
    return {"equal": equal, "whole": whole, "power": power}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1500, help="for each row of the power")
    parser.add_argument("--output", type=Path, default=RESULTS / "significance.json")
    parser.add_argument("--plot", type=Path, help="draw the power curves; a path without a suffix")
    parser.add_argument("--page", type=Path, help="page whose tables are replaced")
    parser.add_argument("--no-run", action="store_true", help="plot and page of finished results")
    options = parser.parse_args()
    if not options.no_run:
        content = run(options.tables)
        options.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    content = json.loads(options.output.read_text(encoding="utf-8"))
    if options.plot:
        plot(content, options.plot)
    if options.page:
        for name, text in tables(content).items():
            write_section(options.page, name, [text])


def run(count: int) -> dict:
    """Draw and compare, and return the results.

    Args:
        count: Tables of predictions for each row of the power.
    """
    content: dict = {"tables": count}
    content["false_positives"] = []
    for seeds, share in itertools.product(SEEDS, SHARES):
        row = {"seeds": seeds, "share": share} | false_positives(seeds, share)
        content["false_positives"].append(row)
        print(json.dumps(row), flush=True)
    content["whole"] = []
    for metric, noise, seeds in itertools.product(("accuracy", "macro_f1"), NOISES, SEEDS):
        tables = Tables(len(content["whole"]), noise, 3, seeds, metric=metric)
        found = tables.false_positives(2 * count)
        row = {"metric": metric, "noise": noise, "seeds": seeds, "false_positives": found}
        content["whole"].append(row)
        print(json.dumps(row), flush=True)
    content["power"] = []
    for methods, seeds, against in [*itertools.product((2, 3), SEEDS, (False,)), (5, 5, True)]:
        tables = Tables(len(content["power"]), "both", methods, seeds, against=against)
        found = tables.power(count, tables.detectable)
        row = {"methods": methods, "against": against, "seeds": seeds}
        row |= {"detectable": tables.detectable, "power": found}
        content["power"].append(row)
        print(json.dumps(row), flush=True)
    content["curves"] = [
        {"seeds": seeds, "shift": shift} | rejections(seeds, 0.4, shift, 20_000)
        for seeds in SEEDS
        for shift in np.arange(0, 8.01, 0.5).tolist()
    ]
    return content


if __name__ == "__main__":
    main()
