"""Labels and words as other programs write them: read rightly, or said in one line."""

import io
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Sequence, Value
from pyarrow import parquet

from auxlearn.core.config import RunConfig, load_config
from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.settings import Columns
from auxlearn.data.load import load_dataset
from auxlearn.data.run_data import with_found_kind
from auxlearn.kinds.labels import listed
from tests.helpers import one_line


def written(folder, labels, *, suffix=".jsonl", column="label", **further):
    """Write labels, each beside a text of its own, as train and dev."""
    rows = [
        {"text": f"text {number}", column: label, **{k: v[number] for k, v in further.items()}}
        for number, label in enumerate(labels)
    ]
    folder.mkdir(exist_ok=True)
    for name in ("train", "dev"):
        path = folder / f"{name}{suffix}"
        if suffix == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            separator = "\t" if suffix == ".tsv" else ","
            pd.DataFrame(rows).to_csv(path, index=False, sep=separator)
    return folder


def labels_of(dataset, split="train"):
    return [row["label"] for row in dataset.splits[split].rows()]


def load(folder, kind=None, **rules):
    return load_dataset(folder, columns=Columns(kind=kind, **rules))


#: Cells of several labels joined by something else, the kind that is named, and what is said.
JOINED = {
    "numbers by commas": (["3", "0,2", "0", "2,4", "1,3,5"], "'0,2'"),
    "words by commas": (["a, b", "a", "c", "b, d"], "'a, b'"),
    "tags in brackets": (["<a><b>", "<b>", "<a><c>"], "'<a><b>'"),
    "semicolons": (["a;b", "a;c", "d"], "'a;b'"),
    "every part a label": ([["a,b"], ["a"], ["b"]], "'a,b'"),
    **{f"by {mark}": ([f"a{mark}b", "a", "b"], f"'a{mark}b'") for mark in ("#", " ", "/", " & ")},
    "plus signs": (["a+b+a", "a", "b"], "'a+b+a'"),
    "a part joined alone": (["all#a", "all#b", "a", "b"], "'all#a'"),
}


@pytest.mark.parametrize("case", JOINED)
def test_joined_labels_are_no_labels_of_their_own(case, tmp_path):
    labels, shown = JOINED[case]
    suffix = ".jsonl" if isinstance(labels[0], list) else ".csv"
    with one_line(DataError, f"label {shown} in column", "join them by |"):
        load(written(tmp_path, labels, suffix=suffix), "multi_label")
    if case.startswith("by "):
        with one_line(DataError, f"label {shown} in column", "joins other labels"):
            load(written(tmp_path, [*labels, "a", "b"], suffix=suffix), "classification")


#: Texts and labels of which each is a tag for each word.
TAGGED = {
    "spans": (["EU rejects", "Ann Lee ran"], ["B-ORG O", "B-PER I-PER O"]),
    "spans by commas, one short": (["EU rejects", "Ann Lee ran"], ["B-ORG,O", "B-PER,I-PER"]),
    "parts of speech": (["EU rejects", "Ann", "a b c"], ["NNP VBZ", "NNP", "DT NN NN"]),
}


@pytest.mark.parametrize("case", TAGGED)
def test_a_tag_for_each_word_is_no_class(case, tmp_path):
    texts, labels = TAGGED[case]
    folder = written(tmp_path, labels, suffix=".csv", text=texts)
    with one_line(DataError, f"train.csv:2: the label '{labels[0]}'", "token_classification"):
        load(folder)
    assert load(folder, "classification").label_names == tuple(sorted(labels))
    if case != "spans by commas, one short":
        assert load(folder, "token_classification").kind.per_token
    as_lists = written(tmp_path / "lists", [label.split(" ") for label in labels], text=texts)
    if case != "spans by commas, one short":
        with one_line(DataError, "looks like a tag for each word", "kind multi_label"):
            load(as_lists)
        assert load(as_lists, "token_classification").kind.per_token
    for texts, names in (
        (["a city", "the capital"], ["Cape Town", "New York"]),  # by chance, as all are two
        (["a city", "old"], ["Rome", "New York"]),
    ):
        folder = written(tmp_path / texts[1], names, suffix=".csv", text=texts)
        assert load(folder).label_names == tuple(sorted(names))
        (folder / "dev.csv").write_text("text,label\nnew town,New York\n")  # train alone counts
        assert len(load(folder).splits["dev"]) == 1


def test_names_of_several_words_are_labels(tmp_path):
    names = ["New York", "York", "R&B", "B", "a/b"]
    for kind in ("classification", "multi_label"):
        found = load(written(tmp_path, names, suffix=".csv"), kind)
        assert found.label_names == tuple(sorted(names))
    colours = ["dark", "blue", "dark blue"]
    for kind in ("classification", "multi_label"):  # the user says that it is one
        folder = written(tmp_path / kind, colours, suffix=".csv")
        found = load(folder, kind, labels={"dark blue": "dark blue"})
        assert found.label_names == ("blue", "dark", "dark blue")
    lists = [["dark blue"], ["dark", "blue"]]
    assert len(load(written(tmp_path / "lists", lists)).label_names) == 3


