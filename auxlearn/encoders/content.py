"""Digests that identify the content of an encoder without loading its weights."""

from __future__ import annotations

import os

from auxlearn.encoder_names import encoder_source
from auxlearn.errors import EncoderError
from auxlearn.files import content_digest
from auxlearn.local_files import user_path

#: Suffixes of the files that transformers loads an encoder and its tokenizer from.
_SUFFIXES = (".json", ".safetensors", ".txt", ".model")
#: Files of this package beside them, which transformers does not read.
_RECORDS = ("manifest.json", "pretraining.json")


def encoder_content(name: str) -> dict[str, str]:
    """Return digests that identify the content of an encoder.

    Args:
        name: Short name, local folder, or hub id.

    Returns:
        For a folder, a digest of each file. For an encoder of the hub, the commit that would be
        loaded now: the newest if the hub can be reached, else the one in the local cache.

    Raises:
        EncoderError: The encoder does not exist, or the hub cannot be reached and the local cache
            has no copy.
    """
    folder = user_path(encoder_source(name), EncoderError)
    if not folder.is_dir() or not os.path.isfile(folder / "config.json"):
        from auxlearn.encoders.load import find_snapshot

        folder = find_snapshot(name)
        if folder.parent.name == "snapshots":  # a folder of the hub's cache, named after its commit
            return {"commit": folder.name}
    try:
        return {
            path.name: content_digest(path)
            for path in sorted(folder.iterdir())
            if path.suffix in _SUFFIXES and path.name not in _RECORDS and path.is_file()
        }
    except OSError as error:
        raise EncoderError(
            f"{error.filename or folder} cannot be read ({error.strerror})"
        ) from None
