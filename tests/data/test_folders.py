"""Data-set folders: what is read, and the error message for each kind of invalid file."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from auxlearn.core.errors import DataError
from auxlearn.core.settings import Columns
from auxlearn.core.table import Table
from auxlearn.data import tables
from auxlearn.data.dataset import Split
from auxlearn.data.folders import read_folder
from auxlearn.data.load import load_dataset, load_evaluated
from tests.helpers import one_line, write_splits

ROWS = [
    {"text": "a fine day", "label": "good"},
    {"text": "rain, again", "label": "bad"},
    {"text": "so-so", "label": "good"},
]


def write_table(path: Path, rows: list[dict]) -> None:
    """Write rows in the format of the suffix, with the standard writers."""
    if path.suffix == ".jsonl":
        write_splits(path.parent, **{path.stem: rows})
    elif path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            dialect = "excel-tab" if path.suffix == ".tsv" else "excel"
            writer = csv.DictWriter(file, list(rows[0]), dialect=dialect)
            writer.writeheader()
            writer.writerows(rows)


def message(folder: Path) -> str:
    """Return the one line with which reading the folder fails, without the folder's path."""
    with one_line(DataError) as caught:
        read_folder(folder)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("suffix", "dev"),
    [(".jsonl", "dev"), (".csv", "validation"), (".tsv", "valid"), (".parquet", "val")],
)
def test_every_format_gives_the_same_splits(tmp_path, suffix, dev):
    for name in ("train", dev, "test"):
        write_table(tmp_path / f"{name}{suffix}", ROWS)
    dataset = read_folder(tmp_path)
    assert dataset.name == tmp_path.name
    assert list(dataset.splits) == ["train", "dev", "test"]
    for name, split in dataset.splits.items():
        expected = Split(name, ("a fine day", "rain, again", "so-so"), (1, 0, 1), ("bad", "good"))
        assert split == expected


def test_pairs_further_columns_and_columns_of_other_names(tmp_path):
    rows = [{**row, "text_pair": f"pair {i}", "id": i} for i, row in enumerate(ROWS)]
    write_splits(tmp_path, train=rows)
    train = read_folder(tmp_path).splits["train"]
    assert train.text_pairs == ("pair 0", "pair 1", "pair 2")
    assert train.meta == {"id": ("0", "1", "2")}
    rows = [{"q1": "one", "q2": "two", "y": 1}, {"q1": "three", "q2": "four", "y": 0}]
    write_splits(tmp_path, train=rows)
    columns = Columns(text_column="q1", text_pair_column="q2", label_column="y")
    train = read_folder(tmp_path, columns).splits["train"]
    assert (train.texts, train.text_pairs) == (("one", "three"), ("two", "four"))
    assert (train.labels, train.label_names) == ((1, 0), ("0", "1"))


def test_further_files_are_splits_by_their_name(tmp_path):
    write_splits(
        tmp_path,
        train=ROWS,
        test_revised=ROWS[:1],
        corpus=[{"text": "no label here"}],
        other=[{"text": "a", "label": "x"}, {"text": "b", "label": "y"}],
        partly=[{"text": "a", "label": "x"}, {"text": "b", "label": "good"}],
        unsupervised=[{"text": "a", "label": -1}],
        settings=[{"key": "value"}],
        test_new=[{**ROWS[0], "predicted_label": "good"}],
        scores=[{"text": 0, "form": "a fine day", "log_probability": -9.5}],
    )
    dataset = read_folder(tmp_path)
    assert set(dataset.splits) == {"train", "test_revised", "corpus", "other", "partly"}
    assert dataset.splits["test_revised"].labels == (1,)
    assert dataset.splits["corpus"].labels is None
    assert dataset.splits["other"].label_names == ("x", "y")
    assert dataset.notes == (
        "scores.jsonl was left out: its column 'log_probability' holds scores",
        "settings.jsonl was left out: it has no column 'text'",
        "test_new.jsonl was left out: its column 'predicted_label' holds predictions",
        f"{tmp_path / 'unsupervised.jsonl'}: left out, as its labels are hidden",
        "split 'other' keeps its own labels: x, y, and is not evaluated, as train lacks x, y: "
        "--labels gives a label its class",
        "split 'partly' keeps its own labels: good, x, and is not evaluated, as train lacks x: "
        "--labels gives a label its class, --unknown-labels count counts them as wrong",
    )


