"""BART: which decoder state predicts which token."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import BartForConditionalGeneration

from auxlearn.data.batches import collate
from auxlearn.encoders.load import load_encoder
from tests.helpers import LABELS, tokenized

BOS, PAD, EOS, MASK = 0, 1, 2, 4


@pytest.fixture
def encoder(encoder_folder):
    return load_encoder(str(encoder_folder("bart")), LABELS)


@pytest.fixture
def native(encoder_folder):
    return BartForConditionalGeneration.from_pretrained(encoder_folder("bart")).eval()


def one_text(encoder, length):
    """The first ``length`` tokens of a text, between <s> and </s>."""
    batch = collate(tokenized(encoder, ["The parser of Smith is faster"]), torch.arange(1))
    ids = torch.cat([batch.input_ids[:, : length + 1], torch.tensor([[EOS]])], 1)
    return ids, replace(
        batch,
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        maskable=(ids > MASK),
        words=batch.words[:, : length + 2],
    )


def test_the_state_at_a_mask_depends_on_the_tokens_before_it(encoder, native):
    ids, batch = one_text(encoder, 4)  # <s> a b c d </s>
    a, b, _, d = ids[0, 1:5].tolist()
    masked = torch.tensor([[BOS, a, b, MASK, d, EOS]])
    position = masked == MASK
    with torch.no_grad():
        found = encoder.predict_tokens(replace(batch, input_ids=masked), position)
        # What the encoder part reads, and what the decoder part has read when it writes token 3:
        # its start token, <s>, a, b. Nothing at or behind the mask.
        states = native.model.encoder(input_ids=masked).last_hidden_state
        decoded = native.model.decoder(
            input_ids=torch.tensor([[EOS, BOS, a, b]]), encoder_hidden_states=states
        ).last_hidden_state
        by_hand = native.lm_head(decoded[:, -1]) + native.final_logits_bias
    torch.testing.assert_close(found, by_hand, atol=1e-5, rtol=1e-5)
    # One place to the left or right would be another prediction.
    with torch.no_grad():
        left = native.lm_head(decoded[:, -2]) + native.final_logits_bias
    assert (left - by_hand).abs().max() > 0.1


def test_training_labels_have_the_same_index(encoder, native):
    """BART's own loss compares the state at i with token i, so no shift is left to be made."""
    ids, batch = one_text(encoder, 4)
    everywhere = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        loss = native(input_ids=ids, labels=ids).loss
        logits = encoder.predict_tokens(batch, everywhere)
    ours = torch.nn.functional.cross_entropy(logits, ids[0])
    torch.testing.assert_close(ours, loss, atol=1e-5, rtol=1e-5)
