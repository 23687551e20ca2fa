"""Count the operations that change files, and let the disk be full from one of them on."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

#: Operations that need space; "file" is opening a file for writing.
WRITES = ("file", "open", "fsync", "replace", "rename", "mkdir")


@contextmanager
def full_from(at: float = float("inf"), below: str = "/") -> Iterator[SimpleNamespace]:
    """Count operations on paths below a folder; from number ``at`` (from 1) on the disk is full."""
    seen = SimpleNamespace(count=0)

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            if _changes_files(name, arguments, settings, below):
                seen.count += 1
                if seen.count >= at:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **settings)

        return call

    opened = counted("file", builtins.open)
    names = {name: counted(name, getattr(os, name)) for name in WRITES if name != "file"}
    with (
        mock.patch.multiple(os, **names),
        mock.patch.object(builtins, "open", opened),
        mock.patch.object(io, "open", opened),
    ):
        yield seen


def _changes_files(name: str, given: tuple[Any, ...], settings: dict[str, Any], below: str) -> bool:
    first = given[0] if given else ""
    named = isinstance(first, str | os.PathLike)
    if named and not str(os.path.abspath(os.fspath(first))).startswith(below):
        return False
    if name == "file":
        mode = settings.get("mode", given[1] if len(given) > 1 else "r")
        return named and any(letter in mode for letter in "wax+")
    if name == "open":
        return bool((given[1] if len(given) > 1 else 0) & os.O_CREAT)
    return True