def test_brackets_around_a_name_make_no_list(tmp_path):
    names = ["(none)", "[deleted]", "{a}"]
    for kind in (None, "classification"):
        found = load(written(tmp_path, names, suffix=".csv"), kind)
        assert found.label_names == tuple(sorted(names))
    with one_line(DataError, "holds '(a, b)': an example has one label"):
        load(written(tmp_path, ["(a, b)", "c"], suffix=".csv"))


def test_a_comma_within_names_joins_nothing(tmp_path):
    cells = ["Science, technology", "Arts", "Science, technology|Arts"]
    assert load(written(tmp_path, cells, suffix=".csv"), "multi_label").label_names == (
        "Arts",
        "Science, technology",
    )
    lists = [["a, b"], ["a, c"], []]
    assert load(written(tmp_path / "lists", lists), "multi_label").label_names == ("a, b", "a, c")


#: Indicators of labels in the types that programs write, and the labels that the texts have.
HOT = [[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 1]]
INDICATORS = {
    "whole numbers": (".jsonl", HOT),
    "floats": (".jsonl", [[float(one) for one in row] for row in HOT]),
    "booleans": (".jsonl", [[bool(one) for one in row] for row in HOT]),
    "numpy in CSV": (".csv", [str(np.array(row)) for row in HOT]),
    "floats of numpy in CSV": (".csv", [str(np.array(row, dtype=float)) for row in HOT]),
    "Python in CSV": (".csv", [str(row) for row in HOT]),
}


@pytest.mark.parametrize("case", INDICATORS)
def test_indicators_are_read_by_place(case, tmp_path):
    suffix, labels = INDICATORS[case]
    found = load(written(tmp_path, labels, suffix=suffix), "multi_label")
    assert labels_of(found) == [np.flatnonzero(row).astype(str).tolist() for row in HOT]
    (note,) = (note for note in found.notes if "indicators" in note)
    assert note.startswith("train, dev: lists such as")
    assert note.endswith("are read as indicators of the labels 0 to 2, by their places")


def test_a_place_that_no_indicator_of_train_has_is_told(tmp_path):
    found = load(written(tmp_path, [[1, 0, 0], [0, 0, 1], [0, 0, 0], [1, 0, 1]]), "multi_label")
    assert found.splits["train"].label_names == ("0", "2")
    assert "train: no example has the label 1: training on them gives no output" in found.notes


@pytest.mark.parametrize("labels", [[[0, 1], [1, 0]], [[0, 1], [1]]])
def test_indicators_of_other_labels_are_refused(labels, tmp_path):
    folder = written(tmp_path, HOT)
    rows = [json.dumps({"text": f"t{number}", "label": row}) for number, row in enumerate(labels)]
    (folder / "dev.jsonl").write_text("\n".join(rows) + "\n")
    with one_line(DataError, "dev.jsonl: column 'label' of train holds indicators of 3 labels"):
        load(folder, "multi_label")


def test_numbers_of_labels_are_no_indicators(tmp_path):
    """Lists of different lengths are of labels, also where those of dev happen to be as long."""
    folder = written(tmp_path, [[0], [0, 1], []])
    (folder / "dev.jsonl").write_text('{"text": "a", "label": [0, 1]}\n')
    found = load(folder)
    assert labels_of(found, "dev") == [["0", "1"]]


CODES = ["401.9", "250.00", "428.0", "427.31", "01.17", "428"]


def test_decimals_are_classes_where_the_user_says_so(tmp_path):
    folder = written(tmp_path, CODES, suffix=".tsv")
    (folder / "dev.tsv").write_text("text\tlabel\na\t428.0\n")  # alone it could be 428
    assert load(folder, "classification").label_names == tuple(sorted(CODES))
    assert labels_of(load(folder, "classification"), "dev") == ["428.0"]
    with one_line(DataError, "train.tsv:2: the label 401.9", "kind regression", "classification"):
        load(folder)
    renamed = load(folder, "classification", labels={"heart": ["428.0", "428"]})
    assert renamed.label_names == ("01.17", "250.00", "401.9", "427.31", "heart")
    lists = written(tmp_path / "lists", [["401.9", "428.0"], ["250.00"], ["428"]])
    assert load(lists).label_names == ("250.00", "401.9", "428", "428.0")
    frame = pd.DataFrame({"text": ["a", "b", "c"], "label": [401.9, 250.0, 428.25]})
    found = load_dataset({"train": frame, "dev": frame}, columns=Columns(kind="classification"))
    assert found.label_names == ("250", "401.9", "428.25")


