"""Methods compared across data sets: average ranks, Friedman's test, Nemenyi's critical difference.

Demšar, J. (2006), "Statistical comparisons of classifiers over multiple data sets", Journal of
Machine Learning Research 7, https://www.jmlr.org/papers/v7/demsar06a.html.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from auxlearn.comparison.statistics import ALPHA, Pair

#: Wins, ties and losses.
Record = tuple[int, int, int]


@dataclass(frozen=True)
class Ranks:
    """Methods ranked on several data sets.

    Attributes:
        datasets: Number of data sets.
        ranks: Average rank of each method; 1 is the best, equal scores share their ranks.
        p_friedman: p-value of Friedman's test that all methods are equal; NaN with fewer than
            three methods.
        critical_difference: Average ranks that differ by this much differ significantly by
            Nemenyi's test; NaN with fewer than three methods.
        p_nemenyi: p-value of Nemenyi's test of every two methods, ``(methods, methods)``.
    """

    datasets: int
    ranks: Mapping[str, float]
    p_friedman: float
    critical_difference: float
    p_nemenyi: np.ndarray


def rank_methods(scores: Mapping[str, Sequence[float]]) -> Ranks:
    """Rank methods by their mean scores on each data set.

    Args:
        scores: Mean score of each method on each data set, in the same order.
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    table = np.array(list(scores.values()), dtype=float)  # (methods, data sets)
    methods, datasets = table.shape
    ranks = rankdata(-table, axis=0).mean(1)
    p_friedman = critical = math.nan
    p_nemenyi = np.full((methods, methods), math.nan)
    if methods > 2 and datasets > 1:
        equal = (table == table[0]).all()
        p_friedman = 1.0 if equal else float(friedmanchisquare(*table).pvalue)
        # Differences of ranks have infinite degrees of freedom (Demšar, equation 5.1 and table 5).
        error = math.sqrt(methods * (methods + 1) / (12 * datasets))
        critical = float(studentized_range.ppf(1 - ALPHA, methods, np.inf)) * error
        distances = np.abs(np.subtract.outer(ranks, ranks)) / error
        p_nemenyi = np.asarray(studentized_range.sf(distances, methods, np.inf))
    by_name = dict(zip(scores, map(float, ranks), strict=True))
    return Ranks(datasets, by_name, p_friedman, critical, p_nemenyi)


def cliques(ranks: Ranks) -> list[tuple[str, ...]]:
    """Return the largest groups of methods, best first, that do not differ significantly."""
    names = sorted(ranks.ranks, key=lambda name: ranks.ranks[name])
    found: list[tuple[str, ...]] = []
    end = 0
    for start, name in enumerate(names):
        limit = ranks.ranks[name] + ranks.critical_difference
        members = [other for other in names[start:] if ranks.ranks[other] < limit]
        if len(members) > 1 and start + len(members) > end:
            found.append(tuple(members))
            end = start + len(members)
    return found


def wins(methods: Sequence[str], columns: Sequence[Sequence[Pair]]) -> dict[str, Record]:
    """Count for each method on how many data sets it beats others, ties, and loses.

    Args:
        methods: Names of the methods.
        columns: Pairs on each data set; a difference that is not significant is a tie.

    Returns:
        Wins, ties and losses over all data sets and all pairs with the method.
    """
    found = {}
    for name in methods:
        pairs = [pair for column in columns for pair in column if name in pair.names]
        ties = sum(not pair.significant for pair in pairs)
        won = sum(pair.significant and pair.first == name for pair in pairs)
        found[name] = (won, ties, len(pairs) - ties - won)
    return found
