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
    "labels unknown to train": ("test.jsonl:1", beside_train(writes("d/test.jsonl", row("new")))),
    "no rows": ("train.jsonl", jsonl("\n \n")),
    "not UTF-8": ("train.jsonl:1", jsonl(GOOD.encode("utf-16"))),
    "no such column": ("--text-column", jsonl('{"a": 1}')),
    "deep nesting": (":3", lines("[" * 20_000)),
    "a key twice": (":3", lines('{"text": "x", "label": 1, "label": 2}')),
    "no visible text": (":3", lines(row("good", "\u200b\ufeff \t"))),
    "a number for a text": (":3", lines(row("good", 7))),
    "a million characters": (":3", lines(row("good", "x" * 1_000_001))),
    "no label": (":3", lines(row(None))),
    "a fraction for a label": ("regression", lines(row(0.5))),
    "a list as text for a label": (":3", lines(row("['good', 'bad']"))),
    "a control character in a label": (":3", lines(row("a\x1b[31m"))),
    "joined labels": ("'good|bad'", lines(row("good|bad"))),
    "a label like a missing value": ("--keep-null-labels", lines(row("None"))),
    "an open quote": ("train.csv:3", csv('text,label\na,b\n"c,d\n')),
    "too many cells": ("train.csv:2", csv("text,label\na,b,c\n")),
    "NUL": ("train.csv:2", csv("text,label\na,b\0\n")),
    "one class": ("'a'", csv("text,label\nb,a\nc,a\n")),
    "a column of Parquet twice": (
        "'label'",
        parquet(["text", "label", "label"], text=["a", "b"], label=["x", "y"], c=["y", "x"]),
    ),
}

#: By command: what the line names, and what makes the case.
COMMANDS: dict[str, tuple[str, Any]] = {
    "data check pydoc": ("'pydocs'", None),
    "data check a\0b": (r"a\x00b", None),
    "data check ./d:default": (":default", jsonl(GOOD)),
    f"data check {'x' * 5000}": ("too long", None),
    "data check d --text-column text --label-column text": ("'text'", jsonl(GOOD)),
    "data check d --max-length 8": ("--encoder", jsonl(GOOD)),
    "data check d --kind regression --kind classification": ("'--kind' is given twice", None),
    "predict run a\udcff": (r"\udcff", None),
    "predict nowhere a": ("nowhere", None),
    f"predict run {'x' * 1_000_001}": ("1,000,001", Place.copy_run),
    "predict run --file no.txt": ("no.txt", Place.copy_run),
    "predict run --file f.xlsx": (".csv", beside_run(writes("f.xlsx", "text"))),
    "predict run a --output p.csv": ("p.csv", beside_run(pipe("p.csv"))),
    "evaluate run --dataset d --split x": ("'x'", beside_run(writes("d/test.jsonl", GOOD))),
    "evaluate run --dataset d": ("bad, good", beside_run(writes("d/test.jsonl", GOOD))),
    "score --encoder tiny --file f.csv": ("f.csv:3", writes("f.csv", "text,n\na,1\n,2\n")),
    "pretrain --encoder tiny --output o --corpus f.jsonl": (
        "f.jsonl:2",
        writes("f.jsonl", '{"text": "a"}\n{"text": 5}\n'),
    ),
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
