"""Mask probabilities: exact mean, no probability above 1, order of the scores."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

from auxlearn.objectives.masking import rescale_to_mean, uniform

MEAN = 0.15

score_rows = st.lists(
    st.lists(
        st.one_of(
            st.just(0.0),
            st.just(1.0),
            st.floats(0, 1),
            st.floats(0, 1e-300),
            st.floats(0, 1e300),
        ),
        min_size=1,
        max_size=40,
    ),
    min_size=1,
    max_size=5,
)


def laid_out(rows, pad=0, junk=7.0):
    """Scores and maskable of ragged rows; a special token before each, junk where padding is."""
    width = max(map(len, rows)) + 1 + pad
    scores = torch.full((len(rows), width), junk, dtype=torch.float64)
    maskable = torch.zeros(len(rows), width, dtype=torch.bool)
    for index, row in enumerate(rows):
        scores[index, 1 : len(row) + 1] = torch.tensor(row, dtype=torch.float64)
        maskable[index, 1 : len(row) + 1] = True
    return scores, maskable


@settings(max_examples=150, deadline=None)
@given(score_rows, st.floats(0.01, 1.0))
def test_mean_is_exact_and_nothing_exceeds_one(rows, mean):
    scores, maskable = laid_out(rows)
    probabilities = rescale_to_mean(scores, maskable, mean)
    assert probabilities.dtype == torch.float64
    for row, where in zip(probabilities, maskable, strict=True):
        assert float(row[where].mean()) == pytest.approx(mean, abs=1e-12)
    assert probabilities.max() <= 1
    assert probabilities.min() >= 0
    assert (probabilities[~maskable] == 0).all()


@settings(max_examples=150, deadline=None)
@given(score_rows, st.floats(0.01, 1.0))
def test_order_and_ratios_are_kept(rows, mean):
    scores, maskable = laid_out(rows)
    probabilities = rescale_to_mean(scores, maskable, mean)
    for row, score, where in zip(probabilities, scores, maskable, strict=True):
        row, score = row[where], score[where]
        by_score = score.argsort(stable=True)
        assert (row[by_score].diff() >= -1e-12).all()
        if score.max() > 0 and row.max() < 1:
            # Nothing was clipped: probabilities are proportional to scores.
            scaled = score / score.max()
            torch.testing.assert_close(row, scaled * row.max(), atol=1e-12, rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(score_rows, st.integers(1, 9))
def test_padding_changes_nothing(rows, pad):
    scores, maskable = laid_out(rows)
    wider_scores, wider_maskable = laid_out(rows, pad, junk=float("nan"))
    narrow = rescale_to_mean(scores, maskable, MEAN)
    wide = rescale_to_mean(wider_scores, wider_maskable, MEAN)
    torch.testing.assert_close(wide[:, : narrow.shape[1]], narrow, atol=1e-14, rtol=0)
    assert (wide[:, narrow.shape[1] :] == 0).all()


@settings(max_examples=60, deadline=None)
@given(score_rows)
def test_texts_are_independent_of_each_other(rows):
    together = rescale_to_mean(*laid_out(rows), MEAN)
    for index, row in enumerate(rows):
        alone = rescale_to_mean(*laid_out([row]), MEAN)[0]
        torch.testing.assert_close(together[index, : len(alone)], alone, atol=1e-14, rtol=0)


def test_scaling_by_hand():
    # Three tokens, mean 0.15: the probabilities sum to 0.45, in the ratio 3:1:5.
    scores, maskable = laid_out([[0.3, 0.1, 0.5]])
    probabilities = rescale_to_mean(scores, maskable, 0.15)
    expected = torch.tensor([[0.0, 0.15, 0.05, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(probabilities, expected, atol=1e-15, rtol=0)


def test_the_excess_is_spread_equally_and_again_by_hand():
    # Ten tokens, mean 0.3: the probabilities sum to 3. The scores sum to 10, so alpha is 0.3.
    scores, maskable = laid_out([[5.6, 3.0, 0.5, 0.4, 0.2, 0.1, 0.1, 0.1, 0.0, 0.0]])
    # Scaled:      1.68  0.90 0.15 0.12 0.06 0.03 0.03 0.03 0 0; the excess is 0.68.
    # Nine others get 0.68 / 9 each, which lifts the second to 0.97556: none above 1.
    probabilities = rescale_to_mean(scores, maskable, 0.3)
    part = 0.68 / 9
    expected = [1.0, *(0.3 * s + part for s in (3.0, 0.5, 0.4, 0.2, 0.1, 0.1, 0.1, 0.0, 0.0))]
    assert probabilities[0, 1:].tolist() == pytest.approx(expected, abs=1e-14)

    # With 6.0 and 3.2 in place of 5.6 and 3.0 (and 0.8 less for the rest) a second round is needed.
    scores, maskable = laid_out([[6.0, 3.2, 0.3, 0.2, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0]])
    # Scaled:      1.80  0.96 0.09 0.06 0.03 0.03 0.03 0 0 0; the excess is 0.80.
    # Nine others get 0.80 / 9 = 0.08889: the second stands at 1.04889, an excess of 0.04889.
    # The eight others get 0.04889 / 8 each.
    probabilities = rescale_to_mean(scores, maskable, 0.3)
    first = 0.8 / 9
    second = (0.96 + first - 1) / 8
    rest = [0.3 * s + first + second for s in (0.3, 0.2, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0)]
    assert second > 0
    assert probabilities[0, 1:].tolist() == pytest.approx([1.0, 1.0, *rest], abs=1e-14)
    assert sum(probabilities[0].tolist()) == pytest.approx(3.0, abs=1e-12)


def test_scores_that_are_all_zero_mask_uniformly():
    scores, maskable = laid_out([[0.0] * 7, [0.0, 2.0]])
    probabilities = rescale_to_mean(scores, maskable, MEAN)
    assert probabilities[0].tolist() == [0.0] + [MEAN] * 7
    assert probabilities[1, 1:3].tolist() == [0.0, 2 * MEAN]


def test_a_text_without_maskable_tokens_gets_zeros():
    scores = torch.ones(2, 4)
    maskable = torch.tensor([[False] * 4, [False, True, True, False]])
    probabilities = rescale_to_mean(scores, maskable, MEAN)
    assert probabilities.tolist() == [[0.0] * 4, [0.0, MEAN, MEAN, 0.0]]


@pytest.mark.parametrize("mean", [0.0, -0.1, 1.01, float("nan")])
def test_a_mean_outside_its_range_is_refused(mean):
    with pytest.raises(ValueError, match="mean must be in"):
        rescale_to_mean(*laid_out([[1.0]]), mean)


@pytest.mark.parametrize("score", [-1e-9, float("nan"), float("inf")])
def test_impossible_scores_are_refused(score):
    with pytest.raises(ValueError, match="finite and not negative"):
        rescale_to_mean(*laid_out([[1.0, score]]), MEAN)


def test_uniform():
    maskable = torch.tensor([[False, True, True, False]])
    assert uniform(maskable, MEAN).tolist() == [[0.0, MEAN, MEAN, 0.0]]
    assert uniform(maskable, MEAN).dtype == torch.float64
