"""Bad data sets."""

from __future__ import annotations

import json
from functools import partial

from tests.hardening.case import Case, cases
from tests.hardening.inputs import (
    CHECK,
    GOOD,
    beside_good_train,
    csv_of,
    folder,
    link_to_itself,
    link_to_nowhere,
    linked,
    on_lines,
    parquet,
    parquet_of_equal_names,
    pipe,
    row,
    sparse_file,
    writes,
)

DATA = [
    *cases(
        "data",
        CHECK,
        {
            "an empty folder": (r"d has no train file .*it is empty", folder("d")),
            "a folder for a split": (r"is not a regular file", folder("d/train.jsonl")),
            "no train": (r"its splits are test", writes("d/test.jsonl", GOOD)),
            "hidden files only": (r"no train file", writes("d/._train.jsonl", GOOD)),
            "two dev files": (
                r"two files for the split 'dev'",
                beside_good_train(
                    lambda place: [place.write(f"d/{n}.jsonl", GOOD) for n in ("dev", "validation")]
                ),
            ),
            "many other files": (
                r"it holds f0, f1, f10, .* and 92 more",
                lambda place: [place.write(f"d/f{number}", "x") for number in range(100)],
            ),
            "a link out of the folder": (r"test.jsonl is a link out of the fold", linked),
            "a link to nowhere": (r"is a link that leads nowhere", link_to_nowhere),
            "a link to itself": (r"is a link that leads nowhere", link_to_itself),
            "a long file name": (
                r"too long for a name",
                beside_good_train(writes("d/" + "z" * 200 + ".jsonl", GOOD)),
            ),
            "a line break in a file name": (
                r"'a\\nb' is not a plain name",
                beside_good_train(writes("d/a\nb.jsonl", GOOD)),
            ),
            "a file of 5 GB": (
                r"is too large: 5,368,709,120 bytes",
                sparse_file("d/train.jsonl", 5 * 1024**3),
            ),
            "a pipe for a split": (r"is not a regular file", pipe("d/train.jsonl")),
        },
    ),
    *cases(
        "jsonl",
        CHECK,
        {
            "empty": (r"train.jsonl has no rows", ""),
            "blank lines": (r"has no rows", "\n\n \n"),
            "Latin-1": (r":1: not UTF-8", GOOD.encode("utf-16")),
            "no such columns": (r"no text column 'text'", '{"a": 1}'),
            "many columns, none the text": (
                r"its columns are c0, c1, .* and 492 more",
                json.dumps({f"c{i}": i for i in range(500)}),
            ),
        },
        partial(writes, "d/train.jsonl"),
    ),
    *cases(
        "jsonl",
        CHECK,
        {
            "half a line": (r"train.jsonl:3: bad JSON", '{"text": "x'),
            "a list": (r":3: a JSON object is needed", "[1]"),
            "a number": (r"but this is a number", "1"),
            "null": (r"but this is null", "null"),
            "deep nesting": (r":3: bad JSON", "[" * 20_000),
            "deep objects": (r":3: bad JSON", '{"a":' * 20_000),
            "5,000 digits": (r":3: bad JSON \(Exceeds", f'{{"n": {"9" * 5000}}}'),
            "a key twice": (
                r":3: bad JSON \(the key 'label' occurs twice\)",
                '{"text": "x", "label": "good", "label": "bad"}',
            ),
            "a key twice inside": (
                r":3: bad JSON \(the key 'a' occurs twice\)",
                '{"text": "x", "label": "good", "more": {"a": 1, "a": 2}}',
            ),
            "half a surrogate": (r":3: half of a surrogate", row("x", "\ud83d")),
            "half a surrogate in a key": (
                r":3: half of a surrogate",
                '{"text": "x", "label": "good", "\\udc00": 1}',
            ),
            "no text": (r":3: empty text in column 'text'", '{"label": "good"}'),
            "empty text": (r":3: empty text", row("good", "")),
            "white space": (r":3: empty text", row("good", " \t\n ")),
            "zero-width space": (r":3: empty text", row("good", "\u200b")),
            "marks alone": (r":3: empty text", row("good", "\u200e\ufeff\u2060")),
            "a number for text": (r":3: .* must hold text", row("good", 7)),
            "a list for text": (r":3: .* must hold text", row("good", ["a"] * 999)),
            "a text of a million characters": (
                r":3: a text of 1,000,001 characters",
                row("good", "x" * 1_000_001),
            ),
            "3,000 columns": (
                r"3,00\d columns",
                json.dumps({"text": "x", "label": "good", **{f"c{i}": i for i in range(3000)}}),
            ),
        },
        on_lines,
    ),
    *cases(
        "label",
        CHECK,
        {
            "null": (r":3: missing label", row(None)),
            "empty": (r":3: missing label", row("")),
            "nothing visible": (r":3: missing label", row("\u200b\u2060")),
            "absent": (r":3: missing label", '{"text": "x"}'),
            "NaN": (r":3: missing label", '{"text": "x", "label": NaN}'),
            "infinite": (r":3: missing label", '{"text": "x", "label": 1e999}'),
            "a fraction": (r":3: .*regression", row(0.5)),
            "a fraction as text": (r":3: .*regression", row("0.5")),
            "a list": (r":3: .*one label; several", row(["good", "bad"])),
            "an object": (r":3: .*one label; several", row({"a": 1})),
            "a list as text": (r":3: .*several at once", row("['good', 'bad']")),
            "a set as text": (r":3: .*several at once", row("{good,bad}")),
            "long": (r":3: a label of 300 characters", row("x" * 300)),
            "control character": (r":3: .*control character", row("a\x1b[31m")),
            "line break": (r":3: .*control character", row("a\nb")),
        },
        on_lines,
    ),
    *cases(
        "label",
        CHECK,
        {
            "empty in csv": (r"csv:3: missing label", csv_of("a", "")),
            "fractions in csv": (
                r"csv:2: the label 0\.25 in column 'label' looks like a number to predict \(--kind",
                csv_of("0.25", "3.5", "a"),
            ),
            "exponents": (r"regression", csv_of("1e-3", "a")),
            "many whole numbers": (
                r"60 different numbers in 60 rows.*regression",
                csv_of(*(str(17 * i) for i in range(60))),
            ),
            "one class": (r"a single class, 'a'", csv_of("a", "a")),
        },
        partial(writes, "d/train.csv"),
    ),
    *cases(
        "label",
        CHECK,
        {
            "unknown to train": (
                r"test.jsonl:1: test has labels that train lacks: 'x0', .* and 92 more",
                beside_good_train(
                    writes("d/test.jsonl", "".join(row(f"x{i}") + "\n" for i in range(100)))
                ),
            ),
            "no column": (
                r"no label column 'label'.*did you mean 'labels'",
                writes("d/train.jsonl", '{"text": "x", "labels": 1}'),
            ),
        },
    ),
    *cases(
        "csv",
        CHECK,
        {
            "empty": (r"train.csv has no rows", ""),
            "header alone": (r"has no rows", "text,label\n"),
            "open quote": (r"csv:3: bad CSV", 'text,label\na,b\n"c,d\n'),
            "too many cells": (r"csv:2: 3 cells", "text,label\na,b,c\n"),
            "too few cells": (r"csv:2: 1 cells", "text,label\na\n"),
            "a column twice": (r"two columns are called 'text'", "text,text\na,b\n"),
            "Latin-1": (r"csv:2: not UTF-8", b"text,label\ncaf\xe9,a\n"),
            "NUL": (r"csv:2: a null character", "text,label\na,b\0\n"),
            "a cell of 2 MB": (
                r"csv:2: a text of 2,000,000 characters",
                "text,label\n" + "x" * 2_000_000 + ",a\n",
            ),
            "3,000 columns": (r"3,000 columns", ",".join(f"c{i}" for i in range(3000))),
            "a semicolon for a comma": (r"no text column", "text;label\na;b\n"),
        },
        partial(writes, "d/train.csv"),
    ),
    *cases(
        "meta",
        CHECK,
        {
            "rows missing": (
                r"train_meta.tsv has 1 rows but",
                beside_good_train(writes("d/train_meta.tsv", "kind\na\n")),
            ),
            "a pipe": (r"is not a regular file", beside_good_train(pipe("d/train_meta.tsv"))),
        },
    ),
    *cases(
        "parquet",
        CHECK,
        {
            "text": (r"cannot be read as a Parquet", "x" * 99),
            "empty": (r"cannot be read as a Parquet", ""),
            "cut": (r"cannot be read as a Parquet", b"PAR1" + bytes(90)),
        },
        partial(writes, "d/train.parquet"),
    ),
    *cases(
        "parquet",
        CHECK,
        {
            "no text": (r"row 2: empty text", parquet(text=["a", None], label=["x", "y"])),
            "null label": (r"row 2: missing label", parquet(text=["a", "b"], label=["x", None])),
            "fractions": (r"row 1: .*regression", parquet(text=["a", "b"], label=["0.5", "x"])),
            "lists": (
                r"row 1: .*names the label 'x' twice",
                parquet(text=["a"], label=[["x", "x"]]),
            ),
            "a column twice": (r"two columns are called 'label'", parquet_of_equal_names),
        },
    ),
    *(
        Case(
            f"label: {name} in {kind}",
            CHECK,
            rf"train\.{kind}:3: the label '{name}' .* --keep-null-labels",
            writes(
                f"d/train.{kind}",
                GOOD + row(name)
                if kind == "jsonl"
                else csv_of("good", name, "bad").replace(",", "," if kind == "csv" else "\t"),
            ),
        )
        for name in ("nan", "NaN", "None", "null", "NULL", "NA", "N/A", "<NA>", "NaT")
        for kind in ("jsonl", "csv", "tsv")
    ),
    *(
        Case(
            f"label: joined by {mark}",
            CHECK,
            rf":3: the label 'good{mark}bad'.*joins other labels".replace("|", r"\|"),
            on_lines(row(f"good{mark}bad")),
        )
        for mark in "|;,"
    ),
    *(
        Case(
            f"{suffix}: null characters",
            CHECK,
            rf"{suffix}:1: a null character \(\\x00\)",
            writes(f"d/train.{suffix}", "\0" * 99),
        )
        for suffix in ("csv", "tsv", "jsonl")
    ),
    Case("data: no such folder", ["data", "check", "./nowhere"], r"no folder './nowhere'"),
    Case("data: no such name", ["data", "check", "pydoc"], r"did you mean 'pydocs'\?"),
    Case("data: no name", ["data", "check", ""], r"a path is needed, not an empty text"),
    Case("data: a file for a folder", ["data", "check", "d"], r"d is a file", writes("d", GOOD)),
    Case("data: name of 5,000 characters", ["data", "check", "x" * 5000], r"(File name too long)"),
    Case(
        "data: path of 5,000 characters",
        ["data", "check", "./" + "y/" * 2500],
        r"cannot be opened \(File name too long\)|no folder",
    ),
    Case(
        "data: home of nobody", ["data", "check", "~nosuchuser/d"], r"is not a path|no home folder"
    ),
    Case("data: NUL in a path", ["data", "check", "a\0b"], r"a\\x00b is not a path"),
    Case("data: control characters", ["data", "check", "a\x1b[31mb"], r"unknown data set 'a\\x1b"),
    Case(
        "jsonl: a long column name",
        ["data", "check", "d", "--text-column", "q" * 3000],
        r"no text column 'qqq",
        on_lines(row("good")),
    ),
    Case(
        "pairs: in train only",
        CHECK,
        r"has no second texts",
        lambda place: [
            place.write("d/train.jsonl", GOOD.replace('"label"', '"text_pair": "p", "label"')),
            place.write("d/test.jsonl", GOOD),
        ],
    ),
    Case(
        "tsv: a tab in a cell",
        CHECK,
        r"tsv:2: 3 cells.*cannot contain tabs",
        writes("d/train.tsv", "text\tlabel\na\tb\tc\n"),
    ),
]

CASES: list[Case] = DATA
