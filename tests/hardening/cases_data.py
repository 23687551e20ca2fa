"""Bad data sets."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.hardening.inputs import (
    CHECK,
    GOOD,
    Case,
    Place,
    beside_good_train as beside,
    cases,
    csv_of,
    folder,
    link,
    on_lines,
    parquet,
    pipe,
    row,
    sparse_file,
    writes,
)

SIZE = 5 * 1024**3
HINT = r"train has 'bad', 'good' .--labels gives a label its class, --unknown-labels count"


def two_dev_files(place: Place) -> None:
    for name in ("train", "dev", "Dev"):
        place.write(f"d/{name}.jsonl", GOOD)


def pairs_in_train_only(place: Place) -> None:
    place.write("d/train.jsonl", GOOD.replace('"label"', '"text_pair": "p", "label"'))
    place.write("d/test.jsonl", GOOD)


def many_files(place: Place) -> None:
    for number in range(100):
        place.write(f"d/f{number}", "x")


FOLDERS: dict[str, Any] = {
    "an empty folder": (r"d has no train file .*it is empty", folder("d")),
    "a folder for a split": (r"no train file|is not a regular file", folder("d/train.jsonl")),
    "no train": (r"its splits are test", writes("d/test.jsonl", GOOD)),
    "hidden files only": (r"no train file", writes("d/._train.jsonl", GOOD)),
    "a test file of another format": (
        r"d/test.jsonl.gz: a packed file cannot be read: unpack it",
        beside(writes("d/test.jsonl.gz", b"")),
    ),
    "two dev files": (r"for the split 'dev', .*: remove one", two_dev_files),
    "many other files": (r"it holds f0, f1, f10, .* and 92 more", many_files),
    "a link out of the folder": (
        r"test.jsonl is a link out of the fold",
        beside(link("d/test.jsonl", "../secret.jsonl"), writes("secret.jsonl", GOOD)),
    ),
    "a link to nowhere": (r"is a link that leads nowhere", link("d/train.jsonl", "nowhere")),
    "a link to itself": (r"is a link that leads nowhere", link("d/train.jsonl", "train.jsonl")),
    "a long file name": (r"too long for a name", beside(writes(f"d/{'z' * 200}.jsonl", GOOD))),
    "a line break in a name": (r"'a\\nb' is not a plain", beside(writes("d/a\nb.jsonl", GOOD))),
    "a file of 5 GB": (r"is too large: 5,368,709,120 bytes", sparse_file("d/train.jsonl", SIZE)),
    "a pipe for a split": (r"is not a regular file", pipe("d/train.jsonl")),
    "a file for a folder": (
        r"d is a file of none of the formats.*name a table",
        writes("d", GOOD),
    ),
    "pairs in train only": (r"has no second texts", pairs_in_train_only),
    "a meta file of one row": (
        r"train_meta.tsv has 1 rows but",
        beside(writes("d/train_meta.tsv", "kind\na\n")),
    ),
    "a meta file in another order": (
        r"its column 'line' does not count",
        beside(writes("d/train_meta.tsv", "line\tkind\n2\ta\n1\tb\n")),
    ),
    "a pipe for a meta file": (r"is not a regular file", beside(pipe("d/train_meta.tsv"))),
    "labels unknown to train": (
        rf"test.jsonl:1: test has labels that train lacks: 'x0', .* and 92 more; {HINT}",
        beside(writes("d/test.jsonl", "".join(row(f"x{i}") + "\n" for i in range(100)))),
    ),
}
FILES: dict[str, Any] = {
    "empty": (r"train.jsonl has no rows", ""),
    "blank lines": (r"has no rows", "\n\n \n"),
    "Latin-1": (r":1: not UTF-8", GOOD.encode("utf-16")),
    "no such columns": (r"no text column 'text': .* are a .*--text-column", '{"a": 1}'),
    "no label column": (
        r"no label column 'label'.*did you mean 'labels'.*--label-column",
        '{"text": "x", "labels": 1}',
    ),
    "many columns, none the text": (
        r"its columns are c0, c1, .* and 492 more",
        json.dumps({f"c{i}": i for i in range(500)}),
    ),
}
LINES: dict[str, Any] = {
    "half a line": (r"train.jsonl:3: bad JSON", '{"text": "x'),
    "a list": (r":3: a JSON object is needed", "[1]"),
    "a number": (r"but this is 1$", "1"),
    "null": (r"but this is None$", "null"),
    "deep nesting": (r":3: bad JSON", "[" * 20_000),
    "deep objects": (r":3: bad JSON", '{"a":' * 20_000),
    "5,000 digits": (r":3: bad JSON \(Exceeds", f'{{"n": {"9" * 5000}}}'),
    "a key twice": (r":3: bad JSON .the key 'label'", '{"text": "x", "label": 1, "label": 2}'),
    "a key twice inside": (r":3: bad JSON .the key 'a' occurs twice", '{"more": {"a": 1, "a": 2}}'),
    "half a surrogate": (r":3: half of a surrogate", row("x", "\ud83d")),
    "half a surrogate in a key": (r":3: half of a surrogate", '{"text": "x", "\\udc00": 1}'),
    "no text": (r":3: empty text in column 'text'", '{"label": "good"}'),
    "empty text": (r":3: empty text", row("good", "")),
    "white space": (r":3: empty text", row("good", " \t\n ")),
    "zero-width space": (r":3: empty text", row("good", "\u200b")),
    "marks alone": (r":3: empty text", row("good", "\u200e\ufeff\u2060")),
    "a number for text": (r":3: .* must hold text", row("good", 7)),
    "a list for text": (r":3: .* must hold text", row("good", ["a"] * 999)),
    "one second text": (r":1: empty text in column 'text_pair'", row("good", text_pair="y")),
    "a million characters": (r":3: a text of 1,000,001 characters", row("good", "x" * 1_000_001)),
    "3,000 columns": (r"3,00\d columns", row("good", **{f"c{i}": i for i in range(3000)})),
}
LABELS: dict[str, Any] = {
    "null": (r":3: missing label", row(None)),
    "empty": (r":3: missing label", row("")),
    "nothing visible": (r":3: missing label", row("\u200b\u2060")),
    "absent": (r":3: missing label", '{"text": "x"}'),
    "NaN": (r":3: missing label", '{"text": "x", "label": NaN}'),
    "infinite": (r":3: a label is text.*holds inf", '{"text": "x", "label": 1e999}'),
    "a fraction": (r":3: .*regression", row(0.5)),
    "a fraction as text": (r":3: .*regression", row("0.5")),
    "a list": (r":3: .*one label; several", row(["good", "bad"])),
    "an object": (r":3: .*one label; several", row({"a": 1})),
    "a list as text": (r":3: .*several are one list", row("['good', 'bad']")),
    "a set as text": (r":3: .*several are one list", row("{good,bad}")),
    "long": (r":3: a label of 300 characters", row("x" * 300)),
    "control character": (r":3: .*control character", row("a\x1b[31m")),
    "line break": (r":3: .*control character", row("a\nb")),
    **{
        f"joined by {mark}": (rf":3: the label 'good[{mark}]bad'.*joins", row(f"good{mark}bad"))
        for mark in "|;,"
    },
}
CSV: dict[str, Any] = {
    "empty": (r"train.csv has no rows", ""),
    "header alone": (r"has no rows", "text,label\n"),
    "open quote": (r"csv:3: bad CSV", 'text,label\na,b\n"c,d\n'),
    "too many cells": (r"csv:2: 3 cells, .* 2 columns: fix the row", "text,label\na,b,c\n"),
    "too few cells": (r"csv:2: 1 cells", "text,label\na\n"),
    "a column twice": (r"two columns are called 'text': rename one", "text,text\na,b\n"),
    "Latin-1": (r"csv:2: not UTF-8: save the file as UTF-8", b"text,label\ncaf\xe9,a\n"),
    "NUL": (r"csv:2: a null character", "text,label\na,b\0\n"),
    "a cell of 2 MB": (r"csv:2: a text of 2,000,000 ch", f"text,label\n{'x' * 2_000_000},a\n"),
    "3,000 columns": (r"3,000 columns", ",".join(f"c{i}" for i in range(3000))),
    "a semicolon for a comma": (r"no text column", "text;label\na;b\n"),
    "no label": (r"csv:3: missing label", csv_of("a", "")),
    "fractions": (r"csv:2: the label 0\.25 .*like a number.*--kind", csv_of("0.25", "3", "a")),
    "exponents": (r"regression", csv_of("1e-3", "a")),
    "many whole numbers": (
        r"60 different numbers in 60 rows.*regression",
        csv_of(*(str(17 * i) for i in range(60))),
    ),
    "one class": (r"a single class, 'a': a classifier needs two", csv_of("a", "a")),
}
PARQUET: dict[str, Any] = {
    "text": (r"cannot be read as a Parquet", writes("d/train.parquet", "x" * 99)),
    "empty": (r"cannot be read as a Parquet", writes("d/train.parquet", "")),
    "cut": (r"cannot be read as a Parquet", writes("d/train.parquet", b"PAR1" + bytes(90))),
    "no text": (r"row 2: empty text", parquet(text=["a", None], label=["x", "y"])),
    "null label": (r"row 2: missing label", parquet(text=["a", "b"], label=["x", None])),
    "fractions": (r"row 1: .*regression", parquet(text=["a", "b"], label=["0.5", "x"])),
    "lists": (r"row 1: .*the label 'x' twice", parquet(text=["a"], label=[["x", "x"]])),
    "a column twice": (
        r"two columns are called 'label'",
        parquet(["text", "label", "label"], text=["a", "b"], label=["x", "y"], c=["y", "x"]),
    ),
}
#: By name: what follows ``data check``, and the error line.
NAMED: dict[str, tuple[str, str]] = {
    "no such folder": ("./nowhere", r"no folder './nowhere'"),
    "no such name": ("pydoc", r"did you mean 'pydocs'\?"),
    "no name": ("", r"a path is needed, not an empty text"),
    "name of 5,000 characters": ("x" * 5000, r"(File name too long)"),
    "path of 5,000 characters": ("./" + "y/" * 2500, r"\(File name too long\)|no folder"),
    "home of nobody": ("~nosuchuser/d", r"is not a path|no home folder"),
    "NUL in a path": ("a\0b", r"a\\x00b is not a path"),
    "control characters": ("a\x1b[31mb", r"unknown data set 'a\\x1b"),
}
MARKS = {"jsonl": "", "csv": ",", "tsv": "\t"}

CASES: list[Case] = [
    *cases("data", CHECK, FOLDERS),
    *cases("jsonl", CHECK, FILES, partial(writes, "d/train.jsonl")),
    *cases("jsonl", CHECK, LINES, on_lines),
    *cases("label", CHECK, LABELS, on_lines),
    *cases("csv", CHECK, CSV, partial(writes, "d/train.csv")),
    *cases("parquet", CHECK, PARQUET),
    *(Case(f"data: {name}", ["data", "check", path], line) for name, (path, line) in NAMED.items()),
    *(
        Case(
            f"label: {name} in {kind}",
            CHECK,
            rf"train\.{kind}:3: the label '{name}' .* --keep-null-labels",
            writes(
                f"d/train.{kind}",
                csv_of("good", name, "bad").replace(",", mark) if mark else GOOD + row(name),
            ),
        )
        for name in ("nan", "None", "NULL", "N/A", "<NA>", "NaT")
        for kind, mark in MARKS.items()
    ),
    *(
        Case(
            f"{kind}: null characters",
            CHECK,
            rf"{kind}:1: a null character \(\\x00\)",
            writes(f"d/train.{kind}", "\0" * 99),
        )
        for kind in MARKS
    ),
    *cases(
        "jsonl",
        (*CHECK, "--text-column", "q" * 3000),
        {"a long column name": (r"no text column 'qqq", on_lines(row("good")))},
    ),
    Case(
        "jsonl: no column of second texts",
        (*CHECK, "--text-pair-column", "second"),
        r"no text pair column 'second': its columns are text, label .*--text-pair-column",
        on_lines(row("good")),
    ),
    Case(
        "tsv: a tab in a cell",
        CHECK,
        r"tsv:2: 3 cells.*cannot contain tabs",
        writes("d/train.tsv", "text\tlabel\na\tb\tc\n"),
    ),
]
