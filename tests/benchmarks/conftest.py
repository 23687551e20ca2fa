"""A data set with more classes than the built-in one, and benchmarks called as from a shell."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import helpers


@pytest.fixture(scope="session")
def seven_classes(tmp_path_factory) -> str:
    """A folder with a data set of seven classes."""
    folder = tmp_path_factory.mktemp("seven")
    for name in ("train", "dev", "test"):
        rows = [
            {"text": f"{line} {name} {number}", "label": f"class {number % 7}"}
            for number, line in enumerate(helpers.LINES * 2)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


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
