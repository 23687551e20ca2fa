"""The tutorials that are notebooks run, as they do when the documentation is built."""

from __future__ import annotations

import importlib

import pytest

from tests.test_docs import NOTEBOOKS, ROOT, title


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=title)
def test_notebooks_run(path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    notebooks = importlib.import_module("gen_notebooks")
    notebook = notebooks.executed(path.read_text(encoding="utf-8"))
    text, _ = notebooks.to_markdown(notebook, path.stem)
    assert "Traceback" not in text
    assert "<table>" in text
    assert 'class="dataframe"' not in text