@pytest.mark.parametrize("numbers", [["0.5", "1.25", "3.0"], ["5.000", "3.800"], [0.5, 1.0, 2.25]])
def test_numbers_as_programs_write_them_are_predicted(numbers, tmp_path):
    found = load(written(tmp_path, numbers))
    assert found.kind.name == "regression"
    assert found.splits["train"].labels == tuple(map(float, numbers))
    scores = written(tmp_path / "scores", numbers, suffix=".csv", column="score")
    assert load(scores).splits["train"].labels == tuple(map(float, numbers))


def test_whole_decimals_are_classes_as_before(tmp_path):
    assert load(written(tmp_path, ["1.0", "2.0"], suffix=".csv")).label_names == ("1", "2")
    assert load(written(tmp_path / "json", [1.0, 2.0]), "classification").label_names == ("1", "2")


def test_a_number_that_train_lacks_may_be_one_to_predict(tmp_path):
    folder = written(tmp_path, [1.0, 2.0, 4.0])
    for label in (3.0, 2.5):
        (folder / "dev.jsonl").write_text(json.dumps({"text": "a", "label": label}) + "\n")
        with one_line(DataError, f"train lacks: '{label:g}'", "kind regression predicts numbers"):
            load(folder)


@pytest.mark.parametrize(
    "labels",
    [
        ["4,5", "3,0"],
        ["1,5", "2"],
        ["10%", "20 %"],
        ["7,5%", "3%"],
        ["1,234.5", "12"],
        ["1.000,50", "2"],
        ["1,0E+05", "2"],
    ],
)
def test_other_numbers_are_no_classes_unless_the_user_says_so(labels, tmp_path):
    folder = written(tmp_path, labels, suffix=".tsv")
    with one_line(DataError, f"train.tsv:2: the label {labels[0]} in", "looks like a number"):
        load(folder)
    with one_line(DataError, "a number to predict is needed", "with a decimal point"):
        load(folder, "regression")
    assert set(load(folder, "classification").label_names) == set(labels)


def test_a_number_has_no_underscores(tmp_path):
    with one_line(DataError, "a number to predict is needed", "'23_0.5'"):
        load(written(tmp_path, ["1.5", "23_0.5"], suffix=".csv"), "regression")


def test_decimals_of_a_database_are_numbers(tmp_path):
    def table(kind, *values):
        column = pyarrow.array([Decimal(value) for value in values], kind)
        for name in ("train", "dev"):
            made = pyarrow.table({"text": ["a", "b", "c"], "label": column})
            parquet.write_table(made, tmp_path / f"{name}.parquet")
        return load(tmp_path)

    scores = table(pyarrow.decimal128(3, 1), "4.9", "0.5", "3.0")
    assert (scores.kind.name, scores.splits["train"].labels) == ("regression", (4.9, 0.5, 3.0))
    assert table(pyarrow.decimal128(5, 0), "0", "1", "1").label_names == ("0", "1")
    whole = table(pyarrow.decimal128(5, 2), "1", "2", "2")
    assert whole.label_names == ("1", "2")
    assert whole.splits["dev"].labels == whole.splits["train"].labels == (0, 1, 1)
    table(pyarrow.decimal128(5, 2), "250", "401.9", "250")
    assert load(tmp_path, "classification").label_names == ("250.00", "401.90")


MARKERS = ["-", r"\N", "#REF!", "#N/A", "(null)", "-nan", "#DIV/0!", "NA", "-100", "", "?", "--"]


@pytest.mark.parametrize("marker", MARKERS)
def test_markers_of_missing_labels_are_counted(marker, tmp_path):
    folder = written(tmp_path, [1, marker, 0, marker, marker])
    what = f"the label '{marker}' (a missing value?)" if marker else "missing label"
    with one_line(DataError, f"train.jsonl:2: {what} in column 'label'", "(and 2 more)"):
        load(folder)
    if marker:
        assert marker in load(folder, keep_null_labels=True).label_names


@pytest.mark.parametrize("marker", ["-1", "-100"])
def test_minus_one_beside_names_is_missing(marker, tmp_path):
    with one_line(DataError, f"the label '{marker}' (a missing value?)"):
        load(written(tmp_path, ["pos", marker, "neg"], suffix=".csv"))
    assert "-1" in load(written(tmp_path, ["0", "-1", "1"], suffix=".csv")).label_names


