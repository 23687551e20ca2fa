"""Bad data sets, encoders, configurations and command lines."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

from tests.hardening.case import Case, Place

GOOD = '{"text": "a fine day", "label": "good"}\n{"text": "rain again", "label": "bad"}\n'
MANY = "".join(
    json.dumps({"text": f"text number {i}", "label": ("good", "bad")[i % 2]}) + "\n"
    for i in range(40)
)
CHECK = ("data", "check", "d")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def writes(name: str, content: str | bytes) -> Callable[[Place], object]:
    return lambda place: place.write(name, content)


def on_lines(extra: str) -> Callable[[Place], object]:
    """A train file with two good lines and another one."""
    return writes("d/train.jsonl", GOOD + extra + "\n")


def row(label: Any, text: Any = "some text") -> str:
    return json.dumps({"text": text, "label": label})


def csv_of(*labels: str) -> str:
    return "text,label\n" + "".join(f"text {i},{label}\n" for i, label in enumerate(labels))


def parquet(**columns: Any) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        import pyarrow
        from pyarrow import parquet

        (place.path / "d").mkdir()
        parquet.write_table(pyarrow.table(columns), place.path / "d" / "train.parquet")

    return make


def parquet_of_equal_names(place: Place) -> None:
    import pyarrow
    from pyarrow import parquet

    (place.path / "d").mkdir()
    table = pyarrow.Table.from_arrays([["a", "b"], ["x", "y"], ["y", "x"]], ["text", "label", "c"])
    parquet.write_table(
        table.rename_columns(["text", "label", "label"]), place.path / "d" / "train.parquet"
    )


def beside_good_train(make: Callable[[Place], object]) -> Callable[[Place], object]:
    def both(place: Place) -> None:
        place.write("d/train.jsonl", GOOD)
        make(place)

    return both


def linked(place: Place) -> None:
    place.write("secret.jsonl", GOOD)
    place.write("d/train.jsonl", GOOD)
    (place.path / "d" / "test.jsonl").symlink_to(place.path / "secret.jsonl")


def link_to_nowhere(place: Place) -> None:
    (place.path / "d").mkdir()
    (place.path / "d" / "train.jsonl").symlink_to("nowhere")


def link_to_itself(place: Place) -> None:
    (place.path / "d").mkdir()
    (place.path / "d" / "train.jsonl").symlink_to("train.jsonl")


def pipe(name: str) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        path = place.path / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)

    return make


def folder(name: str) -> Callable[[Place], object]:
    return lambda place: (place.path / name).mkdir(parents=True)


def sparse_file(name: str, size: int) -> Callable[[Place], object]:
    """A file of any size that takes no room."""

    def make(place: Place) -> None:
        os.truncate(place.write(name, b""), size)

    return make


DATA = [
    # ------------------------------------------------------------------------------ folders
    Case("data: no such folder", ["data", "check", "./nowhere"], r"no folder './nowhere'"),
    Case("data: no such name", ["data", "check", "pydoc"], r"did you mean 'pydocs'\?"),
    Case("data: no name", ["data", "check", ""], r"unknown data set ''"),
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
        r"csv:2: the label 0\.25 in column 'label' looks like a number to predict \(regression\)",
        writes("d/train.csv", csv_of("0.25", "3.5", "1")),
    ),
    Case("label: exponents", CHECK, r"regression", writes("d/train.csv", csv_of("1e-3", "2e-3"))),
    Case(
        "label: many whole numbers",
        CHECK,
        r"60 different numbers in 60 rows.*regression",
        writes("d/train.csv", csv_of(*(str(17 * i) for i in range(60)))),
    ),
    Case("label: a list", CHECK, r":3: .*one label, and several", on_lines(row(["good", "bad"]))),
    Case("label: an object", CHECK, r":3: .*one label, and several", on_lines(row({"a": 1}))),
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
        "csv: NUL", CHECK, r"csv:2: .*(NUL|control)", writes("d/train.csv", "text,label\na,b\0\n")
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
        parquet(text=["a", "b"], label=[0.5, 0.7]),
    ),
    Case(
        "parquet: lists",
        CHECK,
        r"row 1: .*several at once",
        parquet(text=["a"], label=[["x", "y"]]),
    ),
    Case("parquet: a column twice", CHECK, r"two columns called 'label'", parquet_of_equal_names),
]


def train(*arguments: str) -> tuple[str, ...]:
    return ("train", "--config", "c.yaml", *arguments)


def config(content: str | bytes) -> Callable[[Place], object]:
    return writes("c.yaml", content)


def sweep(content: str) -> Callable[[Place], object]:
    return writes("s.yaml", content)


SWEEP = ("sweep", "s.yaml", "--dry-run")

SETTINGS = [
    Case("config: absent", train(), r"there is no file c.yaml"),
    Case("config: a folder", train(), r"is not a regular file", folder("c.yaml")),
    Case("config: a pipe", train(), r"is not a regular file", pipe("c.yaml")),
    Case("config: large", train(), r"is too large: 1,000,000 bytes", sparse_file("c.yaml", 10**6)),
    Case("config: NUL", train(), r"not valid YAML", config("a: \0")),
    Case("config: Latin-1", train(), r"c.yaml:1: not UTF-8", config(b"dataset: caf\xe9")),
    Case("config: not YAML", train(), r"c.yaml:2: not valid YAML", config("a: [1\nb: }")),
    Case("config: a list", train(), r"is a mapping of settings", config("[1]")),
    Case("config: text", train(), r"is a mapping of settings", config("seed")),
    Case("config: two documents", train(), r"not valid YAML", config("seed: 1\n---\nseed: 2")),
    Case(
        "config: a key twice",
        train(),
        r"c.yaml:2: the key 'seed' occurs twice",
        config("seed: 1\nseed: 2"),
    ),
    Case(
        "config: an inner key twice",
        train(),
        r"c.yaml:2: the key 'alpha' occurs twice",
        config("weights: {fixed: {alpha: 0.1,\n alpha: 0.2}}"),
    ),
    Case(
        "config: alias bomb", train(), r"aliases stand for more than 100,000 values", config(BOMB)
    ),
    Case("config: a value in itself", train(), r"contains itself", config("aux: &a [*a]")),
    Case("config: deep", train(), r"more than 40 levels", config("aux: " + "[" * 20_000)),
    Case("config: deep blocks", train(), r"more than 40 levels", config("- " * 20_000)),
    Case("config: undefined alias", train(), r"undefined alias", config("aux: *a")),
    Case(
        "config: Python object",
        train(),
        r"not valid YAML",
        config("seed: !!python/object/apply:os.getpid []"),
    ),
    Case("config: NaN", train(), r"'.nan' is not a finite number", config("learning_rate: .nan")),
    Case("config: infinity", train(), r"'-.inf' is not a finite", config("learning_rate: -.inf")),
    Case(
        "config: 5,000 digits",
        train(),
        r"c.yaml:1: a value cannot be read",
        config("seed: " + "9" * 5000),
    ),
    Case("config: 4,000 digits", train(), r"c.yaml: epochs: ", config("epochs: -" + "9" * 4000)),
    Case("config: no such day", train(), r"c.yaml:1: a value cannot", config("seed: 2024-02-31")),
    Case("config: a date", train(), r"put text in quotation marks", config("dataset: 2024-01-02")),
    Case(
        "config: binary", train(), r"put text in quotation marks", config("dataset: !!binary aGk=")
    ),
    Case("config: a number for a key", train(), r"1", config("1: 2")),
    Case("config: a list for a key", train(), r"unhashable key", config("? [a]\n: 1")),
    Case(
        "config: unknown key", train(), r"unknown key 'sed': did you mean 'seed'", config("sed: 1")
    ),
    Case("config: a long unknown key", train(), r"unknown key 'xxx", config("x" * 500 + ": 1")),
    Case(
        "config: many unknown keys",
        train(),
        r"and 95 more faults",
        config("".join(f"k{i}: 1\n" for i in range(100))),
        lines=6,
    ),
    Case("config: a long value", train(), r"seed: .*xxx", config("seed: " + "x" * 100_000)),
    Case(
        "config: true for a seed",
        train(),
        r"seed: a number is needed, not true",
        config("seed: true"),
    ),
    Case(
        "config: no for epochs",
        train(),
        r"epochs: a number is needed, not true or",
        config("epochs: no"),
    ),
    Case(
        "config: true for a rate",
        train(),
        r"learning_rate: a number is needed",
        config("learning_rate: true"),
    ),
    Case(
        "config: true in an option",
        train(),
        r"alpha: a number is needed",
        config("weights: {fixed: {alpha: true}}"),
    ),
    Case("config: a negative seed", train(), r"seed: ", config("seed: -1")),
    Case("config: no epochs", train(), r"epochs: ", config("epochs: 0")),
    Case("config: a mapping for a number", train(), r"batch_size: ", config("batch_size: {a: 1}")),
    Case(
        "config: name leads out",
        train(),
        r"'../../../escape' is not a plain name",
        config("ood: [{dataset: d, name: ../../../escape}]"),
    ),
    Case(
        "config: absolute name",
        train(),
        r"'/tmp/x' is not a plain name",
        config("ood: [{dataset: d, name: /tmp/x}]"),
    ),
    Case(
        "config: hidden name",
        train(),
        r"begins with a dot",
        config("ood: [{dataset: d, name: .x}]"),
    ),
    Case("config: dots for a name", train(), r"begins with a dot", config("ood: [..]")),
    Case(
        "config: backslash in a name",
        train(),
        r"is not a plain name",
        config(r"ood: [{dataset: d, name: a\b}]"),
    ),
    Case(
        "config: long name",
        train(),
        r"too long for a name",
        config(f"ood: [{{dataset: d, name: {'n' * 101}}}]"),
    ),
    Case(
        "config: control character in a name",
        train(),
        r"is not a plain name",
        config(r'ood: [{dataset: d, name: "a\eb"}]'),
    ),
    Case(
        "config: name of a split",
        train(),
        r"the name 'test' is taken",
        config("ood: [{dataset: d, name: test}]"),
    ),
    Case("config: a key of a set", train(), r"unknown key", config("ood: [{dataset: d, nme: x}]")),
    Case("config: unknown task", train(), r"did you mean 'l3mask'", config("aux: l3msk")),
    Case(
        "config: two tasks in one",
        train(),
        r"one name with its options",
        config("aux: [{l3mask: {}, random_mlm: {}}]"),
    ),
    Case(
        "config: options that are none",
        train(),
        r"options of 'l3mask' are a mapping",
        config("aux: [{l3mask: 3}]"),
    ),
    Case("sweep: absent", SWEEP, r"there is no file s.yaml"),
    Case("sweep: a list", SWEEP, r"a sweep file is a mapping", sweep("[]")),
    Case(
        "sweep: a key twice",
        SWEEP,
        r"s.yaml:2: the key 'name' occurs twice",
        sweep("name: a\nname: b"),
    ),
    Case("sweep: alias bomb", SWEEP, r"aliases stand for more", sweep(BOMB)),
    Case("sweep: many seeds", SWEEP, r"at most 20,000 seeds", sweep("name: a\nseeds: 100000000")),
    Case("sweep: negative seeds", SWEEP, r"seeds", sweep("name: a\nseeds: [-1]")),
    Case(
        "sweep: true for a seed",
        SWEEP,
        r"seeds: a number is needed",
        sweep("name: a\nseeds: [true]"),
    ),
    Case(
        "sweep: true for the seeds",
        SWEEP,
        r"seeds: a number is needed",
        sweep("name: a\nseeds: true"),
    ),
    Case("sweep: a seed twice", SWEEP, r"a seed occurs twice", sweep("name: a\nseeds: [1, 1]")),
    Case("sweep: no seeds", SWEEP, r"seeds", sweep("name: a\nseeds: 0")),
    Case(
        "sweep: a large grid",
        SWEEP,
        r"has 800,000 combinations",
        sweep(
            f"name: a\ngrid: {{epochs: {list(range(1, 801))}, batch_size: {list(range(1, 1001))}}}"
        ),
    ),
    Case(
        "sweep: many trials",
        SWEEP,
        r"has 40,000 trials \(200 combinations, 200 seeds\)",
        sweep(f"name: a\nseeds: 200\ngrid: {{epochs: {list(range(1, 201))}}}"),
    ),
    Case(
        "sweep: a search without end",
        SWEEP,
        r"search.trials",
        sweep("name: a\nsearch: {trials: 100000000, space: {epochs: [1]}}"),
    ),
    Case("sweep: name leads out", SWEEP, r"name: ", sweep("name: ../a")),
    Case("sweep: long name", SWEEP, r"name: ", sweep("name: " + "n" * 300)),
    Case(
        "sweep: unknown setting",
        SWEEP,
        r"unknown setting 'epoch': did you mean 'epochs'",
        sweep("name: a\ngrid: {epoch: [1]}"),
    ),
    Case("card: absent", ["data", "check", "c.yaml"], r"there is no file c.yaml"),
    Case("card: a list", ["data", "check", "c.yaml"], r"must be a mapping", config("[]")),
    Case(
        "card: a key twice",
        ["data", "check", "c.yaml"],
        r"the key 'name' occurs twice",
        config("name: a\nname: b"),
    ),
    Case("card: alias bomb", ["data", "check", "c.yaml"], r"aliases stand for", config(BOMB)),
    Case(
        "card: many unknown keys",
        ["data", "check", "c.yaml"],
        r"and \d+ more",
        config("".join(f"k{i}: 1\n" for i in range(50))),
    ),
    *(
        Case(
            f"card: {what}",
            ["data", "check", "c.yaml"],
            r"is not a plain name",
            config(
                "{title: t, description: d, folder_recipe: r, metric: accuracy, licence: l, "
                f"paper: p, label_names: [a, b], {entry}}}"
            ),
        )
        for what, entry in (
            ("name leads out", "name: ../../x"),
            ("name of a set leads out", "name: x, ood: {../y: {}}"),
            ("name of a split leads out", "name: x, pairs: {test: ../z}"),
        )
    ),
]

COMMANDS = [
    Case("unknown command", ["trian"], r"unknown command 'trian': did you mean 'train'\?"),
    Case(
        "unknown option",
        ["data", "check", "d", "--txt-column", "x"],
        r"unknown option '--txt-column'",
    ),
    Case("option without a value", ["train", "--seed"], r"--seed"),
    Case("text for a number", ["train", "--epochs", "ten"], r"'ten' is not a valid integer"),
    Case("a long value for a number", ["train", "--epochs", "9" * 5000], r"epochs"),
    Case("NaN for a rate", ["train", "--learning-rate", "nan"], r"learning_rate"),
    Case("infinity for a rate", ["train", "--learning-rate", "inf"], r"learning_rate"),
    Case("name of a set leads out", ["train", "--ood", "a/.."], r"plain name"),
    Case("a length of one token", ["data", "check", "d", "--max-length", "1"], r"max-length"),
    Case("no data set", ["evaluate", "run"], r"missing option '--dataset'"),
    Case("no run", ["predict", "nowhere", "text"], r"there is no run folder nowhere"),
    Case("run: long path", ["predict", "r" * 5000, "text"], r"(File name too long)"),
    Case(
        "run: home of nobody",
        ["predict", "~nosuchuser/r", "text"],
        r"is not a path|no run folder|no home folder",
    ),
    Case(
        "predict: two sources", ["predict", "run", "a", "--file", "x"], r"both on the command line"
    ),
    Case("predict: empty text", ["predict", "run", " "], r"an empty text"),
    Case("predict: zero-width space", ["predict", "run", "\u200b"], r"an empty text"),
    Case(
        "predict: not UTF-8",
        ["predict", "run", "a\udcff"],
        r"the command line contains a text that is not UTF-8: a\\udcff",
    ),
    Case(
        "predict: a long text",
        ["predict", "run", "x" * 1_000_001],
        r"a text of 1,000,001 characters",
    ),
    Case("predict: no input", ["predict", "run"], r"standard input contains no text", typed=""),
    Case(
        "predict: input not UTF-8",
        ["predict", "run"],
        r"standard input:2: not UTF-8",
        typed=b"ok\ncaf\xe9\n",
    ),
    Case(
        "predict: JSON surrogate",
        ["predict", "run"],
        r"standard input:1 contains a text that is not UTF-8",
        typed='{"text": "\\ud83d"}\n',
    ),
    Case(
        "predict: JSON without text",
        ["predict", "run"],
        r"standard input:1: 'text' is empty",
        typed='{"label": 1}\n',
    ),
    Case(
        "predict: JSON, then none",
        ["predict", "run"],
        r"standard input:2: not a JSON object",
        typed='{"text": "a"}\nb\n',
    ),
    Case(
        "predict: deep JSON",
        ["predict", "run"],
        r"standard input:2: not a JSON object",
        typed='{"text": "a"}\n' + "[" * 20_000,
    ),
    Case("predict: no file", ["predict", "run", "--file", "no.txt"], r"there is no file no.txt"),
    Case(
        "predict: a folder for a file",
        ["predict", "run", "--file", "f"],
        r"is not a regular",
        folder("f"),
    ),
    Case(
        "predict: a pipe for a file",
        ["predict", "run", "--file", "f"],
        r"is not a regular",
        pipe("f"),
    ),
    Case(
        "predict: a large file",
        ["predict", "run", "--file", "f"],
        r"is too large",
        sparse_file("f", 5 * 1024**3),
    ),
    Case(
        "predict: no text column",
        ["predict", "run", "--file", "f.csv"],
        r"has no column 'text'",
        writes("f.csv", "a\nb\n"),
    ),
    Case(
        "predict: corpus not UTF-8",
        ["predict", "run", "--file", "f.txt"],
        r"f.txt:1: not UTF-8",
        writes("f.txt", b"\xff\n"),
    ),
    Case(
        "evaluate: no data",
        ["evaluate", "run", "--dataset", "./no"],
        r"no folder",
        lambda place: place.copy_run(),
    ),
    Case(
        "evaluate: no split",
        ["evaluate", "run", "--dataset", "d"],
        r"has no split 'test': its splits are",
        lambda place: (place.copy_run(), place.write("d/dev.jsonl", GOOD)),
    ),
    Case(
        "evaluate: other labels",
        ["evaluate", "run", "--dataset", "d"],
        r"no counterpart for",
        lambda place: (place.copy_run(), place.write("d/test.jsonl", GOOD)),
    ),
    Case(
        "evaluate: a long split",
        ["evaluate", "run", "--dataset", "d", "--split", "s" * 3000],
        r"has no split 'sss",
        lambda place: (place.copy_run(), place.write("d/test.jsonl", GOOD)),
    ),
    Case(
        "evaluate: home of nobody",
        ["evaluate", "run", "--dataset", "~nosuchuser"],
        r"is not a path|no home folder",
        lambda place: place.copy_run(),
    ),
    Case(
        "pretrain: no corpus",
        ["pretrain", "--encoder", "tiny", "--corpus", "no.txt", "--output", "o"],
        r"no.txt does not exist",
    ),
    Case(
        "pretrain: a pipe for a corpus",
        ["pretrain", "--encoder", "tiny", "--corpus", "f", "--output", "o"],
        r"is not a regular",
        pipe("f"),
    ),
    Case(
        "pretrain: corpus of nothing",
        ["pretrain", "--encoder", "tiny", "--corpus", "f", "--output", "o"],
        r"contains no text",
        writes("f", "\u200b\n \n"),
    ),
]


def spoiled(name: str, change: Callable[[Any], Any]) -> Callable[[Place], object]:
    """An encoder with a JSON file changed."""

    def make(place: Place) -> None:
        place.write("d/train.jsonl", MANY)
        path = place.copy_encoder() / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return make


def replaced(name: str, content: str | bytes) -> Callable[[Place], object]:
    """An encoder with a file replaced."""

    def make(place: Place) -> None:
        place.write("d/train.jsonl", MANY)
        place.copy_encoder()
        place.write(f"encoder/{name}", content)

    return make


def removed(*names: str) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        place.write("d/train.jsonl", MANY)
        for path in place.copy_encoder().iterdir():
            if any(path.match(name) for name in names):
                path.unlink()

    return make


def weights(
    change: Callable[[dict[str, Any]], None], copy: str = "encoder"
) -> Callable[[Place], object]:
    """An encoder, or the model of a run, with changed weights."""

    def make(place: Place) -> None:
        from safetensors.torch import load_file, save_file

        place.write("d/train.jsonl", MANY)
        model = place.copy_run() / "model" if copy == "run" else place.copy_encoder()
        tensors = load_file(model / "model.safetensors")
        change(tensors)
        save_file(tensors, model / "model.safetensors", {"format": "pt"})

    return make


def without(part: str) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if part in name]:
            del tensors[name]

    return change


def filled(part: str, value: float) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            if part in name:
                tensor.view(-1)[0] = value

    return change


def narrower(part: str) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        for name in tensors:
            if part in name:
                tensors[name] = tensors[name][..., :-1].contiguous()

    return change


def spoiled_run(name: str, change: Callable[[Any], Any]) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        path = place.copy_run() / "model" / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return make


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
        r"num_hidden_layers is 1000000000, but",
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

CASES: list[Case] = [*DATA, *SETTINGS, *COMMANDS, *ENCODERS]
