"""Checks of an encoder before it is used: its files before they are read, its weights afterwards.

transformers initialises missing weights at random, without an error, and allocates what a
configuration asks for: here only heads may be new, and code of an encoder's own is never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM

from auxlearn.core.errors import EncoderError, shorten, some_of
from auxlearn.core.files import refuse_lfs_pointer, regular
from auxlearn.data.batches import Batch
from auxlearn.encoders.families import FAMILIES, Family, family_of
from auxlearn.encoders.weights import read_settings, weight_files

_SETTINGS = ("config.json", "tokenizer_config.json", "special_tokens_map.json")
_ATTENTION = re.compile(r"_?(attn|experts)_implementation.*")
_LAYER = re.compile(r"\.layers?\.\d+\.")

#: Weights by which a configuration may exceed the files: newly initialised heads.
_SLACK = 10_000_000


def check_files(folder: Path) -> None:
    """Check the files of an encoder's folder before transformers reads them."""
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".txt", ".model", ".safetensors"):
            _check_file(path)
    for name in _SETTINGS:
        if (folder / name).exists():
            for key, value in read_settings(folder / name).items():
                # A name with a slash makes transformers fetch and run a kernel of the hub.
                if _ATTENTION.fullmatch(key) and "/" in str(value):
                    raise code_of_its_own(str(folder))
    _check_architecture(folder)
    for path in weight_files(folder):
        _check_file(path)


def _check_architecture(folder: Path) -> None:
    config = read_settings(folder / "config.json")
    model_type, own_code = config.get("model_type"), config.get("auto_map")
    if not isinstance(model_type, str):
        raise EncoderError(
            f"{folder / 'config.json'} has no model_type: add a line with the architecture, such "
            'as "model_type": "bert"'
        )
    if own_code and model_type not in FAMILIES:
        raise code_of_its_own(str(folder))
    family_of(model_type)
    if config.get("is_decoder"):
        raise EncoderError(
            f"{folder / 'config.json'} says is_decoder, so that no token would see those after it: "
            "set it to false if the model has been trained to see them"
        )


def code_of_its_own(name: str) -> EncoderError:
    """Return the error for an encoder that needs code of its own."""
    return EncoderError(
        f"encoder {name} comes with code of its own, which is never run: "
        "choose an encoder of an architecture that transformers has"
    )


def untrained(config: Any) -> Any:
    """Return the model that a configuration describes, with newly initialised weights."""
    return AutoModelForMaskedLM.from_config(config, trust_remote_code=False)


def check_size(folder: Path, config: Any, weights: Mapping[str, Tensor]) -> None:
    """Check that a configuration asks for no more weights than the folder holds, about."""
    if config.num_hidden_layers > len(weights):  # so many are not even counted
        raise EncoderError(
            f"{folder / 'config.json'} asks for {config.num_hidden_layers:,} layers, but the files "
            f"hold {len(weights)} tensors"
        )
    held = sum(tensor.numel() for tensor in weights.values())
    with torch.device("meta"):
        wanted = sum(parameter.numel() for parameter in untrained(config).parameters())
    if wanted > 2 * held + _SLACK:
        raise EncoderError(
            f"{folder / 'config.json'} describes an encoder of {wanted:,} weights, but the files "
            f"hold {held:,}: the two do not belong together"
        )


def check_body(name: str, model: Any, info: Mapping[str, Any], family: Family) -> None:
    """Check that all weights of the body came from the files of the encoder."""
    prefix = f"{model.base_model_prefix}."

    def of_body(keys: Iterable[str]) -> list[str]:
        return sorted(
            key
            for key in keys
            if key.startswith(prefix)
            and not key.removeprefix(prefix).startswith(family.pooler_prefixes)
        )

    faults = {
        "lacks weights of its body": of_body(info["missing_keys"]),
        "has weights of other shapes than its config.json says": of_body(
            key for key, *_ in info["mismatched_keys"]
        ),
        "by its config.json leaves out layers that the weight files hold": sorted(
            key for key in info["unexpected_keys"] if _LAYER.search(key)
        ),
    }
    for fault, keys in faults.items():
        if keys:
            raise EncoderError(
                f"encoder '{name}' {fault}: {some_of(keys, 4)}; fetch or save it again"
            )


def check_classifier(folder: Path, model: Any, info: Mapping[str, Any]) -> None:
    """Check that a classifier that a run has exported is complete."""
    keys = [*info["missing_keys"], *info["unexpected_keys"]]
    keys += [key for key, *_ in info["mismatched_keys"]]
    if keys:
        raise EncoderError(
            f"the model in {folder} is damaged: weights and config.json differ in "
            f"{some_of(sorted(map(str, keys)), 4)}; train again or copy the folder again"
        )


def check_weights(name: str, model: torch.nn.Module) -> None:
    """Check that no weight is NaN or infinite."""
    for key, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise EncoderError(
                f"encoder '{shorten(name, 200)}' is damaged: its weights {key} hold NaN or "
                "infinity; fetch or save it again"
            )


def check_vocabulary(name: str, tokenizer: Any, model: Any) -> None:
    """Check that the embeddings have a row for every token of the tokenizer."""
    highest = max(tokenizer.get_vocab().values(), default=-1)
    rows = model.get_input_embeddings().num_embeddings
    if highest >= rows:
        raise EncoderError(
            f"encoder '{shorten(name, 200)}': its tokenizer has tokens up to number {highest:,}, "
            f"but its embeddings have {rows:,} rows: the two do not belong together"
        )


def try_out(encoder: Any) -> None:
    """Classify and predict the tokens of a short text: nonsense may show only in use."""
    ids = torch.tensor([encoder.tokenizer("a b")["input_ids"]])
    everywhere = torch.ones_like(ids)
    batch = Batch(ids, everywhere, everywhere.bool(), everywhere, torch.tensor([0]))
    with torch.no_grad():
        outputs = encoder.classify(batch), encoder.predict_tokens(batch, everywhere.bool())
    if not all(bool(output.isfinite().all()) for output in outputs):
        raise EncoderError("its outputs are NaN or infinite")


def _check_file(path: Path) -> None:
    try:
        with open(path, "rb", opener=regular) as file:
            start = file.read(100)
    except OSError as error:
        raise EncoderError(f"{path} cannot be read ({error.strerror})") from None
    refuse_lfs_pointer(path, start, EncoderError)
