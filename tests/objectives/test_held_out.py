"""The cross-entropy of masked tokens, against transformers text by text and counts by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from transformers import AutoModelForMaskedLM

from auxlearn.encoders.load import load_encoder
from auxlearn.objectives import masking
from auxlearn.objectives.masking import frequency_cross_entropy, score_masked
from tests.helpers import FAMILIES, LABELS, LINES, snapshot, tokenized


def every_third(maskable, generator):
    """The third, sixth ... maskable token of each text, whatever is drawn."""
    return maskable & (maskable.long().cumsum(1) % 3 == 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_scores_are_those_of_the_model_on_one_text_after_another(
    family, encoder_folder, monkeypatch
):
    monkeypatch.setattr(masking, "choose", lambda chances, source: every_third(chances > 0, source))
    encoder = load_encoder(
        str(encoder_folder(family)), LABELS
    ).train()  # with dropout, were it not switched off
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


def test_fifteen_per_cent_are_masked_and_the_same_at_every_call(encoder_folder):
    encoder = load_encoder(str(encoder_folder("bert")), LABELS)
    texts = tokenized(encoder, LINES * 10)
    first, again, other = (score_masked(encoder, texts, 16, seed, "test") for seed in (0, 0, 1))
    assert torch.equal(first.targets, again.targets)
    assert first.loss == again.loss
    assert not torch.equal(first.targets[:50], other.targets[:50])
    assert len(first.targets) / int(texts.maskable.sum()) == pytest.approx(0.15, abs=0.02)


def test_texts_without_a_token_to_mask_have_no_scores(encoder_folder, monkeypatch):
    monkeypatch.setattr(masking, "choose", lambda chances, source: chances > 1)
    encoder = load_encoder(str(encoder_folder("bert")), LABELS)
    found = score_masked(encoder, tokenized(encoder, LINES[:2]), 4, 0, "test")
    assert (found.loss, found.accuracy, len(found.targets)) == (0, 0, 0)


def test_frequencies_are_counted_with_one_more_for_each_token(encoder_folder):
    encoder = load_encoder(str(encoder_folder("bert")), LABELS)
    train, dev = tokenized(encoder, LINES[:16]), tokenized(encoder, LINES[16:])
    targets = dev.input_ids[dev.maskable]
    counts = Counter(train.input_ids[train.maskable].tolist())
    assert any(target not in counts for target in targets.tolist())
    total = sum(counts.values()) + len(encoder.tokenizer)
    expected = np.mean([-np.log((counts[t] + 1) / total) for t in targets.tolist()])
    found = frequency_cross_entropy(train, targets, len(encoder.tokenizer))
    assert found == pytest.approx(expected, rel=1e-12)
