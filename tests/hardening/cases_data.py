"""Bad data sets, and columns and texts given to commands."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.hardening.inputs import (
    GOOD,
    Case,
    Place,
    beside_run,
    beside_train,
    cases,
    lines,
    link,
    made,
    parquet,
    pipe,
    row,
    sparse_file,
    together,
    writes,
)

csv, tsv, jsonl = (partial(writes, f"d/train.{kind}") for kind in ("csv", "tsv", "jsonl"))

DATA: dict[str, Any] = {
    "an empty folder": ("d has no train", made("d", lambda path: path.mkdir())),
    "a link out of the folder": (
        "test.jsonl",
        beside_train(link("d/test.jsonl", "../secret"), writes("secret", GOOD)),
    ),
    "a file of 5 GB": ("train.jsonl", sparse_file("d/train.jsonl", 5 * 1024**3)),
    "a pipe for a split": ("train.jsonl", pipe("d/train.jsonl")),
    "two dev files": (
        "'dev'",
        together(*(writes(f"d/{name}.jsonl", GOOD) for name in ("train", "dev", "Dev"))),
    ),
    "not UTF-8": ("train.jsonl:1", jsonl(GOOD.encode("utf-16"))),
    "deep nesting": (":3", lines("[" * 20_000)),
    "a key twice": (":3", lines('{"text": "x", "label": 1, "label": 2}')),
    "a control character in a label": (":3", lines(row("a\x1b[31m"))),
    "an open quote": ("train.csv:3", csv('text,label\na,b\n"c,d\n')),
    "too many cells": ("train.csv:2", csv("text,label\na,b,c\n")),
    "NUL": ("train.csv:2", csv("text,label\na,b\0\n")),
    "a column of Parquet twice": (
        "'label'",
        parquet(["text", "label", "label"], text=["a", "b"], label=["x", "y"], c=["y", "x"]),
    ),
}

#: By command: what the line names, and what makes the case.
COMMANDS: dict[str, tuple[str, Any]] = {
    "data check a\0b": (r"a\x00b", None),
    "data check ./d:default": (":default", jsonl(GOOD)),
    f"data check {'x' * 5000}": ("too long", None),
    "data check d --text-column text --label-column text": ("'text'", jsonl(GOOD)),
    "data check d --max-length 8": ("--encoder", jsonl(GOOD)),
    "predict run a\udcff": (r"\udcff", None),
    f"predict run {'x' * 1_000_001}": ("1,000,001", Place.copy_run),
    "predict run --file f.xlsx": (".csv", beside_run(writes("f.xlsx", "text"))),
    "predict run a --output p.csv": ("p.csv", beside_run(pipe("p.csv"))),
    "score --encoder tiny --file f.csv": ("f.csv:3", writes("f.csv", "text,n\na,1\n,2\n")),
}

#: What the line names, and what ``predict`` is given as standard input.
TYPED: dict[str, tuple[str, str | bytes]] = {
    "not UTF-8": ("standard input:2", b"ok\ncaf\xe9\n"),
    "JSON, then none": ("standard input:2", '{"text": "a"}\nb\n'),
}

CASES: list[Case] = [
    *cases("data", "data check d", DATA),
    *(Case(command[:60], command, names, make) for command, (names, make) in COMMANDS.items()),
    *(
        Case(f"typed: {name}", "predict run", names, Place.copy_run, typed=content)
        for name, (names, content) in TYPED.items()
    ),
]
