"""Pseudo-likelihoods on the pretend accelerator: the CPU's, with one wait for all of them."""

from __future__ import annotations

import pytest

from tests import helpers
from tests.accelerator import runs
from tests.accelerator.test_runs import LOOKS_INTO_MASKS

CASES = [
    *((family, passes, False) for family in helpers.FAMILIES for passes in (None, 4)),
    *((family, 4, True) for family in ("bert", "modernbert")),  # one of each kind of pass
]


@pytest.mark.parametrize(("family", "passes", "half"), CASES)
def test_scores(family, passes, half, encoder_folder, on_accelerator):
    folder = str(encoder_folder(family))
    found, waits = on_accelerator(runs.score, folder, passes, half, True)
    expected, _ = on_accelerator(runs.score, folder, passes, half, False)
    assert len(found) > 50
    # In half precision the two round differently, by an encoder whose logits differ widely.
    assert found == pytest.approx(expected, abs=1.0 if half else 2e-4)
    assert len([place for _, place in waits if LOOKS_INTO_MASKS not in place]) == 1, waits
