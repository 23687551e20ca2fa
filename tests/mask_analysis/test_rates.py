"""How often tokens are masked, distances from random masking, and agreement of strategies."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from auxlearn.core.registry import TASKS
from auxlearn.mask_analysis.shown_text import ShownText
from auxlearn.mask_analysis.statistics import MaskRates, agreement, mask_rates, spread
from auxlearn.tasks.base import MaskedLanguageModelling
from tests.helpers import LINES, context, ragged, tokenized

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


class EvenIds(MaskedLanguageModelling):
    """Mask tokens of even id with probability 0.25."""

    name = "even_ids"

    def mask_probabilities(self, batch):
        return ((batch.input_ids % 2 == 0) & batch.maskable).double() / 4


@pytest.fixture
def prepared(tiny_bert, tmp_path):
    texts = tokenized(tiny_bert, LINES)

    def make(cls, **options):
        task = cls(cls.Options(**options))
        task.prepare(context(tiny_bert, texts, tmp_path))
        return task

    make.texts = texts
    return make


def test_probabilities_are_those_of_the_task(prepared, tiny_bert):
    found = mask_rates(prepared(EvenIds), "even_ids", tiny_bert, 0)
    texts = prepared.texts
    expected = [
        0.25 if maskable and token % 2 == 0 else 0.0
        for token, maskable in zip(texts.input_ids.tolist(), texts.maskable.tolist(), strict=True)
    ]
    assert found.rates.tolist() == expected
    assert found.draws is None


def test_a_fixed_share_comes_out_in_every_text(prepared, tiny_bert):
    """Each draw masks the same number of tokens of a text, so their rates sum to it."""
    task = prepared(TASKS.get("mask_tuning"), probability=0.2, selection="share")
    before = tiny_bert.training
    found = mask_rates(task, "mask_tuning", tiny_bert, 0, draws=40)
    texts = prepared.texts
    for number in range(len(texts)):
        part = slice(int(texts.offsets[number]), int(texts.offsets[number + 1]))
        maskable = int(texts.maskable[part].sum())
        assert float(found.rates[part].sum()) == pytest.approx(max(1, round(0.2 * maskable)))
    assert not found.rates[~texts.maskable].any()
    assert found.rates[texts.maskable].std() < 0.1  # 0.063 by chance; one fixed choice gives 0.4
    assert (found.draws, tiny_bert.training) == (40, before)
    assert "predict_tokens" not in vars(tiny_bert)


def test_other_tasks_that_mask_are_counted_and_those_that_do_not_are_told(prepared, tiny_bert):
    task = prepared(TASKS.get("replaced_tokens"), probability=0.3)
    found = mask_rates(task, "replaced_tokens", tiny_bert, 0, draws=30)
    assert found.rates[prepared.texts.maskable].mean() == pytest.approx(0.3, abs=0.02)
    assert mask_rates(prepared(TASKS.get("simcse")), "simcse", tiny_bert, 0) is None
    assert torch.is_grad_enabled()


def test_rates_within_the_noise_of_their_draws_are_shown_as_random_masking():
    # Of 100 draws at 0.2 the standard error is 0.04.
    text = ShownText(0, ["a", "b", "c", "d"], {"t": [0.2, 0.27, 0.29, 0.1]}, {"t": 0.2})
    assert text.times("t", 100) == pytest.approx([1, 1, 1.45, 0.5])
    assert text.times("t", None) == pytest.approx([1, 1.35, 1.45, 0.5])
    assert ShownText(0, ["a"], {"t": [0.0]}, {"t": 0.0}).times("t", 100) == [1.0]
