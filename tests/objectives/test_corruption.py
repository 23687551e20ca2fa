"""Choosing and corrupting tokens: shares, determinism, padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from auxlearn.objectives.masking import choose, corrupt
from tests.helpers import generator

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
def test_padding_changes_nothing(lengths, pad, seed):
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


def test_only_chosen_positions_change_and_the_input_stays():
    ids = torch.arange(400).reshape(4, 100) + 2000
    before = ids.clone()
    chosen = choose(torch.full((4, 100), 0.3), generator())
    corrupted = corrupt(ids, chosen, MASK, RANDOM_IDS, generator())
    assert torch.equal(ids, before)
    assert torch.equal(corrupted[~chosen], ids[~chosen])
    assert (corrupted[chosen] != ids[chosen]).float().mean() > 0.7


def test_shares_may_be_changed_but_must_be_shares():
    ids = torch.full((10, 10), 2000)
    everything = torch.ones_like(ids, dtype=torch.bool)
    assert (corrupt(ids, everything, MASK, RANDOM_IDS, generator(), 1.0, 0.0) == MASK).all()
    assert torch.equal(corrupt(ids, everything, MASK, RANDOM_IDS, generator(), 0.0, 0.0), ids)
    for shares in [(-0.1, 0.1), (0.5, -0.1), (0.8, 0.3)]:
        with pytest.raises(ValueError, match="shares of one whole"):
            corrupt(ids, everything, MASK, RANDOM_IDS, generator(), *shares)
