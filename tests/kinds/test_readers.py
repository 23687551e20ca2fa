"""Readers of labels of every kind: files, datasets, DataFrames; bad labels in one line."""

from __future__ import annotations

import json

import datasets
import pandas as pd
import pytest

from auxlearn import load_dataset
from auxlearn.core.errors import UserError
from auxlearn.core.settings import Columns
from auxlearn.data.audit import audit
from auxlearn.data.memory import save_folder
from auxlearn.data.splits import hold_out, take_fold
from tests.helpers import one_line, write_splits

ROWS = {
    "multi_label": [
        {"text": f"text {number}", "label": ["a", "b", "c"][: number % 4]} for number in range(12)
    ],
    "regression": [{"text": f"text {number}", "label": number / 4} for number in range(12)],
    "token_classification": [
        {"tokens": ["Ann", "of", f"Rome{number}"], "tags": ["B-PER", "O", "B-LOC"]}
        for number in range(12)
    ],
}
ENCODED = {
    "multi_label": [tuple(range(number % 4)) for number in range(12)],
    "regression": [number / 4 for number in range(12)],
    "token_classification": [(1, 2, 0)] * 12,
}


def folder_of(tmp_path, rows, suffix=".jsonl"):
    folder = tmp_path / "data"
    if suffix == ".jsonl":
        return write_splits(folder, train=rows, dev=rows, test=rows)
    folder.mkdir(exist_ok=True, parents=True)
    for name in ("train", "dev", "test"):
        path = folder / f"{name}{suffix}"
        if suffix == ".parquet":
            pd.DataFrame(rows).to_parquet(path)
        else:
            pd.DataFrame(rows).to_csv(path, index=False)
    return folder


def check(dataset, name):
    assert dataset.kind.name == name
    for split in dataset.splits.values():
        assert split.kind is dataset.kind
        assert list(split.labels) == ENCODED[name]
    first = dataset.splits["train"].texts[3]
    assert first == ("Ann of Rome3" if name == "token_classification" else "text 3")


@pytest.mark.parametrize("name", ROWS)
def test_every_source_gives_the_same_data(name, tmp_path):
    rows = ROWS[name]
    data = load_dataset(folder_of(tmp_path, rows))
    check(data, name)
    fingerprint = data.fingerprint
    sources = [
        dict.fromkeys(("train", "dev", "test"), rows),
        {split: pd.DataFrame(rows) for split in ("train", "dev", "test")},
        datasets.DatasetDict(
            {split: datasets.Dataset.from_list(rows) for split in ("train", "dev", "test")}
        ),
        data,
    ]
    for source in sources:
        found = load_dataset(source)
        check(found, name)
        assert found.fingerprint == fingerprint
    save_folder(data, tmp_path / "saved")
    assert load_dataset(tmp_path / "saved").fingerprint == fingerprint
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    assert load_dataset(folder_of(tmp_path, rows, ".parquet")).fingerprint == fingerprint


def test_cells_of_csv_join_labels_words_and_tags(tmp_path):
    several = [
        {"text": row["text"], "label": "|".join(row["label"])} for row in ROWS["multi_label"]
    ]
    columns = Columns(kind="multi_label")
    found = load_dataset(folder_of(tmp_path, several, ".csv"), columns=columns)
    check(found, "multi_label")
    tagged = [
        {"text": " ".join(row["tokens"]), "label": " ".join(row["tags"])}
        for row in ROWS["token_classification"]
    ]
    columns = Columns(kind="token_classification")
    check(load_dataset(folder_of(tmp_path, tagged, ".csv"), columns=columns), columns.kind)
    numbers = folder_of(tmp_path, ROWS["regression"], ".csv")
    check(load_dataset(numbers), "regression")
    whole = [{"text": f"t{number}", "label": number % 3} for number in range(9)]
    assert load_dataset(folder_of(tmp_path, whole, ".csv")).kind.name == "classification"
    rated = load_dataset(numbers, columns=Columns(kind="regression"))
    assert rated.splits["train"].labels == tuple(float(number % 3) for number in range(9))


