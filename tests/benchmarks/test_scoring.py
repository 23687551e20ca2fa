"""The scoring benchmark's token budgets are those that scoring uses."""

from __future__ import annotations

from auxlearn.scoring import pseudo_likelihood
from benchmarks.scoring import BUDGETS


def test_every_device_with_budgets_has_one_in_scoring():
    keys = {pseudo_likelihood.budget_key(device) for device in BUDGETS}
    assert keys == set(pseudo_likelihood.TOKEN_BUDGET)
