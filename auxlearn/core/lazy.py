"""Public names that are imported on first use, so that importing their module costs nothing."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def names_of_stub(
    module: str, file: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a module whose names its stub imports,
    the ``.pyi`` file beside it that type checkers read.
    """
    body = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
    imports = [statement for statement in body if isinstance(statement, ast.ImportFrom)]
    places = {alias.name: one.module or "" for one in imports for alias in one.names}
    names = sorted(places)

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        return getattr(importlib.import_module(places[name]), name)

    return names, load, lambda: names
