"""Bad data sets."""

from __future__ import annotations

import json

from tests.hardening.case import Case
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
    # ------------------------------------------------------------------------------ folders
    Case("data: no such folder", ["data", "check", "./nowhere"], r"no folder './nowhere'"),
    Case("data: no such name", ["data", "check", "pydoc"], r"did you mean 'pydocs'\?"),
    Case("data: no name", ["data", "check", ""], r"a path is needed, not an empty text"),
    Case("data: an empty folder", CHECK, r"d has no train file .*it is empty", folder("d")),
    Case("data: a file for a folder", ["data", "check", "d"], r"d is a file", writes("d", GOOD)),
    Case("data: no train", CHECK, r"its splits are test", writes("d/test.jsonl", GOOD)),
    Case("data: hidden files only", CHECK, r"no train file", writes("d/._train.jsonl", GOOD)),
    Case(
        "data: two dev files",
        CHECK,
        r"two files for the split 'dev'",
        beside_good_train(
            lambda place: [place.write(f"d/{n}.jsonl", GOOD) for n in ("dev", "validation")]
        ),
    ),
    Case(
        "data: many other files",
        CHECK,
        r"it holds f0, f1, f10, .* and 92 more",
        lambda place: [place.write(f"d/f{number}", "x") for number in range(100)],
    ),
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
    Case("data: a pipe for a split", CHECK, r"is not a regular file", pipe("d/train.jsonl")),
    Case("data: a folder for a split", CHECK, r"is not a regular file", folder("d/train.jsonl")),
    Case("data: a link out of the folder", CHECK, r"test.jsonl is a link out of the fold", linked),
    Case("data: a link to nowhere", CHECK, r"is a link that leads nowhere", link_to_nowhere),
    Case("data: a link to itself", CHECK, r"is a link that leads nowhere", link_to_itself),
    Case(
        "data: a long file name",
        CHECK,
        r"too long for a name",
        beside_good_train(writes("d/" + "z" * 200 + ".jsonl", GOOD)),
    ),
    Case(
        "data: a line break in a file name",
        CHECK,
        r"'a\\nb' is not a plain name",
        beside_good_train(writes("d/a\nb.jsonl", GOOD)),
    ),
    Case(
        "data: a file of 5 GB",
        CHECK,
        r"is too large: 5,368,709,120 bytes",
        sparse_file("d/train.jsonl", 5 * 1024**3),
    ),
    # --------------------------------------------------------------------------- JSON lines
    Case("jsonl: empty", CHECK, r"train.jsonl has no rows", writes("d/train.jsonl", "")),
    Case("jsonl: blank lines", CHECK, r"has no rows", writes("d/train.jsonl", "\n\n \n")),
    Case("jsonl: half a line", CHECK, r"train.jsonl:3: bad JSON", on_lines('{"text": "x')),
    Case("jsonl: a list", CHECK, r":3: a JSON object is needed", on_lines("[1]")),
    Case("jsonl: a number", CHECK, r"but this is a number", on_lines("1")),
    Case("jsonl: null", CHECK, r"but this is null", on_lines("null")),
    Case("jsonl: deep nesting", CHECK, r":3: bad JSON", on_lines("[" * 20_000)),
    Case("jsonl: deep objects", CHECK, r":3: bad JSON", on_lines('{"a":' * 20_000)),
    Case(
        "jsonl: 5,000 digits", CHECK, r":3: bad JSON \(Exceeds", on_lines(f'{{"n": {"9" * 5000}}}')
    ),
    Case(
        "jsonl: a key twice",
        CHECK,
        r":3: bad JSON \(the key 'label' occurs twice\)",
        on_lines('{"text": "x", "label": "good", "label": "bad"}'),
    ),
    Case(
        "jsonl: a key twice inside",
        CHECK,
        r":3: bad JSON \(the key 'a' occurs twice\)",
        on_lines('{"text": "x", "label": "good", "more": {"a": 1, "a": 2}}'),
    ),
    Case(
        "jsonl: half a surrogate", CHECK, r":3: half of a surrogate", on_lines(row("x", "\ud83d"))
    ),
    Case(
        "jsonl: half a surrogate in a key",
        CHECK,
        r":3: half of a surrogate",
        on_lines('{"text": "x", "label": "good", "\\udc00": 1}'),
    ),
    Case("jsonl: Latin-1", CHECK, r":1: not UTF-8", writes("d/train.jsonl", GOOD.encode("utf-16"))),
    Case(
        "jsonl: no text", CHECK, r":3: empty text in column 'text'", on_lines('{"label": "good"}')
    ),
    Case("jsonl: empty text", CHECK, r":3: empty text", on_lines(row("good", ""))),
    Case("jsonl: white space", CHECK, r":3: empty text", on_lines(row("good", " \t\n "))),
    Case("jsonl: zero-width space", CHECK, r":3: empty text", on_lines(row("good", "\u200b"))),
    Case(
        "jsonl: marks alone", CHECK, r":3: empty text", on_lines(row("good", "\u200e\ufeff\u2060"))
    ),
    Case("jsonl: a number for text", CHECK, r":3: .* must hold text", on_lines(row("good", 7))),
    Case(
        "jsonl: a list for text",
        CHECK,
        r":3: .* must hold text",
        on_lines(row("good", ["a"] * 999)),
    ),
    Case(
        "jsonl: a text of a million characters",
        CHECK,
        r":3: a text of 1,000,001 characters",
        on_lines(row("good", "x" * 1_000_001)),
    ),
    Case(
        "jsonl: no such columns",
        CHECK,
        r"no text column 'text'",
        writes("d/train.jsonl", '{"a": 1}'),
    ),
    Case(
        "jsonl: 3,000 columns",
        CHECK,
        r"has 3,00\d columns",
        on_lines(json.dumps({"text": "x", "label": "good", **{f"c{i}": i for i in range(3000)}})),
    ),
    Case(
        "jsonl: many columns, none the text",
        CHECK,
        r"its columns are c0, c1, .* and 492 more",
        writes("d/train.jsonl", json.dumps({f"c{i}": i for i in range(500)})),
    ),
    Case(
        "jsonl: a long column name",
        ["data", "check", "d", "--text-column", "q" * 3000],
        r"no text column 'qqq",
        on_lines(row("good")),
    ),
    # ------------------------------------------------------------------------------- labels
    Case("label: null", CHECK, r":3: missing label", on_lines(row(None))),
    Case("label: empty", CHECK, r":3: missing label", on_lines(row(""))),
    Case("label: nothing visible", CHECK, r":3: missing label", on_lines(row("\u200b\u2060"))),
    Case("label: absent", CHECK, r":3: missing label", on_lines('{"text": "x"}')),
    Case("label: NaN", CHECK, r":3: missing label", on_lines('{"text": "x", "label": NaN}')),
    Case("label: infinite", CHECK, r":3: missing label", on_lines('{"text": "x", "label": 1e999}')),
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
    Case(
        "label: empty in csv",
        CHECK,
        r"csv:3: missing label",
        writes("d/train.csv", csv_of("a", "")),
    ),
    Case("label: a fraction", CHECK, r":3: .*regression", on_lines(row(0.5))),
    Case("label: a fraction as text", CHECK, r":3: .*regression", on_lines(row("0.5"))),
    Case(
        "label: fractions in csv",
        CHECK,
        r"csv:2: the label 0\.25 in column 'label' looks like a number to predict \(--kind",
        writes("d/train.csv", csv_of("0.25", "3.5", "a")),
    ),
    Case("label: exponents", CHECK, r"regression", writes("d/train.csv", csv_of("1e-3", "a"))),
    Case(
        "label: many whole numbers",
        CHECK,
        r"60 different numbers in 60 rows.*regression",
        writes("d/train.csv", csv_of(*(str(17 * i) for i in range(60)))),
    ),
    Case("label: a list", CHECK, r":3: .*one label; several", on_lines(row(["good", "bad"]))),
    Case("label: an object", CHECK, r":3: .*one label; several", on_lines(row({"a": 1}))),
    Case(
        "label: a list as text", CHECK, r":3: .*several at once", on_lines(row("['good', 'bad']"))
    ),
    Case("label: a set as text", CHECK, r":3: .*several at once", on_lines(row("{good,bad}"))),
    *(
        Case(
            f"label: joined by {mark}",
            CHECK,
            rf":3: the label 'good{mark}bad'.*joins other labels".replace("|", r"\|"),
            on_lines(row(f"good{mark}bad")),
        )
        for mark in "|;,"
    ),
    Case("label: long", CHECK, r":3: a label of 300 characters", on_lines(row("x" * 300))),
    Case("label: control character", CHECK, r":3: .*control character", on_lines(row("a\x1b[31m"))),
    Case("label: line break", CHECK, r":3: .*control character", on_lines(row("a\nb"))),
    Case(
        "label: one class", CHECK, r"a single class, 'a'", writes("d/train.csv", csv_of("a", "a"))
    ),
    Case(
        "label: unknown to train",
        CHECK,
        r"test.jsonl:1: test has labels that train lacks: 'x0', .* and 92 more",
        beside_good_train(writes("d/test.jsonl", "".join(row(f"x{i}") + "\n" for i in range(100)))),
    ),
    Case(
        "label: no column",
        CHECK,
        r"no label column 'label'.*did you mean 'labels'",
        writes("d/train.jsonl", '{"text": "x", "labels": 1}'),
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
    # --------------------------------------------------------------------------- CSV and TSV
    Case("csv: empty", CHECK, r"train.csv has no rows", writes("d/train.csv", "")),
    Case("csv: header alone", CHECK, r"has no rows", writes("d/train.csv", "text,label\n")),
    Case(
        "csv: open quote",
        CHECK,
        r"csv:3: bad CSV",
        writes("d/train.csv", 'text,label\na,b\n"c,d\n'),
    ),
    Case(
        "csv: too many cells",
        CHECK,
        r"csv:2: 3 cells",
        writes("d/train.csv", "text,label\na,b,c\n"),
    ),
    Case("csv: too few cells", CHECK, r"csv:2: 1 cells", writes("d/train.csv", "text,label\na\n")),
    Case(
        "csv: a column twice",
        CHECK,
        r"two columns called 'text'",
        writes("d/train.csv", "text,text\na,b\n"),
    ),
    Case(
        "csv: Latin-1",
        CHECK,
        r"csv:2: not UTF-8",
        writes("d/train.csv", b"text,label\ncaf\xe9,a\n"),
    ),
    Case(
        "csv: NUL", CHECK, r"csv:2: a null character", writes("d/train.csv", "text,label\na,b\0\n")
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
    Case(
        "csv: a cell of 2 MB",
        CHECK,
        r"csv:2: a text of 2,000,000 characters",
        writes("d/train.csv", "text,label\n" + "x" * 2_000_000 + ",a\n"),
    ),
    Case(
        "csv: 3,000 columns",
        CHECK,
        r"has 3,000 columns",
        writes("d/train.csv", ",".join(f"c{i}" for i in range(3000))),
    ),
    Case(
        "csv: a semicolon for a comma",
        CHECK,
        r"no text column",
        writes("d/train.csv", "text;label\na;b\n"),
    ),
    Case(
        "tsv: a tab in a cell",
        CHECK,
        r"tsv:2: 3 cells.*cannot contain tabs",
        writes("d/train.tsv", "text\tlabel\na\tb\tc\n"),
    ),
    Case(
        "meta: rows missing",
        CHECK,
        r"train_meta.tsv has 1 rows but",
        beside_good_train(writes("d/train_meta.tsv", "kind\na\n")),
    ),
    Case(
        "meta: a pipe", CHECK, r"is not a regular file", beside_good_train(pipe("d/train_meta.tsv"))
    ),
    # ------------------------------------------------------------------------------- Parquet
    Case(
        "parquet: text", CHECK, r"cannot be read as a Parquet", writes("d/train.parquet", "x" * 99)
    ),
    Case("parquet: empty", CHECK, r"cannot be read as a Parquet", writes("d/train.parquet", "")),
    Case(
        "parquet: cut",
        CHECK,
        r"cannot be read as a Parquet",
        writes("d/train.parquet", b"PAR1" + bytes(90)),
    ),
    Case(
        "parquet: no text", CHECK, r"row 2: empty text", parquet(text=["a", None], label=["x", "y"])
    ),
    Case(
        "parquet: null label",
        CHECK,
        r"row 2: missing label",
        parquet(text=["a", "b"], label=["x", None]),
    ),
    Case(
        "parquet: fractions",
        CHECK,
        r"row 1: .*regression",
        parquet(text=["a", "b"], label=["0.5", "x"]),
    ),
    Case(
        "parquet: lists",
        CHECK,
        r"row 1: .*names the label 'x' twice",
        parquet(text=["a"], label=[["x", "x"]]),
    ),
    Case("parquet: a column twice", CHECK, r"two columns called 'label'", parquet_of_equal_names),
]

CASES: list[Case] = DATA
