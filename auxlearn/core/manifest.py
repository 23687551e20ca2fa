"""Manifests: what a checkpoint or an exported model consists of, verified before it is used.

Each file has its size and SHA-256; a safetensors file also its tensors' shapes and dtypes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from auxlearn.core.errors import EncoderError
from auxlearn.core.files import content_digest, read_checked_json, write_checked_json

FILE = "manifest.json"

#: Size and checksum of a file; of a safetensors file also ``tensors``, by name.
Description = dict[str, Any]


class Damaged(ValueError):
    """A file is not what its manifest describes; the message says how."""


def describe_bytes(content: bytes) -> Description:
    """Describe the content of a file that is not a safetensors file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def describe_file(path: Path) -> Description:
    """Describe a file; the tensors of a safetensors file one by one."""
    found: Description = {"bytes": path.stat().st_size, "sha256": content_digest(path)}
    if path.suffix == ".safetensors":
        found["tensors"] = tensors_of(path)
    return found


def tensors_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return shape and dtype of the tensors of a safetensors file, by name, from its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: {"dtype": one.get_dtype(), "shape": one.get_shape()}
                for name, one in found.items()
            }
    except SafetensorError:
        raise Damaged(f"{path.name} is no safetensors file") from None


def verify_file(path: Path, expected: Description) -> None:
    """Check that a file is what its description says, by all of its bytes."""
    try:
        size = path.stat().st_size
        if not isinstance(expected["bytes"], int):
            raise TypeError
        if not path.is_file():
            raise Damaged(f"{path.name} is no file")
        if size != expected["bytes"]:
            raise Damaged(f"{path.name} has {size:,} bytes instead of {expected['bytes']:,}")
        if content_digest(path) != expected["sha256"]:
            raise Damaged(f"the checksum of {path.name} differs")
        if "tensors" in expected and tensors_of(path) != expected["tensors"]:
            raise Damaged(f"{path.name} has other tensors")
    except OSError as error:
        raise Damaged(f"{path.name}: {error.strerror}") from None
    except (KeyError, TypeError):
        raise Damaged(f"the description of {path.name} is incomplete") from None


def write_manifest(folder: Path) -> None:
    """Write ``manifest.json``, which describes all other files of a folder."""
    files = {
        path.relative_to(folder).as_posix(): describe_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / FILE
    }
    write_checked_json(folder / FILE, {"files": files})


def verify_export(folder: Path) -> None:
    """Check the files of an exported model against its manifest, if there is one, before use."""
    try:
        files = read_checked_json(folder / FILE, required=True)["files"]
        for name, expected in files.items():
            inner = Path(name)
            if inner.is_absolute() or ".." in inner.parts:
                raise Damaged(f"{FILE} names {name!r}, which is outside")
            verify_file(folder / inner, expected)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError, KeyError, AttributeError) as error:
        reason = error if isinstance(error, Damaged) else f"{FILE}: {error}"
        raise EncoderError(
            f"the model in {folder} is damaged ({reason}): copy it again from where it is "
            "complete, or train it again into another --output"
        ) from None
