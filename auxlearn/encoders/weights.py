"""The one place where the weights of an encoder are read: safetensors, or a pickle of tensors.

A ``pytorch_model.bin`` is a pickle, which could run code. It is read by torch's restricted reader
(``weights_only=True``), which builds tensors and plain containers and calls nothing else.
"""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from auxlearn.core.errors import EncoderError, shorten
from auxlearn.core.files import read_file

#: Files of weights, and indexes of several of them, in the order in which they are looked for.
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)

#: Bytes of a file of settings.
LARGEST_SETTINGS = 10_000_000


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold the weights of an encoder."""
    for name in WEIGHT_FILES:
        path = folder / name
        if not path.is_file():
            continue
        if path.suffix != ".json":
            return [path]
        shards = read_settings(path).get("weight_map")
        if not isinstance(shards, dict):
            raise EncoderError(f"{path} is damaged: it has no weight_map")
        names = sorted(set(map(str, shards.values())))
        for shard in names:
            if "/" in shard or not (folder / shard).is_file():
                raise EncoderError(f"{path} names {shorten(shard)}, which is not there")
        return [folder / shard for shard in names]
    raise EncoderError(
        f"{folder} holds no weights that are read: {WEIGHT_FILES[0]} or {WEIGHT_FILES[2]}, whole "
        "or in parts with their index"
    )


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of an encoder's weight files by name, on the CPU."""
    tensors: dict[str, Any] = {}
    for path in weight_files(folder):
        tensors |= _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise EncoderError(
                f"{folder}: {shorten(str(name))} of the weights is no tensor: save the state_dict "
                "of the model alone"
            )
        if name.endswith((".weight", ".bias")) and not tensor.is_floating_point():
            raise EncoderError(
                f"{folder}: {shorten(name)} is of type {tensor.dtype}: weights are floating-point "
                "numbers; save the encoder without quantisation"
            )
    return tensors


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error


def _read_pickle(path: Path) -> dict[str, Any]:
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's own advice is to switch the protection off.
        reason = re.search(r"GLOBAL (\S+)", str(error))
        what = f" ({shorten(reason[1], 100)})" if reason else ""
        raise EncoderError(
            f"{path} holds more than tensors{what}, which could run code, or is damaged: it is not "
            "read; use model.safetensors of the same encoder, or download it again"
        ) from error
    except Exception as error:  # what is no pickle raises anything
        raise _unreadable(path, error) from error
    if not isinstance(tensors, dict):
        raise EncoderError(f"{path} is not a state_dict, tensors by name: save that of the model")
    return tensors


def _unreadable(path: Path, error: Exception) -> EncoderError:
    reason = shorten(" ".join(str(error).partition("\n")[0].split()), 100)
    if isinstance(error, KeyError):  # a byte that is no instruction of pickle
        reason = "it is no file of torch.save"
    return EncoderError(f"{path} is damaged ({reason}): download it again")


def read_settings(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of settings."""
    content = read_file(path, LARGEST_SETTINGS, EncoderError)
    try:
        settings = json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = shorten(str(error), 100)
        raise EncoderError(f"{path} is damaged ({reason}): fetch or save it again") from None
    if not isinstance(settings, dict):
        raise EncoderError(f"{path} is damaged: it is not a JSON object; fetch or save it again")
    return settings
