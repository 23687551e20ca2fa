"""Locks between processes: one file each, which says who holds it and since when. The system
releases a lock when its process ends, however that happens, so that none is ever stale.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from auxlearn.core.errors import RunError

#: Seconds to wait for a lock before its holder is named: :func:`is_held` holds it for a moment.
GRACE = 0.2
REMIND_EVERY = 60.0  # seconds between two messages about a lock that is waited for
POLL = 0.02  # seconds between two attempts

_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class LockHeld(Exception):
    """Another process holds the lock; the message names it."""


class Lock:
    """An exclusive lock on a file, for this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(
        self, *, timeout: float | None = None, waiting: Callable[[str], None] | None = None
    ) -> None:
        begun = time.monotonic()
        due = begun + GRACE
        while not self._try():
            now = time.monotonic()
            if timeout is not None and now - begun >= timeout:
                raise LockHeld(holder(self.path) or "another process")
            if waiting is not None and now >= due:
                waiting(holder(self.path) or "another process")
                due = now + REMIND_EVERY
            time.sleep(POLL)

    def _try(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        self._handle = handle = os.open(self.path, flags, 0o666)
        locked = False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = self.in_place  # else it was deleted or moved after it had been opened
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                raise OSError(error.errno, "its file system has no locks") from None
            raise
        finally:
            if not locked:
                os.close(handle)
                self._handle = None
        if locked:
            self._sign()
        return locked

    def _sign(self) -> None:
        """Write into the file who holds the lock; it holds as well if that cannot be written."""
        assert self._handle is not None
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        content = {"process": os.getpid(), "host": platform.node(), "since": since}
        with suppress(OSError):
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, (json.dumps(content) + "\n").encode(), 0)

    @property
    def in_place(self) -> bool:
        """Whether the locked file is still the one of that name: its folder may be moved."""
        if self._handle is None:
            return False
        try:
            found, own = os.lstat(self.path), os.fstat(self._handle)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def check(self) -> None:
        """Raise an error if the folder was deleted, moved or replaced since it was locked."""
        if not self.in_place:
            raise RunError(
                f"{self.path.parent} was deleted or moved by another process while this one was "
                "running in it, so that nothing more is written: run the same command again"
            )

    def release(self) -> None:
        """Release the lock and delete its file."""
        if self._handle is None:
            return
        if self.in_place:
            with suppress(OSError):
                self.path.unlink()
        os.close(self._handle)
        self._handle = None


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock at this moment, by a shared lock for a moment: other
    processes can test at the same time, and one that wants the lock waits for the end of the test.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # there is no such file, or none that a process could have locked
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)  # releases the shared lock


def holder(path: Path) -> str:
    """Return who locked the file last, as ``process 4711 on node3, since 2026-11-21 22:07:03 UTC``,
    and what would explain a long wait; "" if that is unknown.
    """
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(1000))
        process, host, since = int(found["process"]), str(found["host"]), str(found["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    text = f"process {process} on {host}, since {since}"
    if not text.isprintable():
        return ""
    if host != platform.node():
        return text
    state = _state_of(process)
    if state == "T":
        return f"{text} (it is stopped: `kill -CONT {process}` lets it continue)"
    if state == "":
        return f"{text} (it has ended, but a process that it started still holds the lock)"
    return text


def _state_of(process: int) -> str | None:
    """Return the state of a process of this machine; "" if it has ended, ``None`` if unknown."""
    if not Path("/proc/self/stat").exists():
        return None
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""
