"""Mask probabilities of tasks, and their distance from random masking."""

import numpy as np
import pytest

from auxlearn.mask_analysis.masks import _mask_rates
from auxlearn.mask_analysis.statistics import spread, token_table
from auxlearn.tasks.base import MaskedLanguageModelling
from tests.helpers import LINES, context, ragged, tokenized

#: Two texts of four and two maskable tokens; the first and last token of each is special.
TEXTS = ragged([6, 4])


def table(texts=TEXTS, **rates):
    found = {}
    for name, values in rates.items():
        found[name] = np.zeros(len(texts.input_ids))
        found[name][texts.maskable.numpy()] = values
    return token_table(texts, found)


UNEQUAL = (0.24, 0.24, 0.06, 0.06, 0.225, 0.075)


def test_moved_masks_by_hand():
    # Shares 0.4, 0.4, 0.1, 0.1 of the first text are 0.3 away from a quarter each; 0.75 and 0.25
    # of the second are 0.25 away from a half each.
    found = spread(table(a=UNEQUAL), "a")
    assert found.moved == pytest.approx((0.3 + 0.25) / 2, rel=1e-12)
    assert found.mean == pytest.approx(0.15, rel=1e-12)
    assert not found.nearly_random
    assert (found.percentile_5, found.median, found.percentile_95) == pytest.approx(
        tuple(np.quantile(UNEQUAL, [0.05, 0.5, 0.95]))
    )


def test_random_masking_and_no_masking_move_nothing():
    for rate in (0.15, 0.0):
        found = spread(table(a=[rate] * 6), "a")
        assert found.moved == pytest.approx(0, abs=1e-15)
        assert found.nearly_random


def test_a_text_without_maskable_tokens_does_not_count():
    assert spread(table(ragged([6, 2, 4]), a=UNEQUAL), "a") == spread(table(a=UNEQUAL), "a")


class EvenIds(MaskedLanguageModelling):
    """Mask tokens of even id with probability 0.25."""

    name = "even_ids"

    def mask_probabilities(self, batch):
        return ((batch.input_ids % 2 == 0) & batch.maskable).double() / 4


def test_probabilities_are_those_of_the_task(tiny_bert, tmp_path):
    texts = tokenized(tiny_bert, LINES)
    task = EvenIds(EvenIds.Options())
    task.prepare(context(tiny_bert, texts, tmp_path))
    expected = [
        0.25 if maskable and token % 2 == 0 else 0.0
        for token, maskable in zip(texts.input_ids.tolist(), texts.maskable.tolist(), strict=True)
    ]
    assert _mask_rates(task, "even_ids").tolist() == expected
