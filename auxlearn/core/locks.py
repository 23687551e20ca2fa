"""Locks between processes: one file each, locked by filelock, which says who holds it since when.
The system releases a lock when its process ends, however that happens, so that none is ever stale.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from auxlearn.core.errors import RunError
from auxlearn.core.files import regular

#: Seconds to wait for a lock before its holder is named: :func:`is_held` holds it for a moment.
GRACE = 0.2


class LockHeld(Exception):
    """Another process holds the lock; the message names it."""


class Lock:
    """An exclusive lock on a file, for this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path, thread_local=False, fallback_to_soft=False)
        self._identity: tuple[int, int] | None = None  # of the locked file

    def acquire(self, waiting: Callable[[str], None] | None = None) -> None:
        """Lock the file; tell ``waiting`` who holds it and wait, or raise :class:`LockHeld`."""
        try:
            self._lock.acquire(timeout=GRACE)
        except Timeout:
            owner = holder(self.path) or "another process"
            if waiting is None:
                raise LockHeld(owner) from None
            waiting(owner)
            self._lock.acquire()
        self._identity = _identity_of(self.path)
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        content = {"process": os.getpid(), "host": platform.node(), "since": since}
        with suppress(OSError):  # the lock holds as well if this cannot be written
            self.path.write_text(json.dumps(content) + "\n", encoding="utf-8")

    @property
    def in_place(self) -> bool:
        """Whether the locked file is still the one of that name: its folder may be moved."""
        return self._identity is not None and _identity_of(self.path) == self._identity

    def check(self) -> None:
        """Raise an error if the folder was deleted, moved or replaced since it was locked."""
        if not self.in_place:
            raise RunError(
                f"{self.path.parent} was deleted or moved by another process while this one was "
                "running in it, so that nothing more is written: run the same command again"
            )

    def release(self) -> None:
        """Release the lock and delete its file."""
        if self.in_place:
            with suppress(OSError):
                self.path.unlink()
        self._identity = None
        self._lock.release()


def _identity_of(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of its name; ``None`` if there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock, by a shared one that others wait for."""
    try:
        with open(path, "rb", opener=regular) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no such file, or none that a process could have locked
        return False
    return False


def holder(path: Path) -> str:
    """Return who locked the file last, since when; "" if that is unknown."""
    try:
        with path.open("rb") as file:
            owner = json.loads(file.read(1000))
        text = f"process {int(owner['process'])} on {owner['host']}, since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return text if text.isprintable() else ""
