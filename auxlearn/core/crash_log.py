"""Unforeseen errors: where their traceback is written, so that one line is enough on the screen."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from auxlearn.core.errors import UserError
from auxlearn.core.files import write_bytes
from auxlearn.core.version import __version__

#: Name of the file with the traceback.
FILE = "error.log"

_LOG = "_auxlearn_log"


@contextmanager
def logged_into(folder: Path) -> Iterator[None]:
    """Write the traceback of an unforeseen error in the block into ``error.log`` of a folder."""
    with suppress(OSError):
        (folder / FILE).unlink()
    try:
        yield
    except BaseException as error:
        # The command line explains these in one line.
        if not isinstance(error, UserError | OSError | KeyboardInterrupt | SystemExit):
            _write(folder / FILE, error)
        raise


def log_of(error: BaseException) -> Path | None:
    """Return the file with the traceback of an error, written now if it has none; else ``None``."""
    known: Path | None = getattr(error, _LOG, None)
    if known is not None:
        return known
    try:
        folder = Path(tempfile.mkdtemp(prefix="auxlearn-"))
    except OSError:
        return None
    return _write(folder / FILE, error)


def _write(path: Path, error: BaseException) -> Path | None:
    lines = [
        f"auxlearn {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
        f"command: {' '.join(sys.argv)}\n",
        f"folder: {os.getcwd()}\n\n",
        *traceback.format_exception(error),
    ]
    try:
        write_bytes(path, "".join(lines).encode(errors="backslashreplace"))
        setattr(error, _LOG, path)
    except (UserError, AttributeError):
        return None
    return path
