"""Bad encoders."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.hardening.case import Case, Place, cases
from tests.hardening.inputs import (
    MANY,
    filled,
    narrower,
    removed,
    replaced,
    spoiled,
    spoiled_run,
    weights,
    without,
    writes,
)

TRAIN = ("train", "--dataset", "d", "--encoder", "encoder", "--epochs", "1", "--cache-dir", "cache")
PREDICT = ("predict", "run", "some text")


encoders = partial(cases, "encoder", TRAIN, leaves=("cache",))


def encoder(name: str, line: str, make: Callable[[Place], object]) -> Case:
    return encoders({name: (line, make)})[0]


def setting(**changes: Any) -> Callable[[Place], object]:
    return spoiled("config.json", lambda config: {**config, **changes})


SPOILED: dict[str, Any] = {
    "absent": (r"unknown encoder 'encoder'", writes("d/train.jsonl", MANY)),
    "a file": (
        r"encoder is a file",
        lambda place: (place.write("d/train.jsonl", MANY), place.write("encoder", "x")),
    ),
    "empty": (
        r"holds no config.json|unknown encoder",
        lambda place: (place.write("d/train.jsonl", MANY), (place.path / "encoder").mkdir()),
    ),
    "configuration cut": (r"config.json is damaged", replaced("config.json", "{")),
    "configuration a list": (r"is not a JSON object", replaced("config.json", "[]")),
    "configuration deep": (r"config.json is damaged", replaced("config.json", "[" * 20_000)),
    "configuration not UTF-8": (r"config.json is damaged", replaced("config.json", b"\xff\xfe{")),
    "configuration large": (r"config.json is too large", replaced("config.json", " " * 10_000_001)),
    "configuration a pipe": (
        r"config.json",
        lambda place: (
            removed("config.json")(place),
            os.mkfifo(place.path / "encoder/config.json"),
        ),
    ),
    "weights a pipe": (
        r"model.safetensors cannot be read \(not a regular file\)",
        lambda place: (
            removed("model.safetensors")(place),
            os.mkfifo(place.path / "encoder/model.safetensors"),
        ),
    ),
    "weights empty": (r"cannot be loaded", replaced("model.safetensors", b"")),
    "weights cut": (r"cannot be loaded", replaced("model.safetensors", b"\x10" + bytes(99))),
    "weights with a header of exabytes": (
        r"cannot be loaded",
        replaced("model.safetensors", struct.pack("<Q", 2**62) + b"{}"),
    ),
    "weights a pickle": (r"cannot be loaded", replaced("model.safetensors", b"\x80\x04K\x01.")),
    "index without a map": (r"has no weight_map", replaced("model.safetensors.index.json", "{}")),
    "index leads out": (
        r"names \.\./x.safetensors, which is not there",
        replaced("model.safetensors.index.json", '{"weight_map": {"a": "../x.safetensors"}}'),
    ),
    "code of its own": (
        r"comes with code of its own, which is never run",
        setting(auto_map={"AutoModel": "evil.Evil"}),
    ),
    "kernel of the hub": (r"code of its own", setting(attn_implementation="someone/kernel")),
    "tokenizer with code": (
        r"code of its own",
        spoiled(
            "tokenizer_config.json",
            lambda c: {**c, "auto_map": {"AutoTokenizer": ["evil.T", None]}},
        ),
    ),
    "architecture": (r"architecture 'gpt2' is not supported", setting(model_type="gpt2")),
    "no architecture": (
        r"cannot be loaded|architecture",
        spoiled(
            "config.json",
            lambda c: {k: v for k, v in c.items() if k not in ("model_type", "architectures")},
        ),
    ),
    "architecture a number": (r"cannot be loaded|architecture", setting(model_type=3)),
    "more layers than weights": (
        r"lacks weights of its body: bert.encoder.layer.2",
        setting(num_hidden_layers=4),
    ),
    "fewer layers than weights": (
        r"leaves out layers that the weight files hold",
        setting(num_hidden_layers=1),
    ),
    "a billion layers": (
        r"num_hidden_layers is 1000000000: at most 100,000",
        setting(num_hidden_layers=10**9),
    ),
    "no layers": (r"num_hidden_layers is 0", setting(num_hidden_layers=0)),
    "layers a text": (r"num_hidden_layers|cannot be loaded", setting(num_hidden_layers="two")),
    "layers a fraction": (r"num_hidden_layers|cannot be loaded", setting(num_hidden_layers=1.5)),
    "a vast hidden size": (
        r"describes an encoder of [\d,]+ weights, but the files hold",
        setting(hidden_size=2**16, num_attention_heads=2),
    ),
    "a vast vocabulary": (r"describes an encoder of", setting(vocab_size=10**9)),
    "heads that do not divide": (r"cannot be loaded", setting(num_attention_heads=5)),
    "no heads": (r"cannot be loaded", setting(num_attention_heads=0)),
    "activation": (r"cannot be loaded", setting(hidden_act="nonsense")),
    "dropout": (r"cannot be loaded", setting(hidden_dropout_prob=7)),
    "a text for epsilon": (r"cannot be loaded", setting(layer_norm_eps="small")),
    "another hidden size": (r"other shapes|cannot be loaded", setting(hidden_size=16)),
    "another vocabulary": (r"other shapes|cannot be loaded", setting(vocab_size=50)),
    "another intermediate size": (r"other shapes|cannot be loaded", setting(intermediate_size=48)),
    "fewer positions": (
        r"other shapes|cannot be loaded|positions",
        setting(max_position_embeddings=64),
    ),
    "null for positions": (r"cannot be loaded", setting(max_position_embeddings=None)),
    "a layer gone": (
        r"lacks weights of its body: bert.encoder.layer.1",
        weights(without("layer.1.")),
    ),
    "embeddings gone": (
        r"lacks weights of its body: bert.embeddings.word",
        weights(without("word_embeddings")),
    ),
    "one bias gone": (
        r"lacks weights of its body",
        weights(without("layer.0.attention.self.query.bias")),
    ),
    "body gone": (r"lacks weights of its body", weights(without("bert."))),
    "a narrow weight": (
        r"other shapes|cannot be loaded",
        weights(narrower("layer.0.intermediate.dense.weight")),
    ),
    "NaN": (r"hold NaN or infinity", weights(filled("layer.1.output.dense.weight", float("nan")))),
    "infinity": (r"hold NaN or infinity", weights(filled("word_embeddings", float("inf")))),
    "a vocabulary without its unknown token": (
        r"cannot be loaded: Exception: WordPiece error: Missing \[UNK\]",
        lambda place: (removed("tokenizer*")(place), place.write("encoder/vocab.txt", "a\nb\nc\n")),
    ),
    "tokenizer cut": (r"cannot be loaded", replaced("tokenizer.json", "{")),
    "tokenizer a list": (r"cannot be loaded", replaced("tokenizer.json", "[]")),
    "tokenizer settings cut": (
        r"tokenizer_config.json is damaged",
        replaced("tokenizer_config.json", "{"),
    ),
    "more tokens than rows": (
        r"its embeddings have \d+ rows",
        spoiled(
            "tokenizer.json",
            lambda t: {
                **t,
                "model": {**t["model"], "vocab": {**t["model"]["vocab"], "surplus": 9999}},
            },
        ),
    ),
}

MORE: dict[str, Any] = {
    "a weight gone": (
        r"is damaged: weights and config.json differ in",
        weights(without("classifier.bias"), "run"),
    ),
    "a layer gone": (r"is damaged: weights", weights(without("layer.1."), "run")),
    "NaN": (r"hold NaN or infinity", weights(filled("classifier.weight", float("nan")), "run")),
    "narrow": (r"damaged|cannot be loaded", weights(narrower("classifier.weight"), "run")),
    "more labels": (
        r"damaged|cannot be loaded",
        spoiled_run("config.json", lambda c: {**c, "id2label": {str(i): str(i) for i in range(9)}}),
    ),
    "a gap in the labels": (
        r"must number the labels 0, 1, 2",
        spoiled_run("config.json", lambda c: {**c, "id2label": {"0": "no", "2": "yes"}}),
    ),
    "labels without numbers": (
        r"cannot be loaded|id2label",
        spoiled_run("config.json", lambda c: {**c, "id2label": {"a": "no", "b": "yes"}}),
    ),
    "no length": (
        r"no model_max_length",
        spoiled_run(
            "tokenizer_config.json",
            lambda c: {k: v for k, v in c.items() if k != "model_max_length"},
        ),
    ),
    "a vast length": (
        r"no model_max_length",
        spoiled_run("tokenizer_config.json", lambda c: {**c, "model_max_length": 10**6}),
    ),
    "a text for the length": (
        r"model_max_length|cannot be loaded",
        spoiled_run("tokenizer_config.json", lambda c: {**c, "model_max_length": "long"}),
    ),
    "code of its own": (
        r"code of its own",
        spoiled_run("config.json", lambda c: {**c, "auto_map": {"AutoModel": "e.E"}}),
    ),
    "absent": (
        r"does not exist",
        lambda place: __import__("shutil").rmtree(place.copy_run() / "model"),
    ),
}

ENCODERS = [
    *encoders(SPOILED),
    *encoders(
        {
            "no configuration": (r"holds no config.json", "config.json"),
            "no weights": (r"holds no model.safetensors", "model.safetensors"),
            "no tokenizer": (r"holds no tokenizer", "tokenizer*"),
        },
        removed,
    ),
    *cases("model", PREDICT, MORE),
    *(
        encoder(
            f"weights of type {kind}",
            rf"layer.1.output.dense.weight is of type {kind}: weights are floating-point",
            weights(
                lambda tensors, one=one: tensors.update(
                    {k: getattr(v, one)() for k, v in tensors.items() if "1.output.dense.w" in k}
                )
            ),
        )
        for kind, one in (("I64", "long"), ("BOOL", "bool"))
    ),
    Case(
        "encoder: an empty vocabulary",
        ("data", "check", "d", "--encoder", "encoder"),
        r"cannot be loaded: Exception: WordPiece error: Missing \[UNK\]",
        lambda place: (removed("tokenizer*")(place), place.write("encoder/vocab.txt", "")),
    ),
    Case(
        "encoder: too long texts",
        (*TRAIN, "--max-length", "500"),
        r"use --max-length 128 or less",
        setting(),
        leaves=("cache",),
    ),
    Case(
        "encoder: more tokens than positions",
        ("data", "check", "d", "--encoder", "encoder", "--max-length", "9999999999"),
        r"max_length 9999999999 is more than the \d+ positions",
        setting(),
    ),
    Case(
        "encoder: home of nobody",
        ("data", "check", "d", "--encoder", "~nosuchuser/e"),
        r"is not a path|does not exist|no home folder",
        writes("d/train.jsonl", MANY),
    ),
    Case(
        "encoder: long path",
        ("data", "check", "d", "--encoder", "e" * 5000),
        r"File name too long",
        writes("d/train.jsonl", MANY),
    ),
    Case(
        "encoder: NUL in a path",
        ("data", "check", "d", "--encoder", "e\0e"),
        r"is not a path|no home folder",
        writes("d/train.jsonl", MANY),
    ),
]

CASES: list[Case] = ENCODERS
