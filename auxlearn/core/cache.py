"""Cache of tensors on disk, keyed by the hash of their inputs.

A file that is damaged, or that of another entry, is reported and computed again. Processes that
request the same entry wait for each other, so that it is computed once. Tensors are mapped from
their files: what is not used takes no memory.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from auxlearn.core.errors import UserError
from auxlearn.core.files import PART, cannot_write, expand, replaced_file
from auxlearn.core.locks import Lock

logger = logging.getLogger(__name__)

AT_ONCE = 1 << 26  # bytes of a tensor that are digested, or written, at once


def default_folder() -> Path:
    """Return ``$AUXLEARN_CACHE``, or ``auxlearn`` in the user's cache folder."""
    chosen = os.environ.get("AUXLEARN_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand(chosen or f"{base}/auxlearn")


def content_key(*values: Any) -> str:
    """Return the SHA-256 of tensors (dtype, shape, bytes), of what has a ``content_key``, such as
    the texts of a corpus, and of values that JSON can hold.
    """
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, Tensor):
            digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
            _digest_tensor(digest, value)
        elif hasattr(value, "content_key"):
            digest.update(value.content_key.encode())
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
        """Return the tensors of an entry; compute and store them if there is none.

        Raises:
            ValueError: The key is not of :func:`content_key`: other runs share the cache.
        """
        if not re.fullmatch(r"[0-9a-f]{64}(-\d+)?", str(key)):
            raise ValueError(f"{key!r} is no content_key of all that the tensors depend on")
        path = self.folder / f"{key}.safetensors"
        if (tensors := _read(path)) is None:
            with self._lock(path) as unfinished:
                tensors = _read(path)  # another process may have written them meanwhile
                if tensors is None:
                    if path.exists():
                        logger.warning(
                            "cache file %s is damaged: its content is computed again", path
                        )
                    tensors = {name: value.contiguous() for name, value in compute().items()}
                    header = {"key": key, "sha256": _checksum(tensors)}
                    with replaced_file(path, unfinished) as temporary:
                        _save(tensors, temporary, header)
                    tensors = _read(path) or tensors  # what was computed need not stay in memory
        return tensors

    def delete(self, key: str) -> None:
        (self.folder / f"{key}.safetensors").unlink(missing_ok=True)

    def joined(self, pieces: Iterable[Tensor]) -> Tensor:
        """Return pieces of a tensor, which follow each other in the first dimension, as one that is
        mapped from a file without a name: one piece is in memory at a time.
        """
        return self.joined_by_name({"values": piece} for piece in pieces)["values"]

    def joined_by_name(self, pieces: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return :meth:`joined` of several tensors, whose pieces come together."""
        files: dict[str, IO[bytes]] = {}
        first: dict[str, Tensor] = {}
        with ExitStack() as stack:
            for name, tensor in itertools.chain.from_iterable(map(Mapping.items, pieces)):
                try:
                    if name not in files:
                        file = stack.enter_context(tempfile.TemporaryFile(dir=self.folder))
                        files[name], first[name] = file, tensor[:0].clone()
                    files[name].write(_bytes_of(tensor))
                    files[name].flush()
                except OSError as error:
                    raise cannot_write(self.folder, error) from None
            return {name: _mapped(file, first[name]) for name, file in files.items()}

    @contextmanager
    def _lock(self, path: Path) -> Iterator[Path]:
        """Lock an entry within the block, and return where it is written first; while another
        process computes it, say so.
        """

        def waiting(owner: str) -> None:
            logger.info("waiting for a cache entry that %s computes (%s)", owner, path.name)

        lock = Lock(path.with_suffix(".lock"))
        try:
            lock.acquire(waiting=waiting)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            unfinished = path.with_name(f".{path.name}{PART}")
            unfinished.unlink(missing_ok=True)  # left by a kill
            yield unfinished
        finally:
            lock.release()

    def _unusable(self, error: OSError) -> UserError:
        return UserError(
            f"cannot write to the cache folder {self.folder} ({error.strerror}): "
            "choose another with --cache-dir"
        )


def _save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write the file of safetensors that its ``save_file`` writes, in pieces between which a signal
    is heard; that is one call, and when it is killed it leaves a file of another name.
    """
    empty = {name: tensor.new_empty(0) for name, tensor in tensors.items()}
    header, end = json.loads(save(empty, metadata)[8:]), 0
    names = [name for name in header if name in tensors]
    for name in names:
        start, end = end, end + tensors[name].nbytes
        header[name] |= {"shape": list(tensors[name].shape), "data_offsets": [start, end]}
    content = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    with path.open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        for piece in itertools.chain.from_iterable(_pieces_of(tensors[name]) for name in names):
            file.write(piece)
            file.flush()
            if len(piece) == AT_ONCE:  # the disk may take longer than the system to take them
                os.fsync(file.fileno())


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


def _mapped(file: IO[bytes], like: Tensor) -> Tensor:
    """Return the content of a file as a tensor with the dtype and further dimensions of another."""
    if not file.tell():
        return like
    content = torch.from_numpy(np.memmap(file, np.uint8, mode="c"))
    return content.view(like.dtype).reshape(-1, *like.shape[1:])


def _checksum(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        _digest_tensor(digest, tensors[name])
    return digest.hexdigest()


def _digest_tensor(digest: Any, tensor: Tensor) -> None:
    for piece in _pieces_of(tensor):
        digest.update(piece)


def _pieces_of(tensor: Tensor) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a tensor, so many that a signal is heard soon."""
    content = _bytes_of(tensor)
    for start in range(0, len(content), AT_ONCE):
        yield content[start : start + AT_ONCE]


def _bytes_of(tensor: Tensor) -> bytes | memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
