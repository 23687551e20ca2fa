"""Bad data sets, and columns and texts given to commands."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.hardening.inputs import (
    GOOD,
    MANY,
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
    "a link to nowhere": ("train.jsonl", link("d/train.jsonl", "nowhere")),
    "a file of 5 GB": ("train.jsonl", sparse_file("d/train.jsonl", 5 * 1024**3)),
    "a pipe for a split": ("train.jsonl", pipe("d/train.jsonl")),
    "a packed file": ("test.jsonl.gz", beside_train(writes("d/test.jsonl.gz", b""))),
    "two dev files": (
        "'dev'",
        together(*(writes(f"d/{name}.jsonl", GOOD) for name in ("train", "dev", "Dev"))),
    ),
    "a line break in a name": (r"a\nb", beside_train(writes("d/a\nb.jsonl", GOOD))),
    "labels unknown to train": ("test.jsonl:1", beside_train(writes("d/test.jsonl", row("new")))),
    "a meta file of one row": (
        "train_meta.tsv",
        beside_train(writes("d/train_meta.tsv", "kind\na\n")),
    ),
    "no rows": ("train.jsonl", jsonl("\n \n")),
    "not UTF-8": ("train.jsonl:1", jsonl(GOOD.encode("utf-16"))),
    "no such column": ("--text-column", jsonl('{"a": 1}')),
    "half a line": ("train.jsonl:3", lines('{"text": "x')),
    "a list for a row": (":3", lines("[1]")),
    "deep nesting": (":3", lines("[" * 20_000)),
    "5,000 digits": (":3", lines(f'{{"n": {"9" * 5000}}}')),
    "a key twice": (":3", lines('{"text": "x", "label": 1, "label": 2}')),
    "half a surrogate": (":3", lines(row("x", "\ud83d"))),
    "no visible text": (":3", lines(row("good", "\u200b\ufeff \t"))),
    "a number for a text": (":3", lines(row("good", 7))),
    "one second text": ("'text_pair'", lines(row("good", text_pair="y"))),
    "a million characters": (":3", lines(row("good", "x" * 1_000_001))),
    "3,000 columns": ("columns", lines(row("good", **{f"c{i}": i for i in range(3000)}))),
    "no label": (":3", lines(row(None))),
    "a fraction for a label": ("regression", lines(row(0.5))),
    "a list as text for a label": (":3", lines(row("['good', 'bad']"))),
    "an object for a label": (":3", lines(row({"a": 1}))),
    "a control character in a label": (":3", lines(row("a\x1b[31m"))),
    "joined labels": ("'good|bad'", lines(row("good|bad"))),
    "a label like a missing value": ("--keep-null-labels", lines(row("None"))),
    "an open quote": ("train.csv:3", csv('text,label\na,b\n"c,d\n')),
    "too many cells": ("train.csv:2", csv("text,label\na,b,c\n")),
    "a tab in a cell": ("train.tsv:2", tsv("text\tlabel\na\tb\tc\n")),
    "a column of CSV twice": ("'text'", csv("text,text\na,b\n")),
    "Latin-1": ("train.csv:2", csv(b"text,label\ncaf\xe9,a\n")),
    "NUL": ("train.csv:2", csv("text,label\na,b\0\n")),
    "one class": ("'a'", csv("text,label\nb,a\nc,a\n")),
    "a cut Parquet file": ("train.parquet", writes("d/train.parquet", b"PAR1" + bytes(90))),
    "no text in Parquet": ("row 2", parquet(text=["a", None], label=["x", "y"])),
    "a column of Parquet twice": (
        "'label'",
        parquet(["text", "label", "label"], text=["a", "b"], label=["x", "y"], c=["y", "x"]),
    ),
}

#: By command: what the line names, and what makes the case.
COMMANDS: dict[str, tuple[str, Any]] = {
    "data check pydoc": ("'pydocs'", None),
    "data check ''": ("path", None),
    "data check a\0b": (r"a\x00b", None),
    "data check ~nosuchuser/d": ("~nosuchuser", None),
    f"data check {'x' * 5000}": ("too long", None),
    "data check d --text-column text --label-column text": ("'text'", jsonl(GOOD)),
    "data check d --encoder ''": ("path", jsonl(MANY)),
    "predict run ' '": ("text", None),
    "predict run a\udcff": (r"\udcff", None),
    "predict run a --file x": ("command line", None),
    "predict nowhere a": ("nowhere", None),
    f"predict run {'x' * 1_000_001}": ("1,000,001", Place.copy_run),
    "predict run --file no.txt": ("no.txt", Place.copy_run),
    "predict run --file f": ("f", beside_run(pipe("f"))),
    "predict run --file f.csv": ("'text'", beside_run(writes("f.csv", "a\nb\n"))),
    "predict run --file f.xlsx": (".csv", beside_run(writes("f.xlsx", "text"))),
    "predict run a --output p.csv": ("p.csv", beside_run(pipe("p.csv"))),
    "evaluate run --dataset ./no": ("no", Place.copy_run),
    "evaluate run --dataset d --split x": ("'x'", beside_run(writes("d/test.jsonl", GOOD))),
    "evaluate run --dataset d": ("bad, good", beside_run(writes("d/test.jsonl", GOOD))),
    "score --encoder tiny --file f.csv": ("f.csv:3", writes("f.csv", "text,n\na,1\n,2\n")),
    "score --encoder tiny \u6f22\u5b57": ("word", None),
    "pretrain --encoder tiny --output o --corpus f": ("f", writes("f", "\u200b\n \n")),
    "pretrain --encoder tiny --output o --corpus f.jsonl": (
        "f.jsonl:2",
        writes("f.jsonl", '{"text": "a"}\n{"text": 5}\n'),
    ),
}

#: What the line names, and what ``predict`` is given as standard input.
TYPED: dict[str, tuple[str, str | bytes]] = {
    "nothing": ("standard input", ""),
    "not UTF-8": ("standard input:2", b"ok\ncaf\xe9\n"),
    "JSON, then none": ("standard input:2", '{"text": "a"}\nb\n'),
    "half a surrogate": ("standard input:1", '{"text": "\\ud83d"}\n'),
}

CASES: list[Case] = [
    *cases("data", "data check d", DATA),
    *(Case(command[:60], command, names, make) for command, (names, make) in COMMANDS.items()),
    *(
        Case(f"typed: {name}", "predict run", names, Place.copy_run, typed=content)
        for name, (names, content) in TYPED.items()
    ),
]