@pytest.mark.parametrize(("further", "usual"), [("training", "train"), ("validation", "dev")])
def test_a_second_split_by_another_name_is_an_evaluation_set_with_a_note(tmp_path, further, usual):
    write_splits(tmp_path, train=ROWS, dev=ROWS, **{further: ROWS})
    dataset = read_folder(tmp_path)
    assert set(dataset.splits) == {"train", "dev", further}
    assert dataset.notes == (
        f"split '{further}' is a further evaluation set, as there is {usual} too",
    )


def test_meta_file_adds_meta_columns(tmp_path):
    write_splits(tmp_path, train=ROWS)
    (tmp_path / "train_meta.tsv").write_text("line\tkind\n1\ta\n2\tb\n3\tc\n")
    dataset = read_folder(tmp_path)
    assert list(dataset.splits) == ["train"]
    assert dataset.splits["train"].meta == {"kind": ("a", "b", "c")}
    assert dataset.notes == ()


def test_csv_lines_are_counted_through_quoted_line_breaks(tmp_path):
    path = tmp_path / "train.csv"
    path.write_bytes(b'text,label\r\n"one\ntwo, ""three""",a\r\n\r\nfour,b\r\n,a\r\n')
    assert message(tmp_path).startswith("train.csv:6: empty text in column 'text'")
    path.write_bytes(path.read_bytes() + b",b\r\n ,a\r\n")
    assert "column 'text' (and 2 more): fill it in" in message(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"\r\n,a\r\n,b\r\n ,a", b"\r\nfive,a"))
    assert read_folder(tmp_path).splits["train"].texts == ('one\ntwo, "three"', "four", "five")


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv"])
def test_byte_order_marks_are_left_out_however_many(tmp_path, suffix):
    write_table(tmp_path / f"train{suffix}", ROWS)
    content = (tmp_path / f"train{suffix}").read_bytes()
    (tmp_path / f"train{suffix}").write_bytes("\ufeff\ufeff".encode() + content)
    assert sum(map(len, read_folder(tmp_path).splits.values())) == len(ROWS)


#: By name: the format, the content, and the texts that are read.
CONTENTS = {
    "unbalanced quotation marks": (
        "tsv",
        'text\tlabel\n"open\ta\nhe said "yes"\tb\nclosed"\ta\n"whole"\tb\n',
        ('"open', 'he said "yes"', 'closed"', '"whole"'),
    ),
    "quoting of a csv writer": (
        "tsv",
        'text\tlabel\n"he said ""yes"""\ta\n""""\tb\n',
        ('he said "yes"', '"'),
    ),
    "a whole text in quotation marks, as no writer makes it": (
        "tsv",
        'text\tlabel\n"whole"\ta\nplain\tb\n"a, b"\ta\n',
        ('"whole"', "plain", '"a, b"'),
    ),
    "the same with commas, as a spreadsheet makes it": (
        "tsv",
        'text\tlabel\n"a, b"\ta\nplain\tb\n',
        ("a, b", "plain"),
    ),
    "the same, but not all commas": (
        "tsv",
        'text\tlabel\n"a, b"\ta\nc, d\tb\n',
        ('"a, b"', "c, d"),
    ),
    "quotation marks around all texts of a column, as R makes it": (
        "tsv",
        'text\tlabel\n"a, b"\t1\n"plain"\t2\nNA\t1\n"c"\t2\n',
        ("a, b", "plain", "NA", "c"),
    ),
    "line separators of Unicode": (
        "jsonl",
        '\ufeff{"text": "one\u2028two", "label": "a"}\n{"text": "three\x85", "label": "b"}',
        ("one\u2028two", "three\x85"),
    ),
}


@pytest.mark.parametrize("what", CONTENTS)
def test_marks_and_separators_within_texts(tmp_path, what):
    suffix, content, texts = CONTENTS[what]
    (tmp_path / f"train.{suffix}").write_bytes(content.encode())
    assert read_folder(tmp_path).splits["train"].texts == texts


def test_what_is_damaged_or_missing_is_one_line(tmp_path):
    write_table(tmp_path / "train.parquet", ROWS)
    content = (tmp_path / "train.parquet").read_bytes()
    (tmp_path / "train.parquet").write_bytes(content.replace(b"a fine day", b"a fin\xff day"))
    assert "train.parquet" in message(tmp_path)
    (tmp_path / "train.parquet").unlink()
    write_splits(tmp_path, train=[{"tokens": ["a", "b"], "ner_tags": [0]}])
    problem = "train.jsonl:1: 2 words but 1 tags: each word has one"
    assert message(tmp_path) == f"{problem}, in the column that --label-column names"
    assert message(tmp_path / "nothing").startswith("there is no folder")


