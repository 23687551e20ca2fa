"""Atomic writes of files and folders."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from auxlearn.errors import UserError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: the new content replaces the old one as a whole or not at all.

    Args:
        path: The file; its folder is created if it does not exist.
        content: The new content.

    Raises:
        UserError: The disk is full or the path cannot be written to; the old content is kept.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        advice = (
            "free some space, then run the same command again"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else "choose a path that can be written to"
        )
        raise UserError(f"cannot write {path} ({error.strerror}): {advice}") from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Write a folder atomically.

    Args:
        path: The folder; what is there is replaced when the block ends without an error.

    Yields:
        An empty temporary folder to write into.

    Raises:
        UserError: The folder cannot be written; what was there stays.
    """
    from safetensors import SafetensorError

    temporary = path.with_name(f".{path.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        shutil.rmtree(path, ignore_errors=True)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"cannot write {path} ({error}): free some space, then run the same command again"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def content_digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of the relative paths and contents of a folder's files.

    Raises:
        OSError: The path does not exist or cannot be read.
    """
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for inner in sorted(path.rglob("*")):
        if inner.is_file():
            line = f"{inner.relative_to(path).as_posix()} {content_digest(inner)}\n"
            digest.update(line.encode())
    return digest.hexdigest()


def write_text(path: Path, content: str) -> None:
    """Write a UTF-8 file atomically; see :func:`write_bytes`."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON atomically; see :func:`write_bytes`."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
