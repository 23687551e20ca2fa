"""Differences between methods: intervals and significance, as pure functions of their scores.

Scores vary with the seed and with the sample of evaluation examples, and a difference is
significant only if neither explains it. Two tests have to reject, and the p-value of a pair is the
larger one:

- over seeds, the paired t-test;
- over seeds and examples, a t-test of a crossed design in which both are random, with the
  variance of seeds plus that of examples minus their interaction, which is in both (Dorfman,
  Berbaum and Metz, 1992, https://doi.org/10.1097/00004424-199209000-00015, who compare readers of
  the same images), and the degrees of freedom of Satterthwaite (1946,
  https://doi.org/10.2307/3002019), here without the term of the interaction.

Both assume that the differences of seeds are normal. The second alone rejects too often with three
seeds, because so few may happen to agree; the first alone takes the examples for all there are
(Clark, 1973, https://doi.org/10.1016/S0022-5371(73)80014-3). Permutation tests cannot reject at all
with five seeds and three methods. ``python -m benchmarks.significance`` measures all of these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

#: Significance level of all tests.
ALPHA = 0.05
#: With fewer seeds no difference is significant: the variance of two is too uncertain.
MINIMUM_SEEDS = 3


@dataclass(frozen=True)
class Column:
    """Scores of all methods by one metric on one evaluation set."""

    scores: Mapping[str, Mapping[int, float]]  # score of each method by seed
    runs: Mapping[tuple[str, int], int]  # index of the run of each method and seed in covariance
    covariance: np.ndarray  # of the scores of runs over samples of examples, (runs, runs)
    examples: int
    sign: int = 1  # 1 if larger scores are better, -1 if smaller ones are


@dataclass(frozen=True)
class Noise:
    """Variance of a mean over seeds, or of a difference of two, by source."""

    # variance from the seeds, s**2 / n for the sample variance s**2 over n seeds; 0 with fewer than
    # two seeds
    seeds: float
    examples: float  # variance from the sample of examples
    interaction: float  # part that both contain, because each seed errs on other examples
    free_seeds: float  # degrees of freedom of seeds
    free_examples: float  # degrees of freedom of examples

    @property
    def total(self) -> float:
        """Variance from both sources, never less than that of either of them."""
        return max(self.seeds, self.examples, self.seeds + self.examples - self.interaction)

    @property
    def freedom(self) -> float:
        """Satterthwaite's degrees of freedom of ``total``."""
        parts = self.seeds**2 / max(1, self.free_seeds)
        parts += self.examples**2 / max(1, self.free_examples)
        return self.total**2 / parts if parts else math.inf

    def test(self, value: float) -> tuple[float, float]:
        """Return the p-values of a value against 0: over seeds, and over seeds and examples."""
        return (t_test(value, self.seeds, self.free_seeds), t_test(value, self.total, self.freedom))

    def half_width(self) -> float:
        """Return half the width of the 95% interval: the wider one of those of the two tests."""
        return max(half_width(self.seeds, self.free_seeds), half_width(self.total, self.freedom))


@dataclass(frozen=True)
class Pair:
    """Two methods compared on the seeds that both have."""

    first: str  # the method with the better mean
    second: str
    seeds: int  # number of seeds that both have
    difference: float  # mean over seeds of the score of first minus that of second
    low: float  # of the 95% interval, not corrected for other pairs; NaN with few seeds
    high: float
    beats: float  # share of pairs of their runs in which first is better, ties counted half
    p_seeds: float  # p-value of the paired t-test over seeds
    p_both: float  # p-value of the t-test over seeds and examples
    p: float  # the larger one, corrected by Holm's method
    noise: Noise  # variance of the difference

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.first, self.second))

    @property
    def significant(self) -> bool:
        return self.p <= ALPHA


def t_test(value: float, variance: float, freedom: float) -> float:
    """Return the two-sided p-value of Student's t-test of a value against 0."""
    from scipy.special import stdtr

    if value == 0:
        return 1.0
    if variance == 0:
        return 0.0
    return float(2 * stdtr(freedom, -abs(value) / math.sqrt(variance)))


def half_width(variance: float, freedom: float) -> float:
    """Return half the width of Student's 95% interval of a value with this estimated variance."""
    from scipy.special import ndtri, stdtrit

    if not variance:
        return 0.0
    quantile = ndtri(1 - ALPHA / 2) if math.isinf(freedom) else stdtrit(freedom, 1 - ALPHA / 2)
    return float(quantile) * math.sqrt(variance)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple testing by Holm's step-down method.

    Holm, S. (1979), "A simple sequentially rejective multiple test procedure",
    https://www.jstor.org/stable/4615733.

    >>> holm([0.25, 0.125, 0.5])
    [0.5, 0.375, 0.5]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def compare_methods(column: Column, against: str | None = None) -> list[Pair]:
    """Compare every two methods, or all with one; the correction is for all of these pairs."""
    chosen = itertools.combinations(column.scores, 2)
    return correct([_compare_two(column, a, b) for a, b in chosen if against in (None, a, b)])


def correct(pairs: Sequence[Pair]) -> list[Pair]:
    """Return pairs with their p-values corrected for all of them."""
    corrected = holm([max(pair.p_seeds, pair.p_both) for pair in pairs])
    return [replace(pair, p=p) for pair, p in zip(pairs, corrected, strict=True)]


def _compare_two(column: Column, a: str, b: str) -> Pair:
    seeds = sorted(set(column.scores[a]) & set(column.scores[b]))
    if column.sign * np.sum([column.scores[a][s] - column.scores[b][s] for s in seeds]) < 0:
        a, b = b, a
    first, second = ([column.scores[name][seed] for seed in seeds] for name in (a, b))
    difference = float(np.mean(np.subtract(first, second))) if seeds else math.nan
    noise = noise_of(column, {a: 1.0, b: -1.0}, seeds)
    beats = share_of_wins(first, second, column.sign)
    return make_pair(a, b, len(seeds), difference, beats, noise)


