"""Options of l3mask: they reach the scorer and are part of the cache key."""

from __future__ import annotations

import pytest
import torch

from auxlearn.core.errors import ConfigError
from auxlearn.core.validation import validate
from auxlearn.objectives import masking
from auxlearn.objectives.masking import rescale_to_mean
from auxlearn.scoring.pseudo_likelihood import pseudo_log_likelihood
from auxlearn.tasks.l3mask import L3Mask, L3MaskOptions
from tests import helpers
from tests.helpers import LINES, tokenized

WAYS = (
    ({}, None, torch.float32),
    ({"passes": 3}, 3, torch.float32),
    ({"precision": "bf16"}, None, torch.bfloat16),
    ({"passes": 3, "precision": "bf16"}, 3, torch.bfloat16),
)


def test_options_reach_the_scorer_and_the_cache_keeps_them_apart(trained_bert, tmp_path):
    texts = tokenized(trained_bert, LINES[:3])
    found = []
    for options, passes, dtype in WAYS * 2:  # the second time out of the cache
        task = L3Mask(L3MaskOptions(**options))
        task.prepare(helpers.context(trained_bert, texts, tmp_path))
        logprobs = pseudo_log_likelihood(trained_bert, texts, passes=passes, dtype=dtype)
        for row, own in enumerate(task.probabilities.split(texts.lengths.tolist())):
            inside = slice(*texts.offsets[row : row + 2].tolist())
            where = texts.maskable[inside][None]
            wanted = rescale_to_mean(-torch.expm1(logprobs[inside].double())[None], where, 0.15)
            torch.testing.assert_close(own[None], wanted, atol=1e-6, rtol=0)
        found.append(task.probabilities)
    assert len(list(tmp_path.glob("*.safetensors"))) == len(WAYS)
    assert all(not torch.equal(found[0], other) for other in found[1 : len(WAYS)])


def test_a_single_pass_is_refused():
    with pytest.raises(ConfigError, match=r"l3mask: passes: .* greater than or equal to 2, got 1"):
        validate(L3MaskOptions, {"passes": 1}, "l3mask")


def test_the_scores_are_converted_chunk_by_chunk(trained_bert, monkeypatch):
    """Converting all of them for every chunk would take time quadratic in the number of texts."""
    texts = tokenized(trained_bert, LINES)
    scores = torch.rand(len(texts.input_ids), generator=torch.Generator().manual_seed(0))
    expected = masking.rescale_texts(texts, scores, 0.15)
    real, given = masking.rescale_to_mean, []
    monkeypatch.setattr(masking, "CHUNK_TEXTS", 4)
    monkeypatch.setattr(
        masking, "rescale_to_mean", lambda own, *more: given.append(len(own)) or real(own, *more)
    )
    torch.testing.assert_close(masking.rescale_texts(texts, scores, 0.15), expected)
    assert max(given) == 4
    assert sum(given) == len(LINES)