@pytest.mark.parametrize("marker", ["nan", "NaN", "NULL", "<NA>", "#N/A", "-1"])
def test_markers_of_missing_tags_are_said(marker):
    rows = {"tokens": [["a", "b"], ["c"]], "tags": [["N", marker], ["V"]]}
    with one_line(DataError, f"the label '{marker}' (a missing value?) in column 'tags'"):
        load({"train": rows, "dev": rows})
    assert marker in load({"train": rows, "dev": rows}, keep_null_labels=True).label_names


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:68d4\nsize 440449768\n"


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".conll", ".conllu"])
def test_pointers_of_git_lfs_are_named(suffix, tmp_path):
    (tmp_path / f"train{suffix}").write_text(POINTER)
    with one_line(DataError, f"train{suffix} is a pointer of git-lfs", "run `git lfs pull`"):
        load(tmp_path)


@pytest.mark.parametrize("column", ["set", "subset", "fold"])
def test_a_column_of_splits_by_another_name_is_said(column, tmp_path):
    frame = pd.DataFrame({"text": [*"abcd"], "label": [*"xyxy"]})
    frame[column] = ["train", "train", "valid", "test"]
    frame.to_csv(tmp_path / "all.csv", index=False)
    for data in (tmp_path / "all.csv", frame):
        with one_line(DataError, f"column '{column}' holds test, train, valid", "to 'split'"):
            load(data)
    for words in (["TRAIN", "TRAIN", "TRAIN", "VALIDATE"], ["training", "holdout"] * 2):
        frame[column] = words
        with one_line(DataError, f"column '{column}' holds", "to 'split'"):
            load(frame)
    frame[column] = ["train", "bus", "train", "bus"]
    assert len(load(frame).splits["train"]) + len(load(frame).splits["dev"]) == 4


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".tsv", None])
@pytest.mark.parametrize("column", ["split", "set"])
def test_rows_of_another_split_are_refused(column, suffix, tmp_path):
    data = written(tmp_path, "xyxy", suffix=suffix or ".csv", **{column: ["train", "test"] * 2})
    if suffix is None:
        data = {"train": pd.read_csv(tmp_path / "train.csv")}
    with one_line(DataError, f"column '{column}' holds test, train"):
        load(data)


def test_two_spellings_of_a_split_are_named():
    frame = pd.DataFrame({"text": [*"ab"], "label": [*"xy"], "split": ["train", "Train"]})
    with one_line(DataError, "'train', 'Train' are one split"):
        load(frame)


def test_all_columns_and_that_of_scores_are_named(tmp_path):
    rows = Dataset.from_dict({"input_ids": [[1, 2]], "label": ["x"]})
    with one_line(DataError, "its columns are label, input_ids"):
        load(rows)
    with one_line(DataError, "read by label_column score"):
        load(written(tmp_path, ["0,5", "1,5"], suffix=".csv", column="score"))


@pytest.mark.parametrize("text", ["a", "a, b", '"a, b"'])
@pytest.mark.parametrize(("suffix", "mark"), [(".csv", ";"), (".csv", "\t"), (".tsv", ",")])
def test_columns_by_another_separator_are_said(suffix, mark, text, tmp_path):
    (tmp_path / f"train{suffix}").write_text(f"text{mark}label\n{text}{mark}x\n")
    with one_line(DataError, f"cells are divided by {mark!r}, but .csv needs commas"):
        load(tmp_path)


@pytest.mark.parametrize(("name", "said"), [("tain", True), ("Trian", True), ("test_2", False)])
def test_a_split_whose_name_may_be_misspelt_is_said(name, said):
    splits = ["train"] * 4 + ["dev"] * 2 + ["test"] * 2 + [name] * 2
    frame = pd.DataFrame({"text": [*"abcdefghij"], "label": ["x", "y"] * 5, "split": splits})
    note = f"split '{name}' (2 examples) is only evaluated: did you mean 'train'?"
    assert (note in load(frame).notes) == said


def test_columns_by_semicolons_are_said_where_texts_have_commas(tmp_path):
    (tmp_path / "train.csv").write_text("news;so it goes, they say\nsport;two, three, four\n")
    with one_line(DataError, "train.csv:2: 3 cells, but", "cells are divided by ';'"):
        load(tmp_path)


def test_empty_cells_beside_joined_labels_are_said(tmp_path):
    written(tmp_path, ["a|b", "", "b"], suffix=".csv")
    dataset = load(tmp_path, "multi_label")
    assert "1 of 3 cells of 'label' are empty: no label" in " ".join(dataset.notes)


def test_class_numbers_that_losses_leave_out_are_said():
    features = Features(
        tokens=Sequence(Value("string")), tags=Sequence(ClassLabel(names=["O", "B-X"]))
    )
    rows = {"tokens": [["a", "b"]], "tags": [[0, -100]]}
    with one_line(DataError, "class -100, which losses leave out: name another one"):
        load(DatasetDict(train=Dataset.from_dict(rows, features)))