def share_of_wins(first: Sequence[float], second: Sequence[float], sign: int) -> float:
    """Return the share of all pairs of runs in which the first scores better, ties counted half."""
    better = sign * np.sign(np.subtract.outer(first, second))
    return 0.5 + float(better.mean()) / 2 if better.size else math.nan


def make_pair(
    first: str, second: str, seeds: int, difference: float, beats: float, noise: Noise
) -> Pair:
    """Return a pair with its tests and its interval, not corrected for other pairs."""
    p_seeds = p_both = 1.0
    low = high = math.nan
    if seeds >= MINIMUM_SEEDS:
        p_seeds, p_both = noise.test(difference)
        half = noise.half_width()
        low, high = difference - half, difference + half
    p = max(p_seeds, p_both)
    return Pair(first, second, seeds, difference, low, high, beats, p_seeds, p_both, p, noise)


def noise_of(column: Column, factors: Mapping[str, float], seeds: Sequence[int]) -> Noise:
    """Return the variance of a linear combination of methods, by source. That of one seed over
    examples includes the interaction, the mean over n seeds an nth of it: so it follows from both.
    """
    count = len(seeds)
    if not count:
        return Noise(0.0, 0.0, 0.0, 0, column.examples - 1)
    values = np.sum([[f * column.scores[m][s] for s in seeds] for m, f in factors.items()], axis=0)
    places = [[column.runs[m, s] for s in seeds] for m in factors]
    weights = list(factors.values())
    between = np.zeros((count, count))
    for left, rows in zip(weights, places, strict=True):
        for right, columns in zip(weights, places, strict=True):
            between += left * right * column.covariance[np.ix_(rows, columns)]
    by_examples = max(0.0, float(between.mean()))
    single = max(0.0, float(np.trace(between))) / count
    by_seeds, interaction = 0.0, 0.0
    if count > 1:
        by_seeds = float(np.var(values, ddof=1)) / count
        interaction = max(0.0, (single - by_examples) / (count - 1))
    return Noise(by_seeds, by_examples, interaction, count - 1, max(1, column.examples - 1))


def mean_noise(noises: Sequence[Noise]) -> Noise:
    """Return the variance of the mean of independent values, such as those of several data sets."""
    count = len(noises)

    def joined(values: list[float], freedoms: list[float]) -> tuple[float, float]:
        total = sum(values)
        parts = sum(v**2 / max(1, f) for v, f in zip(values, freedoms, strict=True))
        return total / count**2, total**2 / parts if parts else min(freedoms)

    seeds, free_seeds = joined([n.seeds for n in noises], [n.free_seeds for n in noises])
    examples, free = joined([n.examples for n in noises], [n.free_examples for n in noises])
    interaction = sum(n.interaction for n in noises) / count**2
    return Noise(seeds, examples, interaction, free_seeds, free)


def ties_with(name: str, pairs: Sequence[Pair]) -> frozenset[str]:
    """Return the methods whose difference from one of them is not significant."""
    ties = (pair.names for pair in pairs if name in pair.names and not pair.significant)
    return frozenset().union(*ties) - {name}


#: Wins, ties and losses.
Record = tuple[int, int, int]


@dataclass(frozen=True)
class Ranks:
    """Methods ranked on several data sets."""

    datasets: int
    ranks: Mapping[str, float]  # average ranks; 1 is the best, equal scores share theirs
    p_friedman: float  # that all methods are equal; NaN with fewer than three
    critical_difference: float  # by which ranks differ significantly (Nemenyi); NaN likewise


def rank_methods(scores: Mapping[str, Sequence[float]]) -> Ranks:
    """Rank methods by their mean scores on each data set."""
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    table = np.array(list(scores.values()), dtype=float)  # (methods, data sets)
    methods, datasets = table.shape
    ranks = rankdata(-table, axis=0).mean(1)
    p_friedman = critical = math.nan
    if methods > 2 and datasets > 1:
        equal = (table == table[0]).all()
        p_friedman = 1.0 if equal else float(friedmanchisquare(*table).pvalue)
        # Differences of ranks have infinite degrees of freedom (Demšar, equation 5.1 and table 5).
        error = math.sqrt(methods * (methods + 1) / (12 * datasets))
        critical = float(studentized_range.ppf(1 - ALPHA, methods, np.inf)) * error
    by_name = dict(zip(scores, map(float, ranks), strict=True))
    return Ranks(datasets, by_name, p_friedman, critical)


def cliques(ranks: Ranks) -> list[tuple[str, ...]]:
    """Return the largest groups of methods, best first, that do not differ significantly."""
    names = sorted(ranks.ranks, key=lambda name: ranks.ranks[name])
    groups: list[tuple[str, ...]] = []
    end = 0
    for start, name in enumerate(names):
        limit = ranks.ranks[name] + ranks.critical_difference
        members = [other for other in names[start:] if ranks.ranks[other] < limit]
        if len(members) > 1 and start + len(members) > end:
            groups.append(tuple(members))
            end = start + len(members)
    return groups


def wins(methods: Sequence[str], columns: Sequence[Sequence[Pair]]) -> dict[str, Record]:
    """Count for each method on how many data sets it beats others, ties, and loses."""
    records = {}
    for name in methods:
        pairs = [pair for column in columns for pair in column if name in pair.names]
        ties = sum(not pair.significant for pair in pairs)
        won = sum(pair.significant and pair.first == name for pair in pairs)
        records[name] = (won, ties, len(pairs) - ties - won)
    return records
