"""What is imported on first use: public names, and libraries that not everybody needs."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import ConfigError


def library(module: str, needed_by: str, extra: str) -> Any:
    """Return a module of a library that an extra of this package installs."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigError(
            f"{needed_by} needs an extra that is not installed: pip install 'auxlearn[{extra}]'"
        ) from None


class Deferred:
    """A module under its name, which is imported when something of it is first used."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)


if TYPE_CHECKING:
    import numpy as np
    import torch
else:  # for kinds of labels, which are listed without either
    np, torch = Deferred("numpy"), Deferred("torch")

__all__ = ["Deferred", "library", "names_of_stub", "np", "torch"]


def names_of_stub(
    module: str, file: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a module whose names its stub imports,
    the ``.pyi`` file beside it that type checkers read.
    """
    body = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
    imports = [statement for statement in body if isinstance(statement, ast.ImportFrom)]
    places = {alias.name: source.module or "" for source in imports for alias in source.names}
    names = sorted(places)

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        return getattr(importlib.import_module(places[name]), name)

    return names, load, lambda: names