def test_signs_and_negative_numbers_are_labels(tmp_path):
    assert load(written(tmp_path, ["-", "+", "-"])).label_names == ("+", "-")
    assert load(written(tmp_path, ["--", "++", "-"])).label_names == ("++", "-", "--")
    assert load(written(tmp_path, ["?", "!", "."])).label_names == ("!", ".", "?")
    assert load(written(tmp_path, [-100, -50, 0])).label_names == ("-100", "-50", "0")
    rows = {"tokens": [["a", "b"], ["c"]], "tags": [["NA", "-"], ["B"]]}
    assert load_dataset({"train": rows, "dev": rows}).label_names == ("-", "B", "NA")


#: Lists of words and tags in cells, by who writes them.
WORDS = [["Ana", "d'Arc", 'says "no"', "10 000"], ["Bo"]]
TAGS = [["B-PER", "I-PER", "O", "O"], ["B-PER"]]
WRITERS = {
    "pandas": str,
    "numpy": lambda row: str(np.array(row)),
    "numpy for programmers": lambda row: repr(np.array(row)),
    "objects of numpy": lambda row: repr(np.array(row, dtype=object)),
    "JSON": json.dumps,
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["token_classification", None])
def test_lists_in_cells_are_read(writer, kind, tmp_path):
    frame = pd.DataFrame({"tokens": WORDS, "tags": TAGS}).map(WRITERS[writer])
    for name in ("train", "dev"):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    read = pd.read_csv(io.StringIO((tmp_path / "train.csv").read_text()))
    for data in (tmp_path, {"train": read, "dev": read}):
        found = load(data, kind)
        assert labels_of(found) == TAGS
        texts = [" ".join(word.replace(" ", "\u00a0") for word in row) for row in WORDS]
        assert list(found.splits["train"].texts) == texts


def test_lists_of_labels_in_cells_are_read(tmp_path):
    labels = [["a"], ["a", "b's"], []]
    for number, write in enumerate((str, json.dumps, lambda row: str(np.array(row, dtype=str)))):
        folder = written(tmp_path / str(number), map(write, labels), suffix=".csv")
        assert labels_of(load(folder, "multi_label")) == labels
    with one_line(DataError, "'{a, b}' is no list: write it in JSON, or join by |"):
        load(written(tmp_path / "other", ["{a, b}", "a"], suffix=".csv"), "multi_label")
    with one_line(DataError, "'[a]' is no list: write it in JSON, or join by |"):
        load(written(tmp_path / "alone", ["[a]", "[b]"], suffix=".csv"), "multi_label")
    with one_line(DataError, """"['a', 'b'" is no whole list: write all of it in JSON"""):
        load(written(tmp_path / "cut", ["['a', 'b'", "['b']"], suffix=".csv"), "multi_label")
    for value in ({"choices": ["a", "b"]}, [{"start": 0, "end": 3, "labels": ["a"]}]):
        for kind in (None, "multi_label"):
            folder = written(tmp_path / "mapping", [json.dumps(value), "a"], suffix=".csv")
            with one_line(DataError, "a mapping: write the name of the label, or a list of names"):
                load(folder, kind)


def test_sets_and_missing_values_in_cells_are_what_python_means(tmp_path):
    cells = ["{'b', 'a'}", "frozenset({'a'})", "set()", "frozenset()"] * 2
    found = load(written(tmp_path / "sets", cells, suffix=".csv"), "multi_label")
    assert labels_of(found) == [["a", "b"], ["a"], [], []] * 2
    with one_line(DataError, "an example has one label; several are one list in JSON"):
        load(written(tmp_path / "classes", cells[1:2] * 4, suffix=".csv"), "classification")
    for number, cell in enumerate(("[nan]", "['a', nan]", "['a' nan]", "{nan}", "[None]")):
        folder = written(tmp_path / str(number), ["['a']", cell], suffix=".csv")
        with one_line(DataError, "train.csv:3: missing label in column 'label'"):
            load(folder, "multi_label")
    assert labels_of(load(written(tmp_path / "names", ["set(a)", "nans"]))) == ["set(a)", "nans"]


def test_an_abridged_list_of_numpy_is_refused(tmp_path):
    for write in (str, repr):
        with np.printoptions(threshold=5):
            cell = write(np.array([f"w{number}" for number in range(20)]))
        folder = written(tmp_path, ["O O"], suffix=".csv", column="tags", tokens=[cell])
        with one_line(DataError, "train.csv:2: ", "is no whole list: write all of it in JSON"):
            load(folder, "token_classification")
    assert listed("[E1] Ann [/E1]") is None


