"""Count the file operations of a process, and do something at one of them."""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

#: Operations that need space.
WRITES = ("file", "open", "fsync", "replace", "rename", "mkdir")
ALL = (*WRITES, "unlink", "rmdir")


class Operations:
    """Operations that change files so far.

    Attributes:
        count: Their number.
        last: What the last one was.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last = ""


@contextmanager
def file_operations(
    at: int | None = None,
    action: Callable[[], object] | None = None,
    below: str = "/",
    kinds: Sequence[str] = ALL,
) -> Iterator[Operations]:
    """Count the operations that change files within the block.

    These are opening a file for writing, synchronising, replacing and deleting files, and making
    and deleting folders.

    Args:
        at: The number of the operation, from 1, before which ``action`` is called; so is every
            later one, as a full disk stays full.
        action: What is done then.
        kinds: The operations that count.
        below: Operations on paths that do not begin with this are left out, if they name a path.
    """
    operations = Operations()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            if name in kinds and _changes_files(name, arguments, settings, below):
                operations.count += 1
                operations.last = f"{name} {arguments[0] if arguments else ''}"
                if at is not None and operations.count >= at and action is not None:
                    action()
            return real(*arguments, **settings)

        return call

    with mock.patch.multiple(
        os,
        **{name: counted(name, getattr(os, name)) for name in ALL if name != "file"},
    ):
        opened = counted("file", builtins.open)
        with mock.patch.object(builtins, "open", opened), mock.patch.object(io, "open", opened):
            yield operations


def _changes_files(
    name: str, arguments: tuple[Any, ...], settings: dict[str, Any], below: str
) -> bool:
    first = arguments[0] if arguments else ""
    if isinstance(first, str | os.PathLike):
        path = os.path.abspath(os.fspath(first))
        if isinstance(path, str) and not path.startswith(below):
            return False
    if name == "file":
        mode = settings.get("mode", arguments[1] if len(arguments) > 1 else "r")
        return isinstance(first, str | os.PathLike) and any(letter in mode for letter in "wax+")
    if name == "open":
        return bool((arguments[1] if len(arguments) > 1 else 0) & os.O_CREAT)
    return True


def kill() -> None:
    """End this process as a kill does."""
    os.kill(os.getpid(), signal.SIGKILL)


def full_disk() -> None:
    """Fail as a write to a full disk does.

    Raises:
        OSError: Always.
    """
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
