"""Bad encoders."""

from __future__ import annotations

import os
import shutil
import struct
from functools import partial
from typing import Any

from tests.hardening.inputs import (
    MANY,
    Case,
    cases,
    changed,
    filled,
    folder,
    narrower,
    of_encoder,
    of_run,
    removed,
    replaced,
    setting,
    together,
    weights,
    without,
    writes,
)

TRAIN = ("train", "--dataset", "d", "--encoder", "encoder", "--epochs", "1", "--cache-dir", "cache")
DATA = writes("d/train.jsonl", MANY)
encoders = partial(cases, "encoder", TRAIN, leaves=("cache",))


def pipe_for(name: str) -> Any:
    return of_encoder(lambda model: ((model / name).unlink(), os.mkfifo(model / name)))


def vocabulary(content: str) -> Any:
    return together(removed("tokenizer*"), writes("encoder/vocab.txt", content))


def more_tokens(tokenizer: dict[str, Any]) -> dict[str, Any]:
    model = tokenizer["model"]
    return {**tokenizer, "model": {**model, "vocab": {**model["vocab"], "surplus": 9999}}}


def index(content: str) -> Any:
    def make(model: Any) -> None:
        (model / "model.safetensors").unlink()
        (model / "model.safetensors.index.json").write_text(content)

    return of_encoder(make)