@pytest.mark.parametrize("form", [list, pd.DataFrame, datasets.Dataset.from_list])
def test_where_texts_stand_beside_their_words_tags_are_of_the_words(form):
    tags = ROWS["token_classification"]
    beside = [{"text": "Ann, of Rome, twice", **row} for row in tags]
    data = {name: form(beside) for name in ("train", "dev", "test")}
    check(load_dataset(data), "token_classification")
    named = [{"text": row["text"], "tokens": row["tokens"], "upos": row["tags"]} for row in beside]
    check(
        load_dataset(
            {"train": form(named), "dev": form(named)}, columns=Columns(label_column="upos")
        ),
        "token_classification",
    )
    trees = [
        {"text": "Ann, of", "tokens": ["Ann", "of"], "head": [0, 1], "deprel": ["root", "case"]}
    ] * 12
    parsed = load_dataset({"train": form(trees), "dev": form(trees)})
    assert parsed.kind.name == "dependency"
    assert set(parsed.splits["train"].texts) == {"Ann of"}
    chosen = load_dataset(
        {"train": form(trees), "dev": form(trees)},
        columns=Columns(text_column="text", kind="dependency"),
    )
    assert set(chosen.splits["train"].texts) == {"Ann, of"}


def test_a_label_beside_texts_and_their_words_is_of_the_text():
    rows = [{**row, "tokens": ["Ann", "of", "Rome"]} for row in ROWS["multi_label"]]
    for data in (rows, datasets.Dataset.from_list(rows)):
        check(load_dataset({"train": data, "dev": data}), "multi_label")
    classes = [{**row, "label": "ab"[len(row["label"]) % 2]} for row in rows]
    assert load_dataset({"train": classes, "dev": classes}).kind.name == "classification"


def test_features_of_datasets_name_the_classes():
    tags = ["O", "B-X", "I-X", "never"]
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=tags)),
        }
    )
    words = [[f"{letter}{number}", "b"] for number in range(5) for letter in "ac"]
    rows = {"tokens": words, "ner_tags": [[0, 1], [1, 2]] * 5}
    found = load_dataset({"train": datasets.Dataset.from_dict(rows, features=features)})
    assert found.label_names == ("B-X", "I-X", "O")
    assert found.splits["train"].kind.name == "token_classification"
    several = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.Sequence(datasets.ClassLabel(names=["x", "y"])),
        }
    )
    rows = {"text": [f"t{number}" for number in range(10)], "label": [[0], [0, 1]] * 5}
    found = load_dataset({"train": datasets.Dataset.from_dict(rows, features=several)})
    assert (found.kind.name, found.label_names) == ("multi_label", ("x", "y"))


CONLL = """-DOCSTART- -X- O O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
CONLLU = """# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\tVB\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tPP\t_\t1\tobj\t_\t_
2.1\tempty\t_\t_\t_\t_\t_\t_\t_\t_

