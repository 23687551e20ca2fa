"""Distances from random masking and agreement of two strategies: by hand and against SciPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from auxlearn.mask_analysis.statistics import MaskRates, agreement, spread
from tests.helpers import ragged

#: Two texts of four and two maskable tokens; the first and last token of each is special.
TEXTS = ragged([6, 4])


def rates(*values, name="task", draws=None, texts=TEXTS):
    found = torch.zeros(len(texts.input_ids), dtype=torch.float64)
    found[texts.maskable] = torch.tensor(values, dtype=torch.float64)
    return MaskRates(name, texts, found, draws)


def test_moved_masks_by_hand():
    # Shares 0.4, 0.4, 0.1, 0.1 of the first text are 0.3 away from a quarter each; 0.75 and 0.25
    # of the second are 0.25 away from a half each.
    found = spread(rates(0.24, 0.24, 0.06, 0.06, 0.225, 0.075))
    assert found.moved == pytest.approx((0.3 + 0.25) / 2, rel=1e-12)
    assert found.mean == pytest.approx(0.15, rel=1e-12)
    assert found.by_chance == 0
    assert not found.nearly_random
    assert (found.percentile_5, found.median, found.percentile_95) == pytest.approx(
        tuple(np.quantile([0.24, 0.24, 0.06, 0.06, 0.225, 0.075], [0.05, 0.5, 0.95]))
    )


def test_random_masking_moves_nothing():
    found = spread(rates(*[0.15] * 6))
    assert found.moved == pytest.approx(0, abs=1e-15)
    assert found.nearly_random


def test_counts_of_random_masking_are_told_from_a_strategy():
    texts = ragged([42] * 200)
    draws = np.random.default_rng(5).binomial(100, 0.1, size=200 * 40) / 100
    random = spread(rates(*draws, draws=100, texts=texts))
    assert random.moved > 0.05  # by chance alone
    assert random.moved == pytest.approx(random.by_chance, rel=0.05)
    assert random.nearly_random
    strict = spread(rates(*([0.2] * 20 + [0.0] * 20) * 200, draws=100, texts=texts))
    assert strict.moved == pytest.approx(0.5)
    assert not strict.nearly_random


def test_overlap_by_hand():
    one = rates(0.3, 0.3, 0.0, 0.0, 0.1, 0.1, name="one")
    other = rates(0.0, 0.3, 0.3, 0.0, 0.3, 0.1, name="other")
    found = agreement(one, other)
    assert (found.first, found.second) == ("one", "other")
    assert found.overlap == pytest.approx((0.5 + 0.75) / 2, rel=1e-12)
    assert agreement(one, one).overlap == pytest.approx(1)


def test_rank_correlation_is_the_mean_of_scipys_over_texts():
    draws = np.random.default_rng(3)
    lengths = [12, 7, 30, 5]
    texts = ragged([length + 2 for length in lengths])
    one = draws.integers(0, 5, sum(lengths)) / 10  # many ties
    other = draws.random(sum(lengths))
    starts = np.cumsum([0, *lengths])
    expected = [
        spearmanr(one[begin:end], other[begin:end]).statistic for begin, end in pairwise(starts)
    ]
    found = agreement(rates(*one, texts=texts), rates(*other, texts=texts))
    assert found.rank_correlation == pytest.approx(np.mean(expected), rel=1e-12)


def test_a_constant_strategy_has_no_rank_correlation():
    one = rates(0.1, 0.2, 0.3, 0.4, 0.1, 0.2)
    assert agreement(one, rates(*[0.15] * 6)).rank_correlation is None
    # Probabilities that differ by rounding alone are equal.
    almost = rates(0.15, 0.15 + 1e-16, 0.15, 0.15 - 1e-16, 0.15, 0.15)
    assert agreement(one, almost).rank_correlation is None


def test_a_text_without_maskable_tokens_does_not_count():
    texts = ragged([6, 2, 4])
    values = (0.24, 0.24, 0.06, 0.06, 0.225, 0.075)
    assert spread(rates(*values, texts=texts)).moved == spread(rates(*values)).moved