TOKENIZER = "tokenizer_config.json"
LOAD, SHAPES = r"cannot be loaded", r"other shapes|cannot be loaded"
DAMAGED = r"model.safetensors is damaged"
FILES: dict[str, Any] = {
    "absent": (r"unknown encoder 'encoder'", DATA),
    "a file": (r"encoder is a file", together(DATA, writes("encoder", "x"))),
    "empty": (r"holds no config.json|unknown encoder", together(DATA, folder("encoder"))),
    "no configuration": (r"holds no config.json", removed("config.json")),
    "no weights": (r"holds no weights that are read", removed("model.safetensors")),
    "no tokenizer": (r"holds no tokenizer", removed("tokenizer*")),
    "configuration cut": (r"config.json is damaged", replaced("config.json", "{")),
    "configuration a list": (r"is not a JSON object", replaced("config.json", "[]")),
    "configuration deep": (r"config.json is damaged", replaced("config.json", "[" * 20_000)),
    "configuration not UTF-8": (r"config.json is damaged", replaced("config.json", b"\xff\xfe{")),
    "configuration large": (r"config.json is too large", replaced("config.json", " " * 10_000_001)),
    "configuration a pipe": (r"config.json", pipe_for("config.json")),
    "weights a pipe": (
        r"model.safetensors cannot be read \(not a regular file\)",
        pipe_for("model.safetensors"),
    ),
    "weights empty": (DAMAGED, replaced("model.safetensors", b"")),
    "weights cut": (DAMAGED, replaced("model.safetensors", b"\x10" + bytes(99))),
    "weights with a header of exabytes": (
        DAMAGED,
        replaced("model.safetensors", struct.pack("<Q", 2**62) + b"{}"),
    ),
    "weights a pickle": (DAMAGED, replaced("model.safetensors", b"\x80\x04K\x01.")),
    "index without a map": (r"has no weight_map", index("{}")),
    "index leads out": (
        r"names \.\./x.safetensors, which is not there",
        index('{"weight_map": {"a": "../x.safetensors"}}'),
    ),
    "tokenizer cut": (LOAD, replaced("tokenizer.json", "{")),
    "tokenizer a list": (LOAD, replaced("tokenizer.json", "[]")),
    "tokenizer settings cut": (r"tokenizer_config.json is damaged", replaced(TOKENIZER, "{")),
    "a vocabulary without its unknown token": (
        r"cannot be loaded: Exception: WordPiece error: Missing \[UNK\]",
        vocabulary("a\nb\nc\n"),
    ),
    "more tokens than rows": (
        r"its embeddings have \d+ rows",
        changed("tokenizer.json", more_tokens),
    ),
}
CONFIGURATIONS: dict[str, Any] = {
    "code of its own": (
        r"comes with code of its own, which is never run",
        setting(auto_map={"AutoModel": "evil.Evil"}, model_type="evil"),
    ),
    "kernel of the hub": (r"code of its own", setting(attn_implementation="someone/kernel")),
    "architecture": (r"architecture 'gpt2' is not supported", setting(model_type="gpt2")),
    "no architecture": (
        r"has no model_type: add a line",
        setting(model_type=..., architectures=...),
    ),
    "architecture a number": (r"has no model_type", setting(model_type=3)),
    "more layers than weights": (
        r"lacks weights of its body: bert.encoder.layer.2",
        setting(num_hidden_layers=4),
    ),
    "fewer layers than weights": (
        r"leaves out layers that the weight files hold",
        setting(num_hidden_layers=1),
    ),
    "a billion layers": (r"layers is 1000000000: at most 100,", setting(num_hidden_layers=10**9)),
    "no layers": (r"num_hidden_layers is 0", setting(num_hidden_layers=0)),
    "layers a text": (r"num_hidden_layers|cannot be loaded", setting(num_hidden_layers="two")),
    "layers a fraction": (r"num_hidden_layers|cannot be loaded", setting(num_hidden_layers=1.5)),
    "a vast hidden size": (
        r"describes an encoder of [\d,]+ weights, but the files hold",
        setting(hidden_size=2**16, num_attention_heads=2),
    ),
    "a vast vocabulary": (r"describes an encoder of", setting(vocab_size=10**9)),
    "a billion labels": (r"num_labels is 1000000000: at most", setting(num_labels=10**9)),
    "a billion labels inside": (r"num_labels is 1000", setting(text_config={"num_labels": 10**9})),
    "heads that do not divide": (LOAD, setting(num_attention_heads=5)),
    "no heads": (LOAD, setting(num_attention_heads=0)),
    "activation": (LOAD, setting(hidden_act="nonsense")),
    "dropout": (LOAD, setting(hidden_dropout_prob=7)),
    "a text for epsilon": (LOAD, setting(layer_norm_eps="small")),
    "another hidden size": (SHAPES, setting(hidden_size=16)),
    "another vocabulary": (SHAPES, setting(vocab_size=50)),
    "another intermediate size": (SHAPES, setting(intermediate_size=48)),
    "fewer positions": (rf"{SHAPES}|positions", setting(max_position_embeddings=64)),
    "null for positions": (LOAD, setting(max_position_embeddings=None)),
}
BODY = r"lacks weights of its body"
WEIGHTS: dict[str, Any] = {
    "a layer gone": (rf"{BODY}: bert.encoder.layer.1", without("layer.1.")),
    "embeddings gone": (rf"{BODY}: bert.embeddings.word", without("word_embeddings")),
    "one bias gone": (BODY, without("layer.0.attention.self.query.bias")),
    "body gone": (BODY, without("bert.")),
    "a narrow weight": (SHAPES, narrower("layer.0.intermediate.dense.weight")),
    "NaN": (r"hold NaN or infinity", filled("layer.1.output.dense.weight", float("nan"))),
    "infinity": (r"hold NaN or infinity", filled("word_embeddings", float("inf"))),
    **{
        f"weights of type {kind}": (
            rf"layer.1.output.dense.weight is of type torch.{kind}: weights are floating-point",
            weights(lambda name, one, to=to: getattr(one, to)(), "layer.1.output.dense.weight"),
        )
        for kind, to in (("int64", "long"), ("bool", "bool"))
    },
}
RUNS: dict[str, Any] = {
    "a weight gone": (r"weights and config.json differ in", without("classifier.bias", of_run)),
    "a layer gone": (r"is damaged: weights", without("layer.1.", of_run)),
    "NaN": (r"hold NaN or infinity", filled("classifier.weight", float("nan"), of_run)),
    "narrow": (r"damaged|cannot be loaded", narrower("classifier.weight", of_run)),
    "more labels": (
        r"damaged|cannot be loaded",
        setting(of_run, id2label={str(i): str(i) for i in range(9)}),
    ),
    "absent": (r"does not exist", of_run(shutil.rmtree)),
}
#: By name: what follows ``data check d``, the error line, and what makes the case.
CHECKS: dict[str, tuple[str, str, Any]] = {
    "an empty vocabulary": (
        "--encoder encoder",
        r"cannot be loaded: Exception: WordPiece error: Missing \[UNK\]",
        vocabulary(""),
    ),
    "more tokens than positions": (
        "--encoder encoder --max-length 9999999999",
        r"max_length 9999999999 is more than the \d+ positions",
        setting(),
    ),
    "home of nobody": ("--encoder ~nosuchuser/e", r"is not a path|exist|no home folder", DATA),
    "long path": (f"--encoder {'e' * 5000}", r"File name too long", DATA),
    "NUL in a path": ("--encoder e\0e", r"is not a path|no home folder", DATA),
}

CASES: list[Case] = [
    *encoders(FILES | CONFIGURATIONS | WEIGHTS),
    *cases("model", ("predict", "run", "some text"), RUNS),
    *(
        Case(f"encoder: {name}", ["data", "check", "d", *words.split(" ")], line, make)
        for name, (words, line, make) in CHECKS.items()
    ),
    Case(
        "encoder: too long texts",
        (*TRAIN, "--max-length", "500"),
        r"use --max-length 128 or less",
        setting(),
        leaves=("cache",),
    ),
]
