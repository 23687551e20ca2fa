"""The tutorials that are notebooks: every cell compiles, and names and arguments of auxlearn exist.

They are run when the documentation is built; a test marked slow does the same.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

import auxlearn
from auxlearn.core.config import RunConfig
from tests.test_docs import NOTEBOOKS, ROOT, blocks, title


def code_of(path: Path) -> str:
    return "\n".join(blocks(path.read_text(encoding="utf-8"), "python"))


def imported(tree: ast.Module) -> dict[str, Any]:
    """Import what a notebook imports; return it by its name there."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert importlib.util.find_spec(alias.name), alias.name
                if alias.name.split(".")[0] == "auxlearn":
                    names[alias.asname or alias.name] = importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "auxlearn":
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module}.{alias.name}"
                names[alias.asname or alias.name] = getattr(module, alias.name)
    return names


def resolved(node: ast.expr, names: dict[str, Any]) -> Any:
    """Return what a dotted name of a notebook stands for; ``None`` if it is none of auxlearn."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolved(node.value, names)
        if owner is not None:
            assert hasattr(owner, node.attr), ast.unparse(node)
            return getattr(owner, node.attr)
    return None


def check_calls(code: str) -> int:
    """Check every use of auxlearn in a notebook; return how many calls there are."""
    tree = ast.parse(code)
    names = imported(tree)
    calls = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            resolved(node, names)
        if not isinstance(node, ast.Call) or (found := resolved(node.func, names)) is None:
            continue
        calls += 1
        keywords = {keyword.arg: None for keyword in node.keywords if keyword.arg}
        inspect.signature(found).bind(*[None] * len(node.args), **keywords)
        if found is auxlearn.train:
            settings = set(keywords) - set(inspect.signature(found).parameters)
            assert settings <= set(RunConfig.model_fields), ast.unparse(node)
    return calls


@pytest.mark.parametrize("path", NOTEBOOKS, ids=title)
def test_cells_compile_and_call_what_there_is(path):
    for block in blocks(path.read_text(encoding="utf-8"), "python"):
        compile(block, title(path), "exec")
    assert check_calls(code_of(path)) >= 3


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
