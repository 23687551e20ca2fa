"""Attention by pairs of tokens: what a prediction depends on, in every architecture."""

from dataclasses import replace

import pytest
import torch

from auxlearn.core.errors import EncoderError
from auxlearn.data.batches import collate
from auxlearn.encoders.families import require_pairwise_attention, states_at
from auxlearn.tasks.space import attends_in_order, reading_order, with_slots
from tests.helpers import tokenized, without_dropout

TAKE = (
    "bert",
    "roberta",
    "distilbert",
    "electra",
    "modernbert",
    "albert",
    "eurobert",
    "nomic_bert",
)
TEXTS = ("The parser reads a sentence and a word.", "A tagger.")


@pytest.fixture(scope="module", params=TAKE)
def encoder(request, loaded):
    return without_dropout(loaded(request.param)).double()


@pytest.fixture
def batch(encoder):
    return collate(tokenized(encoder, TEXTS), torch.arange(len(TEXTS)))


def shown(encoder, batch, chosen):
    ids = batch.input_ids.masked_fill(chosen, encoder.tokenizer.mask_token_id)
    return replace(batch, input_ids=ids)


def sources(encoder, state_of):
    """The places whose input embedding each state depends on, by number of the state."""
    kept = []
    handle = encoder.body.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: kept.append(output.retain_grad() or output)
    )
    states = state_of()
    handle.remove()
    (embeddings,) = kept
    weights = torch.linspace(0.5, 1.5, states.shape[1], dtype=states.dtype)
    found = []
    for state in states:
        (gradient,) = torch.autograd.grad(state @ weights, embeddings, retain_graph=True)
        found.append(gradient.abs().sum(-1) > 0)
    return found


@pytest.mark.parametrize("kept", [False, True], ids=["corrupted", "kept"])
def test_a_prediction_depends_on_what_is_read_before(encoder, batch, kept):
    """In a random order; the orders of both directions are tested with the space itself."""
    generator = torch.Generator().manual_seed(5)
    chosen = batch.maskable & (torch.rand(batch.maskable.shape, generator=generator) < 0.5)
    order = reading_order("random", batch, generator)
    assert chosen.sum() >= 4
    length = chosen.shape[1]
    mask_id = encoder.tokenizer.mask_token_id
    slots = with_slots(batch, order, chosen, mask_id)
    given, where = (shown(encoder, batch, chosen), attends_in_order(order, batch)), chosen
    if kept:
        given, where = (slots.batch, slots.attends, slots.positions), slots.predicted

    def state_of():
        return states_at(encoder.encode(*given).last_hidden_state, where)

    slot = dict.fromkeys(range(len(batch)), 0)
    found = sources(encoder, state_of)
    for (text, place), depends in zip(chosen.nonzero().tolist(), found, strict=True):
        before = (order[text] < order[text, place]) & batch.attention_mask[text].bool()
        allowed = torch.zeros_like(depends)
        allowed[text, :length] = before
        own = length + slot[text] if kept else place
        allowed[text, own] = True  # a mask token: its slot, or itself
        slot[text] += 1
        assert torch.equal(depends, allowed), (text, place)


def test_a_slot_at_a_place_is_the_mask_token_at_this_place(encoder, batch):
    """Where nothing comes after a token, its slot predicts what a mask token in its place does."""
    chosen = torch.zeros_like(batch.maskable)
    last = batch.maskable[0].nonzero().max()
    chosen[0, last] = True
    order = reading_order("left_to_right", batch, torch.Generator())
    slots = with_slots(batch, order, chosen, encoder.tokenizer.mask_token_id)
    hidden = encoder.encode(slots.batch, slots.attends, slots.positions).last_hidden_state
    given = shown(encoder, batch, chosen)
    other = encoder.encode(given, attends_in_order(order, batch)).last_hidden_state
    torch.testing.assert_close(
        states_at(hidden, slots.predicted), states_at(other, chosen), atol=1e-12, rtol=1e-12
    )


def test_all_that_is_no_padding_is_the_usual_attention(encoder, batch):
    inside = batch.attention_mask.bool()
    attends = inside[:, None].expand(-1, inside.shape[1], -1) | torch.eye(inside.shape[1]).bool()
    ours = encoder.encode(batch, attends).last_hidden_state[inside]
    torch.testing.assert_close(
        ours, encoder.encode(batch).last_hidden_state[inside], atol=1e-12, rtol=1e-12
    )


def test_layers_that_attend_nearby_keep_their_window(loaded):
    """ModernBERT's layers see a window; behind slots it is one of positions, not of places."""
    encoder = without_dropout(loaded("modernbert")).double()
    encoder.config.sliding_window = 2
    text = collate(tokenized(encoder, TEXTS[:1]), torch.arange(1))
    length = text.input_ids.shape[1]
    full = torch.ones(1, length, length, dtype=torch.bool)
    with_window = encoder.encode(text, full).last_hidden_state
    torch.testing.assert_close(
        with_window, encoder.encode(text).last_hidden_state, atol=1e-12, rtol=1e-12
    )
    encoder.config.sliding_window = length
    assert not torch.allclose(with_window, encoder.encode(text, full).last_hidden_state)


@pytest.mark.parametrize("family", ["deberta-v2", "bart", "mpnet"])
def test_an_architecture_without_such_masks_is_named(family, loaded):
    encoder = loaded(family)
    with pytest.raises(EncoderError, match=f"architecture '{family}' does not take") as found:
        require_pairwise_attention(encoder.config, "space")
    assert "\n" not in str(found.value)
