"""Where the files of an encoder are: in a folder, or in the hub's cache at one commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from yaml import YAMLError

from auxlearn.core.errors import EncoderError, UserError, did_you_mean, named_fault, shorten
from auxlearn.core.files import content_digest, user_path, verify_export
from auxlearn.core.hub import repository_info
from auxlearn.core.settings import ENCODERS, REDIRECTED, encoder_source
from auxlearn.encoders import checks
from auxlearn.encoders.shared import quiet_transformers
from auxlearn.encoders.weights import WEIGHT_FILES, weight_files

#: Names of a vocabulary, of which SentencePiece's own are four.
VOCABULARIES = {
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spm.model",
    "spiece.model",
    "sentencepiece.bpe.model",
}

#: Suffixes of the files that configuration and tokenizer are loaded from.
_SUFFIXES = (".json", ".txt", ".model")
#: Files of this package beside them, which transformers does not read.
_RECORDS = ("manifest.json", "pretraining.json")


@contextmanager
def encoder_files(name: str) -> Iterator[Path]:
    """Yield the checked folder of an encoder; what transformers raises becomes an EncoderError."""
    folder = encoder_folder(name)
    try:
        with quiet_transformers():
            yield folder
    except EncoderError:
        raise
    except BaseException as error:
        # A configuration can hold anything, and transformers raises whatever comes of it; the
        # tokenizers of Rust raise a PanicException, which is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise EncoderError(
            f"encoder folder {folder} cannot be loaded: {named_fault(error)}"
        ) from error


def encoder_folder(name: str) -> Path:
    """Return the checked folder of an encoder by its short name, path or hub id."""
    source = encoder_source(name)
    folder = user_path(source, EncoderError)
    if not folder.is_dir():
        _check_id(shorten(name, 200), source, folder)
        folder = _from_hub(name, source)
    _check_folder(folder)
    return folder


def encoder_content(name: str) -> dict[str, str]:
    """Return digests of an encoder's files and weights, or the commit of the hub's cache."""
    folder = encoder_folder(name)
    weights = weight_files(folder)
    if folder.parent.name == "snapshots":  # named after its commit
        pickled = [path.name for path in weights if path.suffix == ".bin"]
        return {"commit": folder.name, **({"weights": ", ".join(pickled)} if pickled else {})}
    return {
        path.name: content_digest(path)
        for path in sorted(folder.iterdir())
        if path.is_file()
        and path.name not in _RECORDS
        and (path.suffix in (*_SUFFIXES, ".safetensors") or path in weights)
    }


def encoder_license(name: str) -> dict[str, str]:
    """Return the licence that the card of an encoder states, as the hub's metadata; if any."""
    from huggingface_hub import metadata_load

    try:
        card = encoder_folder(name) / "README.md"
        content = metadata_load(card) if card.is_file() else None
    except (UserError, OSError, ValueError, YAMLError):  # as files of others may be
        return {}
    keys = ("license", "license_name", "license_link")
    return {key: content[key] for key in keys if content and isinstance(content.get(key), str)}


def _check_id(name: str, source: str, path: Path) -> None:
    """Check that what is no folder may be the id of a repository."""
    if path.is_file():
        raise EncoderError(f"{path} is a file: name the folder that holds the encoder")
    if source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise EncoderError(f"encoder folder {shorten(source, 200)} does not exist")
    if "/" not in source:
        raise EncoderError(
            f"unknown encoder '{name}': {did_you_mean(name, [*ENCODERS, *REDIRECTED])} "
            "(a folder or a hub id such as FacebookAI/roberta-base works too)"
        )


def _check_folder(folder: Path) -> None:
    try:
        files = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise EncoderError(f"{folder} cannot be read ({error.strerror})") from None
    verify_export(folder)
    # That of a run folder is in "model", that of sentence-transformers may be in "0_Transformer".
    inner = sorted({path.parent for name in VOCABULARIES for path in folder.glob(f"*/{name}")})
    if "config.json" not in files:
        meant = inner[0] if inner else "a folder written by save_pretrained"
        raise EncoderError(f"{folder} holds no config.json: name {meant}")
    if not files & VOCABULARIES:
        meant = f"name {inner[0]}" if inner else "save it with tokenizer.save_pretrained"
        raise EncoderError(f"{folder} holds no tokenizer: {meant}")
    checks.check_files(folder)


def _from_hub(name: str, source: str) -> Path:
    """Return the folder of one commit of a repository, from the hub or from its cache."""
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    cache_folder = constants.HF_HUB_CACHE
    answer = _downloaded(name, source, cache_folder, constants.HF_HUB_OFFLINE)
    if isinstance(answer, Path):
        return answer
    former = source.rpartition("/")[2]  # the name that older versions have cached it under
    for repository in (source, *([former] if former in REDIRECTED else [])):
        try:
            config = try_to_load_from_cache(repository, "config.json", cache_folder)
        except HFValidationError:  # such as a path with a space
            raise EncoderError(f"encoder folder {shorten(source, 200)} does not exist") from None
        if isinstance(config, str):
            return Path(config).parent
    raise EncoderError(
        f"encoder '{name}' ({source}) is no folder and not in the cache, and the hub cannot be "
        f"asked ({answer}): run `hf download {source}` with a network, and name its folder"
    )


@cache  # so that all parts of a run are of one commit, and the hub is asked once
def _downloaded(name: str, source: str, cache_folder: str, offline: bool) -> Path | str:
    """Return the folder of what the hub has now, or why it cannot be asked."""
    from huggingface_hub import snapshot_download

    refused = EncoderError(
        f"there is no folder {source}, and the hub has no encoder '{name}' ({source}) that may be "
        "read without logging in: check the id, or log in with `hf auth login`"
    )
    answer = repository_info(source, "model", refused)
    if isinstance(answer, str):
        return answer
    files = [sibling.rfilename for sibling in answer.siblings or []]
    weights = next((file for file in WEIGHT_FILES if file in files), "")
    settings = [file for file in files if "/" not in file and file.endswith(_SUFFIXES)]
    shards = f"{weights.partition('.')[0]}-*" if weights.endswith(".json") else weights
    try:
        return Path(snapshot_download(source, allow_patterns=[*settings, shards, "README.md"]))
    except OSError as error:  # those of huggingface_hub and of HTTP are
        return named_fault(error)