@pytest.mark.parametrize("kind", [None, "classification", "multi_label"])
def test_an_abridged_list_of_indicators_is_refused(kind, tmp_path):
    vectors = [np.eye(1, 1001, place, dtype=int)[0] for place in (0, 2)]
    for number, cells in enumerate(
        [vectors, map(repr, vectors), ["['a', 'b', ...]", "['a']"], ["[0.5 1. ... 0. 1.]"] * 2]
    ):
        folder = written(tmp_path / str(number), list(map(str, cells)), suffix=".csv")
        with one_line(DataError, "train.csv:2: ", "is no whole list: write all of it in JSON"):
            load(folder, kind)
    names = ["[...]", "[sigh ... sob]"] * 2
    assert labels_of(load(written(tmp_path / "names", names, suffix=".csv"))) == names


@pytest.mark.parametrize("mark", [",", "|"])
def test_examples_of_one_word_are_said(mark):
    rows = {"tokens": [["a"], ["b"]] * 6, "tags": [["O"], ["B-X"]] * 6}
    note = "train, dev: every example has one word: group the words of a sentence"
    assert any(line.startswith(note) for line in load({"train": rows, "dev": rows}).notes)
    rows["tags"][0] = [","]
    assert load({"train": rows, "dev": rows}).label_names == (",", "B-X", "O")
    rows["tags"] = [[f"O{mark}B-X"], ["O"]] * 6
    with one_line(DataError, f"the tag 'O{mark}B-X' in column 'tags' holds a separator"):
        load({"train": rows, "dev": rows})
    rows = {"tokens": [f"a{mark} b", "c"], "tags": [f"O{mark} O", "O"]}
    with one_line(DataError, f"the tag 'O{mark}' in column 'tags' holds a separator"):
        load({"train": rows, "dev": rows}, "token_classification")


@pytest.mark.parametrize("number", ["Sentence #", "sentence_id", "sent_no"])
@pytest.mark.parametrize("kind", [None, "token_classification"])
def test_a_word_in_each_row_is_refused(number, kind):
    words = {number: ["Sentence: 1", *[None] * 9] * 2, "Word": list("abcdefghij" * 2)}
    rows = {**words, "Tag": ["O", "B-X"] * 10}
    for named in ({}, {"text_column": "Word", "label_column": "Tag"}):
        with one_line(DataError, f"'{number}' numbers sentences", "'tokens'", "a .conll file"):
            load_dataset(rows, columns=Columns(kind=kind, **named))
    sentences = ["the film was great", "so it is"] * 4
    texts = {"sentence": sentences, "aspect": [*"abcdefgh"], "label": [*"xxyyxxyy"]}
    columns = Columns(text_column="sentence", text_pair_column="aspect")
    assert len(load_dataset(texts, columns=columns).splits["train"]) == 6
    rows["Word"][0] = "a phrase"  # of which a sentence has several
    assert len(load_dataset(rows | {"text": rows["Word"], "label": rows["Tag"]}).splits) == 2


