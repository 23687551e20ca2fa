"""Masking: probabilities, choice and corruption of tokens, and scores of masked tokens."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats
from scipy.special import log_softmax
from transformers import AutoModelForMaskedLM

from auxlearn.objectives import masking
from auxlearn.objectives.masking import (
    choose,
    choose_units,
    corrupt,
    frequency_cross_entropy,
    rescale_to_mean,
    score_masked,
    uniform,
)
from tests.helpers import LINES, generator, snapshot, tokenized

MEAN = 0.15

one_score = st.one_of(
    st.just(0.0), st.just(1.0), st.floats(0, 1), st.floats(0, 1e-300), st.floats(0, 1e300)
)
score_rows = st.lists(st.lists(one_score, min_size=1, max_size=40), min_size=1, max_size=5)


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
def test_mean_is_exact_nothing_exceeds_one_and_order_and_ratios_are_kept(rows, mean):
    scores, maskable = laid_out(rows)
    probabilities = rescale_to_mean(scores, maskable, mean)
    assert probabilities.dtype == torch.float64
    assert probabilities.max() <= 1
    assert probabilities.min() >= 0
    assert (probabilities[~maskable] == 0).all()
    for row, score, where in zip(probabilities, scores, maskable, strict=True):
        row, score = row[where], score[where]
        assert float(row.mean()) == pytest.approx(mean, abs=1e-12)
        by_score = score.argsort(stable=True)
        assert (row[by_score].diff() >= -1e-12).all()
        if score.max() > 0 and row.max() < 1:
            # Nothing was clipped: probabilities are proportional to scores.
            scaled = score / score.max()
            torch.testing.assert_close(row, scaled * row.max(), atol=1e-12, rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(score_rows, st.integers(1, 9))
def test_texts_are_independent_of_each_other_and_of_padding(rows, pad):
    together = rescale_to_mean(*laid_out(rows, pad, junk=float("nan")), MEAN)
    for index, row in enumerate(rows):
        alone = rescale_to_mean(*laid_out([row]), MEAN)[0]
        torch.testing.assert_close(together[index, : len(alone)], alone, atol=1e-14, rtol=0)
        assert (together[index, len(alone) :] == 0).all()


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
    assert probabilities[0].tolist() == uniform(maskable, MEAN)[0].tolist() == [0.0] + [MEAN] * 7
    assert probabilities[1, 1:3].tolist() == [0.0, 2 * MEAN]
    assert uniform(maskable, MEAN).dtype == torch.float64


def test_a_text_without_maskable_tokens_gets_zeros():
    scores = torch.ones(2, 4)
    maskable = torch.tensor([[False] * 4, [False, True, True, False]])
    probabilities = rescale_to_mean(scores, maskable, MEAN)
    assert probabilities.tolist() == [[0.0] * 4, [0.0, MEAN, MEAN, 0.0]]


@pytest.mark.parametrize("mean", [0.0, -0.1, 1.01, float("nan")])
def test_a_mean_outside_its_range_is_refused(mean):
    with pytest.raises(ValueError, match="mean must be in"):
        rescale_to_mean(*laid_out([[1.0]]), mean)
    with pytest.raises(ValueError, match=r"mean must be in \[0, 1\]"):
        uniform(torch.ones(1, 4, dtype=torch.bool), mean or 2)  # none masked is a mean of 0


@pytest.mark.parametrize("score", [-1e-9, float("nan"), float("inf")])
def test_impossible_scores_are_refused(score):
    with pytest.raises(ValueError, match="finite and not negative"):
        rescale_to_mean(*laid_out([[1.0, score]]), MEAN)


MASK = 4
RANDOM_IDS = torch.arange(5, 1005)


def within_binomial_bounds(count, total, share):
    """Whether a count lies where a fair one lies in all but a millionth of the draws."""
    low, high = stats.binom.interval(1 - 1e-6, total, share)
    return low <= count <= high


def test_shares_are_80_10_10():
    ids = torch.full((200, 500), 2000)  # an id that a random token never is
    corrupted = corrupt(ids, torch.ones_like(ids, dtype=torch.bool), MASK, RANDOM_IDS, generator())
    total = ids.numel()
    masked, kept = int((corrupted == MASK).sum()), int((corrupted == 2000).sum())
    assert within_binomial_bounds(masked, total, 0.8)
    assert within_binomial_bounds(kept, total, 0.1)
    assert within_binomial_bounds(total - masked - kept, total, 0.1)
    random = corrupted[(corrupted != MASK) & (corrupted != 2000)]
    assert random.min() >= 5  # never a special token
    assert random.max() < 1005
    counts = torch.bincount(random - 5, minlength=1000)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-6  # every id is as likely


def test_tokens_are_chosen_with_their_own_probability():
    probabilities = torch.tensor([0.05, 0.15, 0.5, 0.9], dtype=torch.float64).expand(20_000, 4)
    chosen = choose(probabilities, generator()).sum(0).tolist()
    for count, share in zip(chosen, [0.05, 0.15, 0.5, 0.9], strict=True):
        assert within_binomial_bounds(count, 20_000, share)


def test_probability_one_is_always_chosen_and_zero_never():
    probabilities = torch.tensor([[0.0, 1.0] * 5000])
    chosen = choose(probabilities, generator())
    assert chosen.tolist() == [[False, True] * 5000]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 99))
def test_padding_changes_no_draw(lengths, pad, seed):
    width = max(lengths)
    inside = torch.arange(width) < torch.tensor(lengths)[:, None]
    ids = torch.arange(inside.numel()).reshape(inside.shape) + 2000
    probabilities = torch.rand(inside.shape, generator=generator(7)).double() * inside

    def draw(columns):
        source = generator(seed)
        wide = torch.nn.functional.pad(probabilities, (0, columns))
        chosen = choose(wide, source)
        padded = torch.nn.functional.pad(ids, (0, columns))
        return chosen, corrupt(padded, chosen, MASK, RANDOM_IDS, source)

    for narrow, wide in zip(draw(0), draw(pad), strict=True):
        assert torch.equal(wide[:, :width], narrow)
        assert not wide[:, width:].any()


def test_tokens_without_a_unit_are_never_chosen():
    units = torch.tensor([[0, 0, 1, 1], [0, -1, -1, 1], [-1, -1, -1, -1]])
    here = torch.ones_like(units, dtype=torch.bool)
    for part in (slice(0, 3), slice(2, 3)):
        chosen = choose_units(here[part].double(), units[part], here[part], generator())
        assert torch.equal(chosen, units[part] >= 0)


@pytest.mark.parametrize("share", [-0.1, float("nan"), 0.95])
def test_shares_of_no_whole_are_refused(share):
    ids = torch.tensor([[1, 2]])
    with pytest.raises(ValueError, match="must be shares of one whole"):
        corrupt(ids, ids > 0, MASK, RANDOM_IDS, generator(), mask_share=share, random_share=0.1)


def test_only_chosen_positions_change_and_the_input_stays():
    ids = torch.arange(400).reshape(4, 100) + 2000
    before = ids.clone()
    chosen = choose(torch.full((4, 100), 0.3), generator())
    corrupted = corrupt(ids, chosen, MASK, RANDOM_IDS, generator())
    assert torch.equal(ids, before)
    assert torch.equal(corrupted[~chosen], ids[~chosen])
    assert (corrupted[chosen] != ids[chosen]).float().mean() > 0.7


def third_tokens(maskable, generator):
    """The third, sixth ... maskable token of each text, whatever is drawn."""
    return maskable & (maskable.long().cumsum(1) % 3 == 0)


@pytest.mark.parametrize("family", ["bert", "bart"])
def test_the_scores_are_those_of_the_model_on_one_text_after_another(
    family, encoder_folder, loaded, monkeypatch
):
    monkeypatch.setattr(
        masking, "choose", lambda chances, source: third_tokens(chances > 0, source)
    )
    encoder = loaded(family).train()  # dropout, if it were left
    texts = tokenized(encoder, LINES[:9])
    before, state = snapshot(encoder), torch.random.get_rng_state()
    found = score_masked(encoder, texts, 4, 0, "test")
    assert encoder.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.tensors().items())

    model = AutoModelForMaskedLM.from_pretrained(encoder_folder(family)).eval()
    losses, hits, targets = [], [], []
    for number in range(9):
        start, end = texts.offsets[number : number + 2].tolist()
        ids = texts.input_ids[start:end].long()
        maskable = texts.maskable[start:end].nonzero().flatten()
        places = maskable[2::3]
        given = ids.clone()
        given[places] = encoder.tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(given[None]).logits[0][places].double().numpy()
        chances = log_softmax(logits, axis=1)
        wanted = ids[places].numpy()
        losses.extend(-chances[np.arange(len(places)), wanted])
        hits.extend(chances.argmax(1) == wanted)
        targets.extend(wanted)
    assert found.loss == pytest.approx(np.mean(losses), rel=1e-4)
    assert found.accuracy == pytest.approx(np.mean(hits), abs=1e-12)
    assert Counter(found.targets.tolist()) == Counter(targets)
    assert found.vocabulary == logits.shape[1]


def test_fifteen_per_cent_are_masked_and_the_same_at_every_call(loaded):
    encoder = loaded("bert")
    texts = tokenized(encoder, LINES * 10)
    first, again, other = (score_masked(encoder, texts, 16, seed, "test") for seed in (0, 0, 1))
    assert torch.equal(first.targets, again.targets)
    assert first.loss == again.loss
    assert not torch.equal(first.targets[:50], other.targets[:50])
    assert len(first.targets) / int(texts.maskable.sum()) == pytest.approx(0.15, abs=0.02)


def test_texts_without_a_token_to_mask_have_no_scores(loaded, monkeypatch):
    monkeypatch.setattr(masking, "choose", lambda chances, source: chances > 1)
    encoder = loaded("bert")
    found = score_masked(encoder, tokenized(encoder, LINES[:2]), 4, 0, "test")
    assert (found.loss, found.accuracy, len(found.targets)) == (0, 0, 0)


def test_frequencies_are_counted_with_one_more_for_each_token(loaded):
    encoder = loaded("bert")
    train, dev = tokenized(encoder, LINES[:16]), tokenized(encoder, LINES[16:])
    targets = dev.input_ids[dev.maskable]
    counts = Counter(train.input_ids[train.maskable].tolist())
    assert any(target not in counts for target in targets.tolist())
    total = sum(counts.values()) + len(encoder.tokenizer)
    expected = np.mean([-np.log((counts[t] + 1) / total) for t in targets.tolist()])
    found = frequency_cross_entropy(train, targets, len(encoder.tokenizer))
    assert found == pytest.approx(expected, rel=1e-12)
