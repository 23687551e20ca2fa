"""Perturbation: choice of tokens, replacement tokens, cache."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from auxlearn.core.cache import TensorCache
from auxlearn.objectives.masking import at_least_one, ordinary_ids
from auxlearn.objectives.perturbation import (
    choose_fixed_share,
    choose_independently,
    choose_replacements,
    perturb,
    perturb_texts,
)
from tests import helpers
from tests.helpers import HARD_TEXTS, LINES, collated, generator, tokenized

rows_of_candidates = st.lists(
    st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=6
)


@settings(max_examples=80, deadline=None)
@given(rows_of_candidates, st.floats(0.01, 1.0), st.integers(0, 99))
def test_every_text_with_a_candidate_gets_one_and_only_candidates_are_chosen(rows, share, seed):
    maskable = torch.tensor(rows)
    chosen = choose_independently(maskable, share, generator(seed))
    assert not (chosen & ~maskable).any()
    assert torch.equal(chosen.any(-1), maskable.any(-1))
    again = choose_independently(maskable, share, generator(seed))
    assert torch.equal(chosen, again)
    wide = choose_independently(torch.nn.functional.pad(maskable, (0, 4)), share, generator(seed))
    assert torch.equal(wide[:, :7], chosen)


def test_at_least_one_adds_nothing_to_a_text_with_a_choice():
    candidates = torch.ones(2000, 5, dtype=torch.bool)
    chosen = torch.zeros_like(candidates)
    chosen[::2, 3] = True
    filled = at_least_one(chosen, candidates, generator())
    assert torch.equal(filled[::2], chosen[::2])
    assert (filled[1::2].sum(-1) == 1).all()


def test_at_least_one_draws_uniformly():
    candidates = torch.tensor([False, True, False, True, True]).expand(6000, 5)
    filled = at_least_one(torch.zeros(6000, 5, dtype=torch.bool), candidates, generator())
    counts = filled.sum(0).tolist()
    assert counts[0] == counts[2] == 0
    assert stats.chisquare([counts[1], counts[3], counts[4]]).pvalue > 1e-6


def test_the_share_is_kept_where_texts_are_long():
    chosen = choose_independently(torch.ones(200, 1000, dtype=torch.bool), 0.05, generator())
    low, high = stats.binom.interval(1 - 1e-6, chosen.numel(), 0.05)
    assert low <= int(chosen.sum()) <= high


@pytest.mark.parametrize("share", [0.01, 0.05, 0.15, 0.5, 1.0])
def test_an_exact_share_of_every_text(share):
    lengths = [0, 1, 2, 9, 10, 11, 30, 50, 70, 100]
    maskable = torch.zeros(len(lengths), 104, dtype=torch.bool)
    for row, length in enumerate(lengths):
        maskable[row, 2 : 2 + length] = True
    chosen = choose_fixed_share(maskable, share, generator())
    assert not (chosen & ~maskable).any()
    for length, count in zip(lengths, chosen.sum(-1).tolist(), strict=True):
        assert count == min(length, max(1, round(share * length)))
    wide = torch.nn.functional.pad(maskable, (0, 9))  # padding changes nothing
    assert torch.equal(choose_fixed_share(wide, share, generator())[:, :104], chosen)


def test_every_token_is_as_likely_in_an_exact_share():
    maskable = torch.ones(20_000, 10, dtype=torch.bool)
    counts = choose_fixed_share(maskable, 0.2, generator()).sum(0)
    assert int(counts.sum()) == 40_000
    # Two of ten without replacement: the counts vary less than independent ones would.
    assert stats.chisquare(counts.numpy()).pvalue > 1e-6


def test_the_most_likely_allowed_token_is_chosen():
    logits = torch.tensor([[9.0, 1.0, 3.0, 2.0], [0.0, 5.0, 1.0, 9.0]])
    assert choose_replacements(logits, torch.tensor([1, 2]), None, generator()).tolist() == [2, 1]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_samples_follow_the_softmax_of_the_allowed_tokens(temperature):
    logits = torch.tensor([0.3, 1.0, -1.0, 2.0, 0.0])
    allowed = torch.tensor([0, 1, 3])
    drawn = choose_replacements(logits.expand(20_000, 5), allowed, temperature, generator())
    counts = torch.bincount(drawn, minlength=5)
    assert counts[2] == counts[4] == 0
    powers = [pow(2.718281828459045, float(logits[i]) / temperature) for i in (0, 1, 3)]
    expected = [20_000 * power / sum(powers) for power in powers]
    assert stats.chisquare(counts[allowed].numpy(), expected).pvalue > 1e-6


def test_special_tokens_except_the_unknown_token_are_no_replacements(tiny_bert):
    allowed = set(ordinary_ids(tiny_bert.tokenizer, unknown=True).tolist())
    tokenizer = tiny_bert.tokenizer
    barred = {
        tokenizer.pad_token_id,
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.mask_token_id,
    }
    assert allowed == set(range(len(tokenizer))) - barred


def test_predictions_are_those_of_the_native_model_at_its_masks(tiny_bert):
    batch = collated(tokenized(tiny_bert, HARD_TEXTS, labels=[0, 1, 2, 0, 1, 2, 0]))
    before = batch.input_ids.clone()
    allowed = ordinary_ids(tiny_bert.tokenizer, unknown=True)
    made = perturb(tiny_bert, batch, 0.2, allowed, None, generator())
    masked = batch.input_ids.masked_fill(made.chosen, tiny_bert.tokenizer.mask_token_id)
    with torch.no_grad():
        native = tiny_bert.language_model(
            input_ids=masked,
            attention_mask=batch.attention_mask,
            token_type_ids=batch.token_type_ids,
        ).logits
    native[..., [0, 2, 3, 4]] = -torch.inf  # [PAD], [CLS], [SEP], [MASK]
    expected = torch.where(made.chosen, native.argmax(-1), batch.input_ids)
    assert torch.equal(made.batch.input_ids, expected)
    assert torch.equal(batch.input_ids, before), "the original batch was written to"
    assert (expected != before).any()
    assert torch.equal(made.batch.labels, batch.labels)
    assert torch.equal(made.batch.attention_mask, batch.attention_mask)


def test_a_batch_without_maskable_tokens_is_unchanged(tiny_bert):
    batch = collated(tokenized(tiny_bert, ["日 語", "語"]))
    assert not batch.maskable.any()
    allowed = ordinary_ids(tiny_bert.tokenizer, unknown=True)
    for temperature in (None, 1.0):
        made = perturb(tiny_bert, batch, 0.5, allowed, temperature, generator())
        assert torch.equal(made.batch.input_ids, batch.input_ids)


def test_perturb_texts_depends_on_the_seed_and_leaves_the_encoder_unchanged(tiny_bert, tmp_path):
    texts = tokenized(tiny_bert, LINES, labels=[n % 3 for n in range(len(LINES))])
    before = helpers.snapshot(tiny_bert)
    tiny_bert.train()
    one, same, other = (
        perturb_texts(tiny_bert, texts, 0.05, seed, TensorCache(tmp_path / str(number)))
        for number, seed in enumerate((1, 1, 2))
    )
    assert tiny_bert.training
    assert all(torch.equal(helpers.snapshot(tiny_bert)[name], t) for name, t in before.items())
    assert torch.equal(one.input_ids, same.input_ids)
    assert not torch.equal(one.input_ids, other.input_ids)
    changed = one.input_ids != texts.input_ids
    assert changed.any()
    assert not (changed & ~texts.maskable).any()
    assert torch.equal(one.labels, texts.labels)
    assert one.input_ids.dtype == texts.input_ids.dtype


def test_the_cache_key_covers_the_allowed_tokens(tiny_bert, tmp_path):
    texts = tokenized(tiny_bert, LINES)
    cache = TensorCache(tmp_path)
    first = perturb_texts(tiny_bert, texts, 0.3, 1, cache)
    changed = first.input_ids != texts.input_ids
    barred = int(first.input_ids[changed][0])
    piece = tiny_bert.tokenizer.convert_ids_to_tokens(barred)
    tiny_bert.tokenizer.add_special_tokens({"additional_special_tokens": [piece]})
    assert barred not in ordinary_ids(tiny_bert.tokenizer, unknown=True)
    second = perturb_texts(tiny_bert, texts, 0.3, 1, cache)
    assert barred not in second.input_ids[changed]
    again = perturb_texts(tiny_bert, texts, 0.3, 1, cache)
    assert torch.equal(again.input_ids, second.input_ids)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
