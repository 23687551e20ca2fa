"""By what an encoder's content is known, without loading its weights into a model."""

from __future__ import annotations

from pathlib import Path

from auxlearn.encoder_names import encoder_source
from auxlearn.files import content_digest

#: Kinds of files that transformers reads an encoder and its tokenizer from.
_READ = (".json", ".safetensors", ".txt", ".model")


def encoder_content(name: str) -> dict[str, str]:
    """Return digests that tell the content of an encoder.

    Args:
        name: Short name, local folder, or hub id.

    Returns:
        A digest of each file of a folder. Of an encoder of the hub, the commit that would be loaded
        now: the newest where the hub can be reached, else the one in the local cache.

    Raises:
        EncoderError: There is no such encoder, or the hub cannot be reached and the local cache
            has no copy.
    """
    folder = Path(encoder_source(name))
    if not (folder / "config.json").is_file():
        from auxlearn.encoders.load import find_snapshot

        folder = find_snapshot(name)
        if folder.parent.name == "snapshots":  # a folder of the hub's cache, named by its commit
            return {"commit": folder.name}
    return {
        path.name: content_digest(path)
        for path in sorted(folder.iterdir())
        if path.suffix in _READ and path.is_file()
    }