1\t10 000\t10000\tNUM\tCD\t_\t0\troot\t_\t_
"""


def test_conll_columns_and_conll_u(tmp_path):
    for name in ("train", "dev"):
        (tmp_path / f"{name}.conll").write_text(CONLL.replace("\n", "\r\n"))
    found = load_dataset(tmp_path)
    assert found.splits["train"].texts == ("EU rejects", "Peter Blackburn")
    assert [row["label"] for row in found.splits["train"].rows()] == [
        ["B-ORG", "O"],
        ["B-PER", "I-PER"],
    ]
    other = tmp_path / "ud"
    other.mkdir()
    for name in ("train", "dev"):
        (other / f"{name}.conllu").write_text(CONLLU)
    found = load_dataset(other)
    assert found.splits["train"].texts == ("vamos nos", "10\u00a0000")
    assert found.label_names == ("NUM", "PRON", "VERB")
    found = load_dataset(other, columns=Columns(label_column="deprel"))
    assert found.label_names == ("obj", "root")
    (other / "train.conllu").write_text("1\tvamos\tVERB\n")
    with pytest.raises(UserError, match=r"train.conllu:1: 3 columns, but CoNLL-U has 10"):
        load_dataset(other)
    (tmp_path / "train.conll").write_text("EU\n")
    with pytest.raises(UserError, match=r"train.conll:1: a word and its tag are needed: 'EU'"):
        load_dataset(tmp_path)


def tokens(words, tags):
    return {"tokens": words, "tags": tags}


GOOD = tokens(["a", "b"], ["B-X", "O"])
BAD = {
    "not finite": ("regression", [("a", 1.5), ("b", float("inf"))], "finite"),
    "NaN": ("regression", [("a", 1.5), ("b", "nan")], "finite"),
    "no number": ("regression", [("a", 1.5), ("b", "much")], "a number to predict is needed"),
    "true": ("regression", [("a", 1.5), ("b", True)], "a number to predict is needed"),
    "missing number": ("regression", [("a", 1.5), ("b", None)], "missing number"),
    "too large": ("regression", [("a", 1.5), ("b", 1e12)], "at most 1e+09"),
    "all the same": ("regression", [("a", 1.5), ("b", 1.5)], "nothing to learn"),
    "no label at all": ("multi_label", [("a", []), ("b", [])], "nothing to learn"),
    "missing list": ("multi_label", [("a", ["x"]), ("b", None)], "write an empty list"),
    "a label twice": ("multi_label", [("a", ["x", "y"]), ("b", ["x", "x"])], "'x' twice"),
    "a number for a list": ("multi_label", [("a", ["x", "y"]), ("b", 3)], "a list of labels"),
    "an empty label": ("multi_label", [("a", ["x", "y"]), ("b", [""])], "missing label"),
    "tags that do not align": (None, [GOOD, tokens(["a"], ["O", "O"])], "1 words but 2 tags"),
    "no words": (None, [GOOD, tokens([], [])], "empty text"),
    "an empty word": (None, [GOOD, tokens(["a", " "], ["O", "O"])], "has an empty word"),
    "a span that begins with I-": (
        None,
        [GOOD, tokens(["a", "b"], ["O", "I-X"])],
        "word 2 has the tag I-X after O: a span begins with B-",
    ),
    "a span of another type": (
        None,
        [GOOD, tokens(["a", "b"], ["B-Y", "I-X"])],
        "word 2 has the tag I-X after B-Y",
    ),
    "BIOES": (None, [GOOD, tokens(["a", "b"], ["S-X", "O"])], "has BIOES tags"),
    "minus infinity as text": ("regression", [("a", 1.5), ("b", "-inf")], "finite"),
    "beyond double precision": ("regression", [("a", 1.5), ("b", "1e999")], "finite"),
    "a list for a number": ("regression", [("a", 1.5), ("b", [2.5])], "a number to predict is"),
    "null in a list": ("multi_label", [("a", ["x", "y"]), ("b", ["x", None])], "missing label"),
    "a list in a list": ("multi_label", [("a", ["x", "y"]), ("b", [["x"]])], "an example has one"),
    "a fraction in a list": ("multi_label", [("a", ["x", "y"]), ("b", ["x", 0.5])], "a label is"),
    "I- at the first word": (
        None,
        [GOOD, tokens(["a"], ["I-X"])],
        "word 1 has the tag I-X after O",
    ),
    "a null tag": (None, [GOOD, tokens(["a", "b"], ["O", None])], "missing label"),
    "an empty tag": (None, [GOOD, tokens(["a", "b"], ["O", ""])], "missing label"),
    "words without tags": (None, [GOOD, tokens(["a"], [])], "1 words but 0 tags"),
    "null for tags": ("token_classification", [GOOD, tokens(["a"], None)], "a list of tags"),
    "null for words": (None, [GOOD, tokens(None, ["O"])], "empty text"),
    "a word that is no text": (
        "token_classification",
        [GOOD, tokens(["a", 3], ["O", "O"])],
        "words",
    ),
    "no tags": ("token_classification", [GOOD, tokens(["a"], 3)], "needs a list of tags"),
    "no list of words": ("token_classification", [GOOD, tokens(7, ["O"])], "a list of words"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_label_gives_one_line(case, tmp_path):
    kind, rows, expected = BAD[case]
    rows = [row if isinstance(row, dict) else {"text": row[0], "label": row[1]} for row in rows]
    folder = folder_of(tmp_path, rows)
    columns = Columns(kind=kind)
    place = "" if "nothing to learn" in expected or case == "BIOES" else "train.jsonl:2"
    with one_line(UserError, expected, place):
        load_dataset(folder, columns=columns)


def test_an_empty_list_is_a_label_but_no_tags(tmp_path):
    rows = [{"text": "a", "label": ["x", "y"]}, {"text": "b", "label": []}]
    data = load_dataset(folder_of(tmp_path, rows))
    assert data.splits["train"].labels == ((0, 1), ())
    rows = [{"text": "a", "label": "x|y"}, {"text": "b", "label": ""}]
    cells = load_dataset(
        folder_of(tmp_path / "csv", rows, ".csv"), columns=Columns(kind="multi_label")
    )
    assert cells.fingerprint == data.fingerprint


def test_tags_within_a_span_that_train_lacks_are_those_of_its_type(tmp_path):
    """Rare types have spans of one word in a small train, but longer ones elsewhere."""
    folder = folder_of(tmp_path, ROWS["token_classification"])
    (folder / "test.jsonl").write_text(json.dumps(tokens(["a", "b"], ["B-PER", "I-PER"])) + "\n")
    data = load_dataset(folder)
    assert data.label_names == ("B-LOC", "B-PER", "I-PER", "O")
    assert data.splits["test"].labels == ((1, 2),)


def test_labels_that_train_lacks_are_an_error(tmp_path):
    folder = folder_of(tmp_path, ROWS["token_classification"])
    (folder / "test.jsonl").write_text(json.dumps(tokens(["a"], ["B-NEW"])) + "\n")
    with pytest.raises(
        UserError, match=r"test.jsonl:1: test has labels that train lacks: 'B-NEW'"
    ) as error:
        load_dataset(folder)
    assert "--unknown-labels" not in str(error.value), "it is not offered for tags"
    with pytest.raises(UserError, match="unknown_labels count: not offered for"):
        load_dataset(folder, columns=Columns(unknown_labels="count"))


def test_labels_may_be_renamed(tmp_path):
    folder = folder_of(tmp_path, ROWS["multi_label"])
    columns = Columns(labels={"ab": ["a", "b"]})
    found = load_dataset(folder, columns=columns)
    assert found.label_names == ("ab", "c")
    assert found.splits["train"].labels[2:4] == ((0,), (0, 1))
    with pytest.raises(UserError, match="numbers have no names"):
        load_dataset(folder_of(tmp_path, ROWS["regression"]), columns=columns)


def test_pairs_are_refused_for_words_alone(tmp_path):
    pairs = [row | {"text_pair": "other"} for row in ROWS["regression"]]
    assert load_dataset(folder_of(tmp_path, pairs)).splits["train"].text_pairs is not None
    rows = [row | {"text_pair": "other"} for row in ROWS["token_classification"]]
    with pytest.raises(UserError, match="pairs of texts: not offered for token_classification"):
        load_dataset(folder_of(tmp_path, rows))


@pytest.mark.parametrize("name", ROWS)
def test_folds_held_out_parts_and_audits(name, tmp_path):
    dataset = load_dataset(folder_of(tmp_path, ROWS[name]))
    rest, held = hold_out(dataset.splits["train"], 0.25, seed=0)
    assert 0 < len(held) < len(rest)
    assert set(held.texts).isdisjoint(rest.texts)
    folds = [take_fold(dataset, f"{number}/3").splits["test"] for number in (1, 2, 3)]
    assert sorted(text for fold in folds for text in fold.texts) == sorted(
        dataset.splits["train"].texts
    )
    if name == "regression":  # every fold has numbers of every size
        assert all(min(fold.labels) < 1 and max(fold.labels) > 1.5 for fold in folds)
    found = audit(dataset)
    counts = found.splits["train"].labels
    expected = {
        "multi_label": {"a": 9, "b": 6, "c": 3},
        "regression": {"score": 12},
        "token_classification": {"B-LOC": 12, "B-PER": 12, "O": 12},
    }
    assert counts == expected[name]
    assert found.contradictions == 0
