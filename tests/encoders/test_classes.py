"""What a checkpoint's heads become in a new run, for every architecture."""

from __future__ import annotations

import pytest
import torch

from auxlearn.data.batches import collate
from auxlearn.encoders.load import load_encoder
from tests.helpers import FAMILIES, LABELS, LINES, tokenized


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_heads_are_kept_for_the_same_labels(encoder_folder, tmp_path, family):
    first = load_encoder(str(encoder_folder(family)), LABELS)
    assert first.kept_classifier is None
    with torch.no_grad():
        for parameter in (
            *first.classification_parameters(),
            *first.language_model_head().values(),
        ):
            parameter.add_(torch.rand_like(parameter))
    first.save(tmp_path, 32)
    same = load_encoder(str(tmp_path), LABELS, seed=1)
    other = load_encoder(str(tmp_path), [*LABELS[:-1], "other"], seed=1)
    assert (same.kept_classifier, other.kept_classifier) == (True, False)
    batch = collate(tokenized(first, LINES[:3]), torch.arange(3))
    with torch.inference_mode():
        logits = first.classify(batch)
        assert torch.equal(same.classify(batch), logits)
        assert not torch.isclose(other.classify(batch), logits).all(0).any()

        tokens = first.predict_tokens(batch, batch.attention_mask.bool())
        same.load_language_model_head(first.language_model_head())
        assert torch.equal(same.predict_tokens(batch, batch.attention_mask.bool()), tokens)
