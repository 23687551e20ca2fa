"""Bad data sets, encoders, configurations and command lines."""

from __future__ import annotations

from tests.hardening.case import Case

CASES: list[Case] = [
    Case("unknown command", ["trian"], r"unknown command 'trian': did you mean 'train'\?"),
]
