r"""How far masking is from random, and how much two strategies agree.

Within a text of n maskable tokens, :math:`q_t = p_t / \sum_s p_s` is the share of the text's masks
that fall on token t, and 1/n its share under random masking. All measures are means over texts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from auxlearn.inspection.rates import MaskRates

#: Share of moved masks below which masking is called nearly random.
NEARLY_RANDOM = 0.05


@dataclass(frozen=True)
class Spread:
    r"""How unequally a task masks the tokens of a text.

    Attributes:
        mean: Mean mask probability of the maskable tokens.
        percentile_5: 5% of the maskable tokens have at most this probability.
        median: Median probability.
        percentile_95: 95% of them have at most this probability.
        moved: Share of the masks that fall on other tokens than under random masking:
            :math:`\frac{1}{2} \sum_t |q_t - 1/n|`, the total variation distance. 0 is random
            masking.
        by_chance: What ``moved`` would be if tokens were masked at random and counted over as many
            draws; 0 for exact probabilities.
    """

    mean: float
    percentile_5: float
    median: float
    percentile_95: float
    moved: float
    by_chance: float

    @property
    def nearly_random(self) -> bool:
        """Whether hardly any masks fall on other tokens than under random masking."""
        return self.moved - self.by_chance < NEARLY_RANDOM


@dataclass(frozen=True)
class Agreement:
    r"""How much the masks of two tasks agree.

    Attributes:
        first: Name of a task.
        second: Name of the other.
        overlap: Share of the masks that fall on the same tokens: :math:`\sum_t \min(q_t, q'_t)`.
        rank_correlation: Spearman's rank correlation of the mask probabilities within a text, mean
            over the texts; ``None`` where one of them masks all tokens of a text alike.
    """

    first: str
    second: str
    overlap: float
    rank_correlation: float | None


def spread(rates: MaskRates, seed: int = 0) -> Spread:
    """Return how unequally a task masks the tokens of a text.

    Args:
        rates: How often it masks each token.
        seed: Seed of the simulated draws of random masking.
    """
    owner, values = _by_text(rates)
    shares = _shares(owner, values)
    by_chance = 0.0
    if rates.draws is not None:
        totals = np.bincount(owner, values)
        mean = (totals / np.maximum(1, np.bincount(owner)))[owner]
        random = np.random.default_rng(seed).binomial(rates.draws, np.clip(mean, 0, 1))
        by_chance = _moved(owner, _shares(owner, random / rates.draws))
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95]) if len(values) else (0.0, 0.0, 0.0)
    return Spread(
        mean=float(values.mean()) if len(values) else 0.0,
        percentile_5=float(low),
        median=float(middle),
        percentile_95=float(high),
        moved=_moved(owner, shares),
        by_chance=by_chance,
    )


def agreement(one: MaskRates, other: MaskRates) -> Agreement:
    """Return how much the masks of two tasks on the same texts agree."""
    owner, values = _by_text(one)
    _, others = _by_text(other)
    smaller = np.minimum(_shares(owner, values), _shares(owner, others))
    texts = np.bincount(owner) > 0
    overlap = np.bincount(owner, smaller)[texts].mean() if len(owner) else 0.0
    return Agreement(one.name, other.name, float(overlap), _rank_correlation(owner, values, others))


def _by_text(rates: MaskRates) -> tuple[np.ndarray, np.ndarray]:
    """Return the text and the rate of each maskable token."""
    texts = rates.texts
    owner = np.repeat(np.arange(len(texts)), texts.lengths.numpy())
    maskable = texts.maskable.numpy()
    return owner[maskable], rates.rates.numpy()[maskable]


def _shares(owner: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return each token's share of the masks of its text; equal shares in a text without masks."""
    totals, counts = np.bincount(owner, values), np.bincount(owner)
    equal = 1 / np.maximum(1, counts)
    return np.where(
        totals[owner] > 0, values / np.where(totals > 0, totals, 1)[owner], equal[owner]
    )


def _moved(owner: np.ndarray, shares: np.ndarray) -> float:
    if not len(owner):
        return 0.0
    counts = np.bincount(owner)
    distance = np.bincount(owner, np.abs(shares - (1 / np.maximum(1, counts))[owner])) / 2
    return float(distance[counts > 0].mean())


def _rank_correlation(owner: np.ndarray, one: np.ndarray, other: np.ndarray) -> float | None:
    import pandas as pd

    # Equal probabilities may differ by rounding, which ranks would take for an order.
    table = pd.DataFrame({"one": one.round(12), "other": other.round(12)}).groupby(owner)
    ranks = table.rank()
    centred = ranks - ranks.groupby(owner).transform("mean")
    sums = (
        pd.DataFrame(
            {
                "product": centred["one"] * centred["other"],
                "one": centred["one"] ** 2,
                "other": centred["other"] ** 2,
            }
        )
        .groupby(owner)
        .sum()
    )
    sums = sums[(sums["one"] > 0) & (sums["other"] > 0)]
    if not len(sums):
        return None
    return float((sums["product"] / (sums["one"] * sums["other"]) ** 0.5).mean())