#: Tags of other schemes, and the same spans in BIO.
SCHEMES = {
    "IOB1": (["I-X", "I-X", "B-X", "O", "I-Y", "I-X"], "B-X I-X B-X O B-Y B-X"),
    "BIOES": (["B-X", "I-X", "E-X", "S-X", "O", "S-Y"], "B-X I-X I-X B-X O B-Y"),
    "BILOU": (["B-X", "L-X", "U-X", "U-X", "O"], "B-X I-X B-X B-X O"),
    "BMES": (["B-X", "M-X", "E-X", "B-X", "E-X", "O"], "B-X I-X I-X B-X I-X O"),
    "IOE2": (["I-X", "E-X", "I-X", "E-X", "O"], "B-X I-X B-X I-X O"),
    "single words": (["S-X", "O", "O"], "B-X O O"),
    "dashes of a word processor": (["B\u2013X", "I\u2013X", "O"], "B-X I-X O"),
    "underscores": (["B_X", "I_X", "O", "B_Y-Z"], "B-X I-X O B-Y-Z"),
    "suffixes": (["X-B", "X-I", "O", "Y-B"], "B-X I-X O B-Y"),
    "suffixes of BMES": (["X-B", "X-M", "X-E", "X-S", "O"], "B-X I-X I-X B-X O"),
    "no types": (["B", "I", "O", "B", "B"], "B-span I-span O B-span B-span"),
    "words of a text": (
        ["B", "E", "S", "B", "M", "E"],
        "B-span I-span B-span B-span I-span I-span",
    ),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_of_spans_are_read_as_bio(scheme, tmp_path):
    tags, expected = SCHEMES[scheme]
    rows = {"tokens": [[f"w{n}" for n, _ in enumerate(tags)]] * 3, "tags": [tags] * 3}
    found = load_dataset({"train": rows, "dev": rows})
    assert labels_of(found)[0] == expected.split()
    assert found.kind.default_metric(found.label_names) == "span_f1"
    assert sum(note.startswith("train") for note in found.notes) == 1
    # What was read is read again as it is, without a word.
    rows = {"tokens": rows["tokens"], "tags": labels_of(found)}
    again = load_dataset({"train": rows, "dev": rows})
    assert labels_of(again) == labels_of(found)
    assert not any("span" in note for note in again.notes)


#: Tags that are no spans, and whether a line says that they may be meant for some.
PLAIN = {
    "parts of speech": (["DET", "NOUN", "O"], ""),
    "of the Penn Treebank": (["DT", "NN", "-LRB-"], ""),
    "one stray tag": (["B-X", "I-X", "O", "PER"], "all but PER (first in"),
    "small letters": (["b-x", "i-x", "o"], "(b-x, i-x)"),
    "beginnings alone": (["B", "O"], "(B)"),
    "zeros": (["B-X", "I-X", "0"], "all but 0 (first in"),
    "zeros and single words": (["B-X", "0", "0"], "all but 0 (first in"),
    "another name for none": (["B-X", "I-X", "OUT"], "all but OUT (first in"),
}


@pytest.mark.parametrize("case", PLAIN)
def test_other_tags_are_plain(case):
    tags, said = PLAIN[case]
    rows = {"tokens": [["w"] * len(tags)] * 3, "tags": [tags] * 3}
    found = load_dataset({"train": rows, "dev": rows})
    assert set(found.label_names) == set(tags)
    assert any("look like spans" in note and said in note for note in found.notes) == bool(said)


@pytest.mark.parametrize("hub", [False, True])
def test_a_second_column_of_tags_is_said(hub):
    rows = {"tokens": [["a", "b"]] * 3, "tags": [["N", "V"]] * 3, "ner_tags": [["O", "B-X"]] * 3}
    data = {"train": rows, "dev": rows}
    if hub:
        data = DatasetDict({name: Dataset.from_dict(rows) for name in data})
    note = "train, dev: labels are read from column 'tags', not 'ner_tags' (label_column)"
    assert load_dataset(data).notes.count(note) == 1
    for column in ("tags", "ner_tags"):
        found = load_dataset(data, columns=Columns(label_column=column))
        assert labels_of(found)[0] == rows[column][0]
        assert note not in found.notes


def test_bad_inner_tags_are_counted_all_at_once():
    tags = [["B-X", "I-X"], ["O", "I-X"], ["I-X", "O"], ["O", "O"]]
    rows = {"tokens": [["a", "b"]] * 4, "tags": tags}
    found = load_dataset({"train": rows, "dev": rows})
    assert any("span: 2 of 4, the first is split 'train'" in note for note in found.notes)
    assert labels_of(found)[1:3] == [["O", "B-X"], ["B-X", "O"]]


#: Tags, the user's map, and the tags that are read, or what is said.
MAPPED = {
    "to BIO": (["B_PER", "I_PER", "O"], {"B-X": "B_PER", "I-X": "I_PER"}, "B-X I-X O"),
    "within a scheme": (
        ["B-P", "E-P", "S-P"],
        {"B-X": "B-P", "E-X": "E-P", "S-X": "S-P"},
        "B-X I-X B-X",
    ),
    "by hand": (["B-P", "E-P", "O"], {"I-P": "E-P"}, "B-P I-P O"),
    "to plain tags": (["B-P", "I-P", "O"], {"P": ["B-P", "I-P"]}, "P P O"),
    "to none": (["B-P", "I-P", "B-Q"], {"O": ["B-P", "I-P"]}, "O O B-Q"),
    "half of a type": (
        ["B-P", "I-P", "O"],
        {"B-X": "B-P"},
        "the spans 'P' become those of P and X",
    ),
    "half of a type in BIOES": (
        ["B-P", "E-P", "S-P"],
        {"B-X": "B-P", "I-X": "I-P"},
        "those of P and X, which divides spans: map all of them, B-P, E-P, S-P",
    ),
    "half to none": (["B-P", "I-P", "O"], {"O": "B-P"}, "those of O and P, which divides spans"),
}


@pytest.mark.parametrize("case", MAPPED)
def test_a_map_of_tags_comes_before_their_scheme(case):
    tags, labels, expected = MAPPED[case]
    rows = {"tokens": [["a", "b", "c"]] * 3, "tags": [tags] * 3}
    columns = Columns(labels=labels)
    if "those of" in expected:
        with one_line(DataError, expected):
            load_dataset({"train": rows, "dev": rows}, columns=columns)
    else:
        found = load_dataset({"train": rows, "dev": rows}, columns=columns)
        assert labels_of(found)[0] == expected.split()


def test_yes_and_no_in_a_file_of_settings_are_labels_where_labels_are_needed(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "labels: {yes: [on, y, 1], no: [off, true]}\nkeep_model: no\ncompile: off\nseed: 1\n"
    )
    config = load_config(path)
    assert config.labels == {"yes": ("on", "y", "1"), "no": ("off", "true")}
    assert (config.keep_model, config.compile) == (False, False)
    path.write_text(config.to_yaml())
    assert load_config(path) == config
    for written_number in ("017", "1:30"):
        path.write_text(f"labels: {{a: {written_number}}}\n")
        with one_line(ConfigError, f"'{written_number}' is", "quotation marks"):
            load_config(path)


@pytest.mark.parametrize(("tag", "metric"), [("NOUN", "accuracy"), ("B-X", "span_f1")])
def test_the_metric_of_tags_follows_them_wherever_the_kind_comes_from(tag, metric, tmp_path):
    folder = written(tmp_path, [["O", tag]] * 3, column="tags", tokens=[["a", "b"]] * 3)
    for kind in (None, "token_classification"):
        config = RunConfig(dataset=str(folder), kind=kind)
        for settings in (config, config.resolved()):  # in Python and sweeps; by the command
            assert with_found_kind(settings, None).resolved().metric == metric
    given = RunConfig(dataset=str(folder), kind="token_classification", metric="accuracy")
    assert with_found_kind(given.resolved(), None).metric == "accuracy"


def test_codes_are_those_of_the_model_and_whole_numbers_are_said(tmp_path):
    def names(labels, columns=Columns(kind="classification")):  # noqa: B008
        found = load_dataset({"train": {"text": list("abcd"), "label": labels}}, columns=columns)
        said = [note for note in found.notes if "are read as" in note]
        return found.label_names, said

    said = ["train: labels such as '1.0' are read as '1'"]
    assert names(["1.0", "1", "2", "2"]) == (("1", "2"), said)
    said = ["train: labels such as 'no ' are read as 'no'"]
    assert names(["no", "no ", "yes", "yes"]) == (("no", "yes"), said)
    assert names(["250.00", "401.00"] * 2) == (("250.00", "401.00"), [])
    of_model = Columns(kind="classification").of_model(["428", "428.0", "401.9"])
    assert names(["428.0", "428"] * 2, of_model) == (("428", "428.0"), [])
    of_model = Columns(kind="classification").of_model(["428", "427"])
    assert names(["428.0", "427.0"] * 2, of_model)[0] == ("427", "428")


def test_tags_beside_the_label_of_a_text_are_read_as_the_labels_of_words():
    rows = {"text": ["a b", "c d"], "tokens": [["a", "b"], ["c", "d"]], "label": ["x", "y"]}
    rows["tags"] = [["O", "B-P"], ["B-P", "O"]]
    found = load_dataset({"train": rows, "dev": rows}, columns=Columns(kind="token_classification"))
    assert found.label_names == ("B-P", "O")


def test_spans_of_characters_are_said_to_be_that():
    for kind in (None, "multi_label", "token_classification"):
        with one_line(DataError, "spans of characters are not read: write words, each with a tag"):
            load_dataset(
                {"text": ["Ann went"] * 4, "label": [[[0, 3, "PER"]]] * 4},
                columns=Columns(kind=kind),
            )


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_columns_without_a_name_beside_a_table(suffix, tmp_path):
    """As spreadsheets write them: the spam collection of SMS messages has three."""
    mark = "," if suffix == ".csv" else "\t"
    for name in ("train", "dev"):
        rows = ["v1,v2,,,", "ham,a,,,", "spam,b,,of b,"]
        (tmp_path / f"{name}{suffix}").write_text("\n".join(rows).replace(",", mark))
    found = load_dataset(str(tmp_path), columns=Columns(text_column="v2", label_column="v1"))
    assert found.splits["train"].texts == ("a", "b")
    assert not found.splits["train"].meta
    assert "train, dev: columns without a name that were left out: 3" in found.notes
    said = "train, dev: cells with text in columns without a name that were left out: 1"
    assert said in found.notes


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_rows_of_empty_cells_and_headers_among_the_rows(suffix, tmp_path):
    """As spreadsheets write below a table, and as files that were joined have."""
    mark = "," if suffix == ".csv" else "\t"
    rows = ["text,label,n", "a,x,1", ",,", " , ,", "b,y,2", "", "c,x,3"]
    for name in ("train", "dev"):
        path = tmp_path / f"{name}{suffix}"
        path.write_text("".join(row.replace(",", mark) + "\n" for row in rows))
    found = load(tmp_path)
    assert found.splits["train"].texts == ("a", "b", "c")
    assert "train, dev: rows of empty cells that were left out: 2" in found.notes
    with path.open("a") as file:
        file.write((f"\ufeff{rows[0]}\nd,y,4\nText, Label,n\n").replace(",", mark))
    with one_line(DataError, f"dev{suffix}:8: the header again (and 1 more): delete the row"):
        load(tmp_path)
