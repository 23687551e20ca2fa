"""Bad encoders."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

from tests.hardening.inputs import (
    Case,
    Make,
    cases,
    of_encoder,
    replaced,
    setting,
    weights,
)


def index(content: str) -> Make:
    """Weights in several files, by an index of this content."""

    def make(model: Path) -> None:
        (model / "model.safetensors").unlink()
        (model / "model.safetensors.index.json").write_text(content)

    return of_encoder(make)


def pipe_for(name: str) -> Make:
    return of_encoder(lambda model: ((model / name).unlink(), os.mkfifo(model / name)))


def with_nan(tensor: Any) -> Any:
    tensor.view(-1)[0] = float("nan")
    return tensor


DENSE = "layer.0.output.dense.weight"
ENCODERS: dict[str, Any] = {
    "configuration deep": ("config.json", replaced("config.json", "[" * 20_000)),
    "configuration large": ("config.json", replaced("config.json", " " * 10_000_001)),
    "weights a pipe": ("model.safetensors", pipe_for("model.safetensors")),
    "weights a pickle": ("model.safetensors", replaced("model.safetensors", b"\x80\x04K\x01.")),
    "weights with a header of exabytes": (
        "model.safetensors",
        replaced("model.safetensors", struct.pack("<Q", 2**62) + b"{}"),
    ),
    "index leads out": ("../x.safetensors", index('{"weight_map": {"a": "../x.safetensors"}}')),
    "code of its own": (
        "code of its own",
        setting(auto_map={"AutoModel": "evil.Evil"}, model_type="evil"),
    ),
    "kernel of the hub": ("code of its own", setting(attn_implementation="someone/kernel")),
    "more layers than weights": ("layer.1", setting(num_hidden_layers=4)),
    "a billion layers": ("layers", setting(num_hidden_layers=10**9)),
    "a vast vocabulary": ("weights", setting(vocab_size=10**9)),
    "NaN": ("NaN", weights(DENSE, with_nan)),
    "whole numbers": (DENSE, weights(DENSE, lambda tensor: tensor.long())),
}

TRAIN = "train --dataset d --encoder encoder --epochs 1"
CASES: list[Case] = [
    *cases("encoder", TRAIN, ENCODERS),
    Case("encoder: too long texts", f"{TRAIN} --max-length 500", "--max-length 128", setting()),
]
