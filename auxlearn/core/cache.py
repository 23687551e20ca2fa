"""Cache of tensors on disk, keyed by the hash of their inputs.

A file that is damaged, or that of another entry, is reported and computed again. Processes that
request the same entry wait for each other, so that it is computed once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from auxlearn.core.errors import UserError
from auxlearn.core.files import PART, check_output, expand, write_bytes
from auxlearn.core.locks import Lock

logger = logging.getLogger(__name__)


def default_folder() -> Path:
    """Return ``$AUXLEARN_CACHE``, or ``auxlearn`` in the user's cache folder."""
    chosen = os.environ.get("AUXLEARN_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand(chosen or f"{base}/auxlearn")


def check_cache_folder(folder: Path | None) -> None:
    """Check that a cache folder is there or can be made; the default one if none is given."""
    place = folder or default_folder()
    if not place.is_dir():
        check_output(place, "--cache-dir")


def content_key(*values: Any) -> str:
    """Return the SHA-256 of tensors (dtype, shape, bytes) and of values that JSON can hold."""
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, Tensor):
            digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
            digest.update(_bytes_of(value))
        else:
            digest.update(json.dumps(value, ensure_ascii=False, sort_keys=True).encode())
        digest.update(b"\x1e")
    return digest.hexdigest()


class TensorCache:
    """A folder of cached tensors."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None

    def get(self, key: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the tensors of an entry; compute and store them if there is none."""
        path = self.folder / f"{key}.safetensors"
        tensors = _read(path)
        if tensors is None:
            with self._lock(path):
                tensors = _read(path)  # another process may have written them meanwhile
                if tensors is None:
                    if path.exists():
                        logger.warning(
                            "cache file %s is damaged: its content is computed again", path
                        )
                    tensors = {name: value.contiguous() for name, value in compute().items()}
                    header = {"key": key, "sha256": _checksum(tensors)}
                    write_bytes(path, save(tensors, header))
        return tensors

    @contextmanager
    def _lock(self, path: Path) -> Iterator[None]:
        """Lock an entry within the block; while another process computes it, say so."""

        def waiting(owner: str) -> None:
            logger.info("waiting for a cache entry that %s computes (%s)", owner, path.name)

        lock = Lock(path.with_suffix(".lock"))
        try:
            lock.acquire(waiting=waiting)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            for part in self.folder.glob(f".{path.name[:40]}.*{PART}"):  # left by a kill
                part.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    def _unusable(self, error: OSError) -> UserError:
        return UserError(
            f"cannot write to the cache folder {self.folder} ({error.strerror}): "
            "choose another with --cache-dir"
        )


def _read(path: Path) -> dict[str, Tensor] | None:
    """Return the tensors of a file; ``None`` if it is absent, damaged or that of another entry."""
    if not path.is_file():  # opening a pipe would wait for ever
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
            if header.get("key") == path.stem and header.get("sha256") == _checksum(tensors):
                return tensors
    except (SafetensorError, OSError):
        pass
    return None


def _checksum(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(_bytes_of(tensors[name]))
    return digest.hexdigest()


def _bytes_of(tensor: Tensor) -> bytes | memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
