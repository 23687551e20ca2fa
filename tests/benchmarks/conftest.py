"""A data set with more classes than the built-in one, and benchmarks called as from a shell."""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import helpers


@pytest.fixture(scope="session")
def seven_classes(tmp_path_factory) -> str:
    splits = {
        name: [
            {"text": f"{line} {name} {number}", "label": f"class {number % 7}"}
            for number, line in enumerate(helpers.LINES * 2)
        ]
        for name in ("train", "dev", "test")
    }
    return str(helpers.write_splits(tmp_path_factory.mktemp("seven"), **splits))


@pytest.fixture(autouse=True)
def quick_collection() -> Iterator[None]:
    """Benchmarks collect garbage; what was there before a test is not looked through each time."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def benchmark(monkeypatch, tmp_path) -> Callable[..., dict[str, Any]]:
    """Run a benchmark's program with options; return what it wrote."""

    def run(name: str, *options: str) -> dict[str, Any]:
        output = tmp_path / f"{name}.json"
        module = importlib.import_module(f"benchmarks.{name}")
        given = [*options, "--threads", str(torch.get_num_threads()), "--output", str(output)]
        monkeypatch.setattr(sys, "argv", [f"/somewhere/{name}.py", *given])
        module.main()
        return json.loads(Path(output).read_text())

    return run