ONE, TWO = "text,label\na,x\nb,y\n", "text,label\nc,x\nd,y\n"
COLUMNS = {"text": ["a fine day", "rain"], "label": ["good", "bad"]}

NO_ROWS = {
    **{"_data_files": [], "_fingerprint": "x", "_format_columns": None, "_format_kwargs": {}},
    **{"_format_type": None, "_output_all_columns": False, "_split": None},
}

#: Files of a folder that is read as less than it is, or as something else, and what is said.
INCOMPLETE = {
    "a part is missing": (
        {"train-00000-of-00003.csv": ONE, "train-00002-of-00003.csv": TWO},
        "of 3 parts of a split there are 2 (train-00000-of-00003.csv, train-00002-of-00003.csv)",
    ),
    "one part in a folder": (
        {"data/train-00001-of-00002.jsonl": json.dumps({"text": "a", "label": "x"})},
        "of 2 parts of a split there are 1",
    ),
    "parts of other columns": (
        {"train/a.csv": ONE, "train/b.csv": "text,text_pair,label\na,b,x\n"},
        "train/a.csv has no column 'text_pair', which train/b.csv has",
    ),
    "another column of texts": (
        {"train/a.csv": ONE, "train/b.csv": TWO.replace("text", "sentence")},
        "train/b.csv has no column 'text', which train/a.csv has",
    ),
    "folders within a class": (
        {"train/x/1.txt": "a", "train/y/1.txt": "b", "train/z/more/1.txt": "c"},
        "train/z/more is a folder: texts are read of train/CLASS/FILE.txt",
    ),
    "markup by class": (
        {"train/x/1.json": '{"text": "a"}', "train/y/1.json": '{"text": "b"}'},
        "train/x/1.json is no plain text, as texts by class are: CLASS/FILE.txt",
    ),
    "annotations beside texts": (
        {"train/x/1.txt": "a", "train/x/1.ann": "T1", "train/y/1.txt": "b"},
        "train has files of 2 formats (1.ann, 1.txt): leave those of one there",
    ),
    "files of a system beside texts": (
        {"train/x/1": "a", "train/y/1": "b", "train/y/Thumbs.db": ""},
        "train has files of 2 formats (1, Thumbs.db)",
    ),
    "a table in two formats": (
        {"train/a.csv": ONE, "train/a.jsonl": json.dumps({"text": "c", "label": "x"})},
        "train has files of 2 formats (a.csv, a.jsonl)",
    ),
    "a folder beside a table": (
        {"train.csv": ONE, "test/a.csv": TWO},
        "has tables (train.csv) and the folders test, which would be left out",
    ),
    "texts without classes": (
        {"train/x/1.txt": "a", "train/y/1.txt": "b", "test/1.txt": "c"},
        "test would be left out, as it holds no tables, and no folders for the classes of train",
    ),
    "a split of another form": (
        {"train/a.csv": ONE, "test/a.txt": "c"},
        "test would be left out, as it holds no tables",
    ),
    "a folder of classes beside a table": (
        {"train.csv": ONE, "test/x/1.txt": "a", "test/y/1.txt": "b"},
        "has tables (train.csv) and the folders test, which would be left out",
    ),
    "a folder of one class beside a table": (
        {"train.csv": ONE, "test/x/1.txt": "a"},
        "has tables (train.csv) and the folders test, which would be left out",
    ),
    "a folder of texts beside a table": (
        {"train.csv": ONE, "validation/a.txt": "a"},
        "has tables (train.csv) and the folders validation, which would be left out",
    ),
    "a table beside texts by class": (
        {"train/x/1.txt": "a", "train/y/1.txt": "b", "train/scored.csv": ONE},
        "train has tables (scored.csv) beside the folders of its classes, which would be left out",
    ),
    "no second text": (
        {"train.csv": "text,text_pair,label\na,,x\nb,,y\n"},
        "column 'text_pair' is empty in every row: leave it out, or name another column with --te",
    ),
    "classes that no split holds": (
        {"pos/1.txt": "a text", "neg/1.txt": "a text"},
        "it holds neg, pos (texts by class are read of train/CLASS/FILE.txt)",
    ),
    "a README with a byte order mark": (
        {"README.md": "\ufeff---\nconfigs:\n---\n", "train.csv": ONE},
        "README.md begins with a byte order mark: save it without",
    ),
    "a language in the names": (
        {"train.en.csv": ONE, "dev.en.csv": TWO},
        "dev.en.csv would be no dev split, as its name is not dev.csv: rename it",
    ),
    "saved without rows": (
        {"state.json": json.dumps(NO_ROWS), "dataset_info.json": "{}"},
        "has no rows: save_to_disk wrote a split without any",
    ),
    "an object of columns": (
        {"train.jsonl": json.dumps(COLUMNS)},
        "train.jsonl: its one object has columns, not one example: write one object on each line",
    ),
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_what_would_be_read_as_less_or_as_something_else_is_refused(case, tmp_path):
    files, said = INCOMPLETE[case]
    write_files(tmp_path, files)
    assert said in message(tmp_path)


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


#: Files of a split's folder, what is read of them, and what is said.
READ = {
    "a quotation mark that is not closed": (
        {"a.csv": 'text,label\n"a,x\nb,y\nc",x\n"d\ne, f",y\n'},
        {"a,x\nb,y\nc": "x", "d\ne, f": "y"},
        (
            "train: {folder}/a.csv:2: a quoted cell holds lines that look like rows: "
            "if a quotation mark is missing there, add it",
        ),
    ),
    "hidden beside classes": (
        {
            "x/1.txt": "a",
            "y/1.txt": "b",
            "y/.DS_Store": "",
            ".git/1.txt": "c",
            "__MACOSX/1.txt": "",
        },
        {"a": "x", "b": "y"},
        (),
    ),
    "hidden beside a table": ({"a.csv": ONE, "._a.csv": "\0"}, {"a": "x", "b": "y"}, ()),
    "ends of numbers": ({"x/1.7c53a9": "a", "y/1.e4f1b2": "b"}, {"a": "x", "b": "y"}, ()),
    "parts": ({"0.csv": ONE, "1.csv": TWO}, {"a": "x", "b": "y", "c": "x", "d": "y"}, ()),
    "a copy by a browser": (
        {"a.csv": ONE, "a (1).csv": ONE},
        {"a": "x", "b": "y"},
        ("train: read from 2 files, a (1).csv, a.csv",),
    ),
    "rows of empty cells in a later part": (
        {"part-0.csv": ONE, "part-1.csv": f"{TWO},\n"},
        {"a": "x", "b": "y", "c": "x", "d": "y"},
        ("train: rows of empty cells that were left out: 1",),
    ),
}


@pytest.mark.parametrize("case", READ)
def test_what_is_read_of_the_folder_of_a_split(case, tmp_path):
    files, labels, notes = READ[case]
    write_files(tmp_path / "train", files)
    dataset = read_folder(tmp_path)
    assert {row["text"]: row["label"] for row in dataset.splits["train"].rows()} == labels
    assert dataset.notes == tuple(note.format(folder=tmp_path / "train") for note in notes)


def test_folders_of_further_splits_are_evaluation_sets(tmp_path):
    texts = {"train/x/1.txt": "a", "train/y/1.txt": "b", "test/x/1.txt": "c", "hard/y/1.txt": "d"}
    write_files(tmp_path, {**texts, "val/x/1.txt": "e", "validation/x/1.txt": "f", "src/z/z": ""})
    splits = read_folder(tmp_path).splits
    assert {name: split.texts for name, split in splits.items()} == {
        **{"train": ("a", "b"), "dev": ("e",), "test": ("c",)},
        **{"hard": ("d",), "validation": ("f",)},
    }
    write_files(tmp_path / "tables", {"train/a.csv": ONE, "test/a.csv": TWO, "ood/a.csv": TWO})
    run = {"config.yaml": "", "environment.json": "", "metrics.jsonl": "{}", "notes.jsonl": ONE}
    write_files(tmp_path / "tables/run", run)  # the tables of a run are no split
    assert set(read_folder(tmp_path / "tables").splits) == {"train", "test", "ood"}


#: Names of classes in a README, labels of a table, and the classes that they are; none if unclear.
NUMBERED = {
    "numbers of names that are numbers": ("123", ".csv", "012", "123"),
    "whole numbers": ("123", ".jsonl", [0, 1], "12"),
    "names that are numbers": ("123", ".csv", "123", "123"),
    "the same": ("01", ".csv", "01", "01"),
    "names of words": (["neg", "pos"], ".csv", ["1", "neg"], ["pos", "neg"]),
    "swapped": ("10", ".csv", "01", None),
    "both": ("123", ".csv", "12", None),
}


@pytest.mark.parametrize("case", NUMBERED)
def test_numbers_are_those_of_classes_or_their_names_throughout(case, tmp_path):
    names, suffix, labels, expected = NUMBERED[case]
    rows = [{"text": f"t{row}", "label": label} for row, label in enumerate(labels)]
    write_table(tmp_path / f"train{suffix}", rows)
    listed = "".join(f"          '{place}': '{name}'\n" for place, name in enumerate(names))
    features = f"  - name: label\n    dtype:\n      class_label:\n        names:\n{listed}"
    text = "  - name: text\n    dtype: string\n"
    (tmp_path / "README.md").write_text(f"---\ndataset_info:\n  features:\n{text}{features}---\n")
    if expected is None:
        assert "may be the name of a class, or the number of that of" in message(tmp_path)
    else:
        rows = read_folder(tmp_path).splits["train"].rows()
        assert [row["label"] for row in rows] == list(expected)
        readme = (tmp_path / "README.md").read_text().replace(f"'{names[0]}'\n", "no\n")
        (tmp_path / "README.md").write_text(readme)
        assert "class names of a README: False is no text: quote it" in message(tmp_path)


#: What a README says of its files, one of them, and what is said; "" if it is read so.
TOLD = {
    "semicolons": ("sep: ';'", "a.csv", "text;label\nNA, b;x\nnull;y\n", ""),
    "tabs in .csv": ('delimiter: "\\t"', "a.csv", "text\tlabel\nNA, b\tx\nnull\ty\n", ""),
    "commas in .tsv": ("sep: ','", "a.tsv", 'text,label\n"NA, b",x\nnull,y\n', ""),
    "names": ("names: [text, label]", "a.csv", '"NA, b",x\nnull,y\n', ""),
    "too many cells": (
        "names: [text, label]",
        "a.csv",
        "NA,b,x\nnull,y,y\n",
        "more cells than the 2",
    ),
    "a line before": ("skiprows: 1", "a.csv", 'made in 1999\ntext,label\n"NA, b",x\nnull,y\n', ""),
    "some rows": ("nrows: 1", "a.csv", "text,label\na,x\n", "its README says nrows of how its"),
    "a field": ("field: data", "a.jsonl", '{"text": "a", "label": "x"}\n', "its README says field"),
}


@pytest.mark.parametrize("case", TOLD)
def test_files_are_read_as_a_readme_says(case, tmp_path):
    told, name, content, said = TOLD[case]
    (tmp_path / name).write_text(content)
    head = f"configs:\n- config_name: default\n  {told}\n  data_files:\n"
    (tmp_path / "README.md").write_text(f"---\n{head}  - split: train\n    path: {name}\n---\n")
    if said:
        assert said in message(tmp_path)
    else:
        starred = shutil.copytree(tmp_path, tmp_path / "a[1]")
        assert "takes *, ? and [ of its path for wildcards: rename it" in message(starred)
        split = read_folder(tmp_path).splits["train"]
        assert [(row["text"], row["label"]) for row in split.rows()] == [
            ("NA, b", "x"),
            ("null", "y"),
        ]


def test_evaluation_split_needs_no_train_and_may_be_missing(tmp_path):
    write_splits(tmp_path / "one", test=ROWS)
    split, _ = load_evaluated(tmp_path / "one", "test")
    assert (split.label_names, split.labels) == (("bad", "good"), (1, 0, 1))
    write_splits(tmp_path / "small", train=ROWS[:2])
    write_splits(tmp_path / "whole", train=ROWS, dev=ROWS)
    for name in (None, 3):
        with one_line(DataError, f"has no split '{name}': known: dev, train"):
            load_dataset(tmp_path / "whole").split(name)
    with one_line(DataError, "has no split 'test': known: train"):
        load_evaluated(tmp_path / "small", "test")
    write_splits(tmp_path, validation=ROWS)
    assert len(load_evaluated(tmp_path, "dev")[0]) == 3
    with one_line(DataError, "has no split 'test'", "dev"):
        load_evaluated(tmp_path, "test")


def test_trees_are_written_to_parquet_as_json(tmp_path):
    trees = [[[2, "nsubj"], [0, "root"]], None, [[0, "root"]]]
    table = Table("a run", {"text": ["a b", "c", "d"], "predicted_label": trees})
    tables.write_table(tmp_path / "out.parquet", table)
    found = parquet.read_table(tmp_path / "out.parquet").to_pydict()["predicted_label"]
    assert [tree and json.loads(tree) for tree in found] == trees
