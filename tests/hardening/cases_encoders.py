"""Bad encoders."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any

from tests.hardening.case import Case, Place
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


def encoder(id: str, line: str, make: Callable[[Place], object], **more: Any) -> Case:
    return Case(f"encoder: {id}", TRAIN, line, make, leaves=("cache",), **more)


def setting(**changes: Any) -> Callable[[Place], object]:
    return spoiled("config.json", lambda config: {**config, **changes})


ENCODERS = [
    encoder("absent", r"unknown encoder 'encoder'", writes("d/train.jsonl", MANY)),
    encoder(
        "a file",
        r"encoder is a file",
        lambda place: (place.write("d/train.jsonl", MANY), place.write("encoder", "x")),
    ),
    encoder(
        "empty",
        r"holds no config.json|unknown encoder",
        lambda place: (place.write("d/train.jsonl", MANY), (place.path / "encoder").mkdir()),
    ),
    encoder("no configuration", r"holds no config.json", removed("config.json")),
    encoder("no weights", r"holds no model.safetensors", removed("model.safetensors")),
    encoder("no tokenizer", r"holds no tokenizer", removed("tokenizer*")),
    encoder("configuration cut", r"config.json is damaged", replaced("config.json", "{")),
    encoder("configuration a list", r"is not a JSON object", replaced("config.json", "[]")),
    encoder("configuration deep", r"config.json is damaged", replaced("config.json", "[" * 20_000)),
    encoder(
        "configuration not UTF-8", r"config.json is damaged", replaced("config.json", b"\xff\xfe{")
    ),
    encoder(
        "configuration large",
        r"config.json is too large",
        replaced("config.json", " " * 10_000_001),
    ),
    encoder(
        "configuration a pipe",
        r"config.json",
        lambda place: (
            removed("config.json")(place),
            os.mkfifo(place.path / "encoder/config.json"),
        ),
    ),
    encoder(
        "weights a pipe",
        r"model.safetensors cannot be read \(it is not a regular file\)",
        lambda place: (
            removed("model.safetensors")(place),
            os.mkfifo(place.path / "encoder/model.safetensors"),
        ),
    ),
    encoder("weights empty", r"cannot be loaded", replaced("model.safetensors", b"")),
    encoder("weights cut", r"cannot be loaded", replaced("model.safetensors", b"\x10" + bytes(99))),
    encoder(
        "weights with a header of exabytes",
        r"cannot be loaded",
        replaced("model.safetensors", struct.pack("<Q", 2**62) + b"{}"),
    ),
    encoder(
        "weights a pickle", r"cannot be loaded", replaced("model.safetensors", b"\x80\x04K\x01.")
    ),
    encoder(
        "index without a map", r"has no weight_map", replaced("model.safetensors.index.json", "{}")
    ),
    encoder(
        "index leads out",
        r"names \.\./x.safetensors, which is not there",
        replaced("model.safetensors.index.json", '{"weight_map": {"a": "../x.safetensors"}}'),
    ),
    encoder(
        "code of its own",
        r"comes with code of its own, which is never run",
        setting(auto_map={"AutoModel": "evil.Evil"}),
    ),
    encoder("kernel of the hub", r"code of its own", setting(attn_implementation="someone/kernel")),
    encoder(
        "tokenizer with code",
        r"code of its own",
        spoiled(
            "tokenizer_config.json",
            lambda c: {**c, "auto_map": {"AutoTokenizer": ["evil.T", None]}},
        ),
    ),
    encoder("architecture", r"architecture 'gpt2' is not supported", setting(model_type="gpt2")),
    encoder(
        "no architecture",
        r"cannot be loaded|architecture",
        spoiled(
            "config.json",
            lambda c: {k: v for k, v in c.items() if k not in ("model_type", "architectures")},
        ),
    ),
    encoder("architecture a number", r"cannot be loaded|architecture", setting(model_type=3)),
    encoder(
        "more layers than weights",
        r"lacks weights of its body: bert.encoder.layer.2",
        setting(num_hidden_layers=4),
    ),
    encoder(
        "fewer layers than weights",
        r"leaves out layers that the weight files hold",
        setting(num_hidden_layers=1),
    ),
    encoder(
        "a billion layers",
        r"num_hidden_layers is 1000000000: at most 100,000",
        setting(num_hidden_layers=10**9),
    ),
    encoder("no layers", r"num_hidden_layers is 0", setting(num_hidden_layers=0)),
    encoder(
        "layers a text", r"num_hidden_layers|cannot be loaded", setting(num_hidden_layers="two")
    ),
    encoder(
        "layers a fraction", r"num_hidden_layers|cannot be loaded", setting(num_hidden_layers=1.5)
    ),
    encoder(
        "a vast hidden size",
        r"describes an encoder of [\d,]+ weights, but the files hold",
        setting(hidden_size=2**16, num_attention_heads=2),
    ),
    encoder("a vast vocabulary", r"describes an encoder of", setting(vocab_size=10**9)),
    encoder("heads that do not divide", r"cannot be loaded", setting(num_attention_heads=5)),
    encoder("no heads", r"cannot be loaded", setting(num_attention_heads=0)),
    encoder("activation", r"cannot be loaded", setting(hidden_act="nonsense")),
    encoder("dropout", r"cannot be loaded", setting(hidden_dropout_prob=7)),
    encoder("a text for epsilon", r"cannot be loaded", setting(layer_norm_eps="small")),
    encoder("another hidden size", r"other shapes|cannot be loaded", setting(hidden_size=16)),
    encoder("another vocabulary", r"other shapes|cannot be loaded", setting(vocab_size=50)),
    encoder(
        "another intermediate size", r"other shapes|cannot be loaded", setting(intermediate_size=48)
    ),
    encoder(
        "fewer positions",
        r"other shapes|cannot be loaded|positions",
        setting(max_position_embeddings=64),
    ),
    encoder("null for positions", r"cannot be loaded", setting(max_position_embeddings=None)),
    encoder(
        "a layer gone",
        r"lacks weights of its body: bert.encoder.layer.1",
        weights(without("layer.1.")),
    ),
    encoder(
        "embeddings gone",
        r"lacks weights of its body: bert.embeddings.word",
        weights(without("word_embeddings")),
    ),
    encoder(
        "one bias gone",
        r"lacks weights of its body",
        weights(without("layer.0.attention.self.query.bias")),
    ),
    encoder("body gone", r"lacks weights of its body", weights(without("bert."))),
    encoder(
        "a narrow weight",
        r"other shapes|cannot be loaded",
        weights(narrower("layer.0.intermediate.dense.weight")),
    ),
    encoder(
        "NaN", r"hold NaN or infinity", weights(filled("layer.1.output.dense.weight", float("nan")))
    ),
    encoder("infinity", r"hold NaN or infinity", weights(filled("word_embeddings", float("inf")))),
    encoder(
        "a vocabulary without its unknown token",
        r"cannot be loaded: Exception: WordPiece error: Missing \[UNK\]",
        lambda place: (
            removed("tokenizer*")(place),
            place.write("encoder/vocab.txt", "a\nb\nc\n"),
        ),
    ),
    Case(
        "encoder: an empty vocabulary",
        ("data", "check", "d", "--encoder", "encoder"),
        r"cannot be loaded: Exception: WordPiece error: Missing \[UNK\]",
        lambda place: (removed("tokenizer*")(place), place.write("encoder/vocab.txt", "")),
    ),
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
    encoder("tokenizer cut", r"cannot be loaded", replaced("tokenizer.json", "{")),
    encoder("tokenizer a list", r"cannot be loaded", replaced("tokenizer.json", "[]")),
    encoder(
        "tokenizer settings cut",
        r"tokenizer_config.json is damaged",
        replaced("tokenizer_config.json", "{"),
    ),
    encoder(
        "more tokens than rows",
        r"its embeddings have \d+ rows",
        spoiled(
            "tokenizer.json",
            lambda t: {
                **t,
                "model": {**t["model"], "vocab": {**t["model"]["vocab"], "surplus": 9999}},
            },
        ),
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
    # ------------------------------------------------------------------------ exported models
    Case(
        "model: a weight gone",
        PREDICT,
        r"is damaged: weights and config.json differ in",
        weights(without("classifier.bias"), "run"),
    ),
    Case(
        "model: a layer gone", PREDICT, r"is damaged: weights", weights(without("layer.1."), "run")
    ),
    Case(
        "model: NaN",
        PREDICT,
        r"hold NaN or infinity",
        weights(filled("classifier.weight", float("nan")), "run"),
    ),
    Case(
        "model: narrow",
        PREDICT,
        r"damaged|cannot be loaded",
        weights(narrower("classifier.weight"), "run"),
    ),
    Case(
        "model: more labels",
        PREDICT,
        r"damaged|cannot be loaded",
        spoiled_run("config.json", lambda c: {**c, "id2label": {str(i): str(i) for i in range(9)}}),
    ),
    Case(
        "model: a gap in the labels",
        PREDICT,
        r"must number the labels 0, 1, 2",
        spoiled_run("config.json", lambda c: {**c, "id2label": {"0": "no", "2": "yes"}}),
    ),
    Case(
        "model: labels without numbers",
        PREDICT,
        r"cannot be loaded|id2label",
        spoiled_run("config.json", lambda c: {**c, "id2label": {"a": "no", "b": "yes"}}),
    ),
    Case(
        "model: no length",
        PREDICT,
        r"no model_max_length",
        spoiled_run(
            "tokenizer_config.json",
            lambda c: {k: v for k, v in c.items() if k != "model_max_length"},
        ),
    ),
    Case(
        "model: a vast length",
        PREDICT,
        r"no model_max_length",
        spoiled_run("tokenizer_config.json", lambda c: {**c, "model_max_length": 10**6}),
    ),
    Case(
        "model: a text for the length",
        PREDICT,
        r"model_max_length|cannot be loaded",
        spoiled_run("tokenizer_config.json", lambda c: {**c, "model_max_length": "long"}),
    ),
    Case(
        "model: code of its own",
        PREDICT,
        r"code of its own",
        spoiled_run("config.json", lambda c: {**c, "auto_map": {"AutoModel": "e.E"}}),
    ),
    Case(
        "model: absent",
        PREDICT,
        r"does not exist",
        lambda place: __import__("shutil").rmtree(place.copy_run() / "model"),
    ),
]

CASES: list[Case] = ENCODERS
