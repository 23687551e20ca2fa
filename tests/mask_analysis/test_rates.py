"""How often each token is masked: probabilities as they are, and counts that must come out."""

from __future__ import annotations

import pytest
import torch

from auxlearn.core.registry import TASKS
from auxlearn.mask_analysis.statistics import mask_rates
from auxlearn.tasks.base import MaskedLanguageModelling
from tests.helpers import LINES, context, tokenized


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
