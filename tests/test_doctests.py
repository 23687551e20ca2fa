"""The examples in docstrings run and give the output that they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import auxlearn

PACKAGE = Path(auxlearn.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def test_there_are_examples():
    assert len(MODULES) >= 10
    assert {"auxlearn.core.config", "auxlearn.core.errors", "auxlearn.objectives.masking"} <= {
        *MODULES
    }


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted, f"{name}: doctest finds no example"
    assert results.failed == 0
