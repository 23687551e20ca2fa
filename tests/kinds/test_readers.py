"""Readers of labels of every kind, labels that stand for others, and bad ones in one line."""

import json

import datasets
import pandas as pd
import pytest

from auxlearn.core.config import RunConfig, load_config
from auxlearn.core.errors import ConfigError, DataError, UserError
from auxlearn.core.settings import Columns, ValidationSource
from auxlearn.data.audit import audit
from auxlearn.data.load import load_dataset
from auxlearn.data.memory import save_folder
from auxlearn.data.ood import map_labels
from auxlearn.data.run_data import load_run_data, with_known_labels
from auxlearn.data.splits import hold_out, take_fold
from tests.cli.helpers import call, error
from tests.helpers import one_line, read_lines, write_splits

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


SPLITS = ("train", "dev", "test")


def folder_of(tmp_path, rows, suffix=".jsonl"):
    folder = tmp_path / "data"
    if suffix == ".jsonl":
        return write_splits(folder, **dict.fromkeys(SPLITS, rows))
    folder.mkdir(exist_ok=True, parents=True)
    for name in SPLITS:
        if suffix == ".parquet":
            pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
        else:
            pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)
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
    save_folder(data, tmp_path / "saved")
    forms = (rows, pd.DataFrame(rows), datasets.Dataset.from_list(rows))
    *given, hub = (dict.fromkeys(SPLITS, form) for form in forms)
    for source in (*given, datasets.DatasetDict(hub), data, tmp_path / "saved"):
        found = load_dataset(source)
        check(found, name)
        assert found.fingerprint == data.fingerprint
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    assert load_dataset(folder_of(tmp_path, rows, ".parquet")).fingerprint == data.fingerprint


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
    def load(rows, **columns):
        return load_dataset(dict.fromkeys(SPLITS, form(rows)), columns=Columns(**columns))

    beside = [{"text": "Ann, of Rome, twice", **row} for row in ROWS["token_classification"]]
    check(load(beside), "token_classification")
    named = [{"text": row["text"], "tokens": row["tokens"], "upos": row["tags"]} for row in beside]
    check(load(named, label_column="upos"), "token_classification")
    tree = {"text": "Ann, of", "tokens": ["Ann", "of"], "head": [0, 1], "deprel": ["root", "case"]}
    parsed = load([tree] * 12)
    assert parsed.kind.name == "dependency"
    assert set(parsed.splits["train"].texts) == {"Ann of"}
    chosen = load([tree] * 12, text_column="text", kind="dependency")
    assert set(chosen.splits["train"].texts) == {"Ann, of"}


def test_a_label_beside_texts_and_their_words_is_of_the_text():
    rows = [{**row, "tokens": ["Ann", "of", "Rome"]} for row in ROWS["multi_label"]]
    for data in (rows, datasets.Dataset.from_list(rows)):
        check(load_dataset({"train": data, "dev": data}), "multi_label")
    classes = [{**row, "label": "ab"[len(row["label"]) % 2]} for row in rows]
    assert load_dataset({"train": classes, "dev": classes}).kind.name == "classification"


def test_features_of_datasets_name_the_classes():
    text = datasets.Value("string")

    def load(rows, names, **features):
        kind = datasets.Sequence(datasets.ClassLabel(names=names))
        given = datasets.Features({name: one or kind for name, one in features.items()})
        return load_dataset({"train": datasets.Dataset.from_dict(rows, features=given)})

    words = [[f"{letter}{number}", "b"] for number in range(5) for letter in "ac"]
    rows = {"tokens": words, "ner_tags": [[0, 1], [1, 2]] * 5}
    tags = ["O", "B-X", "I-X", "never"]
    found = load(rows, tags, tokens=datasets.Sequence(text), ner_tags=None)
    assert found.label_names == ("O", "B-X", "I-X", "never")
    assert found.splits["train"].kind.name == "token_classification"
    rows = {"text": [f"t{number}" for number in range(10)], "label": [[0], [0, 1]] * 5}
    found = load(rows, ["x", "y"], text=text, label=None)
    assert (found.kind.name, found.label_names) == ("multi_label", ("x", "y"))


def test_numbers_beside_names_that_are_numbers_are_refused(tmp_path):
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["1", "2", "3"])}
    )
    rows = {"text": [f"t{number}" for number in range(6)], "label": [0, 1, 2] * 2}
    datasets.Dataset.from_dict(rows, features).to_parquet(tmp_path / "train.parquet")
    pd.DataFrame({"text": ["a", "b"], "label": [1, 2]}).to_parquet(tmp_path / "test.parquet")
    with one_line(DataError, "test.parquet: 1 may be the name of a class, or the number of"):
        load_dataset(tmp_path)


def tokens(words, tags):
    return {"tokens": words, "tags": tags}


#: A good row of each kind, before a bad one.
GOOD = {
    "regression": {"text": "a", "label": 1.5},
    "multi_label": {"text": "a", "label": ["x", "y"]},
    None: tokens(["a", "b"], ["B-X", "O"]),
}
#: Kind, label or row, and what is said of it.
BAD = {
    "not finite": ("regression", float("inf"), "finite"),
    "NaN": ("regression", "nan", "finite"),
    "no number": ("regression", "much", "a number to predict is needed"),
    "too large": ("regression", 1e12, "at most 1e+09"),
    "all the same": ("regression", 1.5, "nothing to learn"),
    "no label at all": ("multi_label", [], "nothing to learn"),
    "a label twice": ("multi_label", ["x", "x"], "'x' twice"),
    "a number for a list": ("multi_label", 3, "a list of labels"),
    "an empty label": ("multi_label", [""], "missing label"),
    "an empty cell beside lists": ("multi_label", " ", "write [] for a text without any"),
    "a list in a list": ("multi_label", [["x"]], "a label is a text"),
    "a fraction in a list": ("multi_label", ["x", 0.5], "a label is"),
    "tags that do not align": (None, tokens(["a"], ["O", "O"]), "1 words but 2 tags"),
    "no words": (None, tokens([], []), "empty text"),
    "an empty word": (None, tokens(["a", " "], ["O", "O"]), "has an empty word"),
    "a null tag": (None, tokens(["a", "b"], ["O", None]), "missing label"),
    "a bracket of OntoNotes": (
        None,
        tokens(["a", "b"], ["(PER*", "*)"]),
        "a bracket of CoNLL-2012",
    ),
    "a tag of two spans": (
        None,
        tokens(["a", "b"], ["B-PER|B-ORG", "O"]),
        "the tag 'B-PER|B-ORG' in column 'tags' is of several spans",
    ),
    "null for tags": ("token_classification", tokens(["a"], None), "a list of tags"),
    "a word that is no text": ("token_classification", tokens(["a", 3], ["O", "O"]), "words"),
    "no list of words": ("token_classification", tokens(7, ["O"]), "a list of words"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_label_gives_one_line(case, tmp_path):
    kind, label, expected = BAD[case]
    bad = label if isinstance(label, dict) else {"text": "b", "label": label}
    first = GOOD.get(kind, GOOD[None])
    if expected == "nothing to learn":
        first = bad | {"text": "a"}
    folder = folder_of(tmp_path, [first, bad])
    place = "" if expected == "nothing to learn" else "train.jsonl:2"
    with one_line(UserError, expected, place):
        load_dataset(folder, columns=Columns(kind=kind))


def test_one_label_that_some_texts_have_is_written_as_two_classes():
    rows = [{"text": f"text {n}", "label": ["spam"] * (n % 2)} for n in range(6)]
    with one_line(DataError, "has one label, 'spam', which some texts have: write two classes"):
        load_dataset({"train": rows, "dev": rows})


def test_a_test_split_of_hidden_lists_is_left_out():
    rows = [{"text": f"text {n}", "label": ["a", "b"][: n % 3]} for n in range(6)]
    hidden = [{"text": "hidden", "label": [-1]}]
    found = load_dataset({"train": rows, "dev": rows, "test": hidden})
    assert set(found.splits) == {"train", "dev"}
    assert any("its labels are hidden" in note for note in found.notes)


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


TEXTS = ("good film", "bad film", "odd film", "fine film", "dull film", "no film")


@pytest.fixture
def folder(tmp_path):
    """Labels 0 to 3 in train, 4 in dev, "x" in test."""
    parts = {"train": [0, 1, 2, 3] * 2, "dev": [1, 2, 4], "test": ["x", 3, 0, "x"]}
    rows = {
        name: [{"text": f"{TEXTS[n % 6]} {n}", "label": label} for n, label in enumerate(labels)]
        for name, labels in parts.items()
    }
    return write_splits(tmp_path, **rows)


def names(split):
    return [split.label_names[label] for label in split.labels]


def test_a_mapped_data_set_is_that_of_renamed_files(folder, tmp_path_factory):
    new = {0: "negative", 4: "negative", 1: "positive", 2: "mixed", 3: "mixed", "x": "mixed"}
    given = {"negative": [0, 4], "positive": 1, "mixed": [2, 3, "x"]}
    other = tmp_path_factory.mktemp("renamed")
    for path in folder.glob("*.jsonl"):
        rows = [row | {"label": new[row["label"]]} for row in read_lines(path)]
        write_splits(other, **{path.stem: rows})
    config = RunConfig(labels=given)
    found = load_dataset(str(folder), columns=config.columns)
    assert found.splits == load_dataset(str(other)).splits
    frames = {
        path.stem: pd.read_json(path, lines=True, dtype=False) for path in folder.glob("*.jsonl")
    }
    assert load_dataset(frames, columns=config.columns).splits == found.splits
    # The map is a setting: it is part of the identity, and config.yaml repeats it.
    assert config.digest != RunConfig().digest
    (other / "config.yaml").write_text(config.to_yaml())
    assert load_config(other / "config.yaml").renamed == {str(k): v for k, v in new.items()}
    options = [f"--labels={name}={old}" for old, name in new.items()]
    shown = call("data", "check", folder, *options, "--json")
    counts = json.loads(shown.stdout)["splits"]["test"]["labels"]
    assert counts == {"mixed": 3, "negative": 1, "positive": 0}


def test_a_built_in_set_is_mapped_as_well():
    plain = load_dataset("pydocs", columns=Columns(text_column="body"))
    found = load_dataset("pydocs", columns=Columns(labels={"arrays": "torch"}))
    assert found.label_names == ("arrays", "numpy", "pandas", "scipy", "sklearn")
    renamed = [name.replace("torch", "arrays") for name in names(plain.splits["dev"])]
    assert names(found.splits["dev"]) == renamed
    assert found.splits["dev"].texts == plain.splits["dev"].texts


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        (
            {"good": 1, "bad": "xx"},
            DataError,
            "labels: the data have no label 'xx' that 'bad' could stand for: did you mean 'x'?",
        ),
        (
            {"good": 1, "bad": [0, 1]},
            ConfigError,
            "the label '1' is given for the class 'bad' and for 'good' as well: a label has one",
        ),
        ({"good": [1, 1]}, ConfigError, "given for the class 'good' and twice"),
        ({"good": []}, ConfigError, "the class 'good' stands for nothing"),
        ({"a\x1b[31m": 1}, ConfigError, "has a control character"),
        ({"good": None}, ConfigError, "labels.good.0: must be text"),
        ({"all": [0, 1, 2, 3]}, DataError, "has a single class, 'all'"),
    ],
)
def test_faulty_maps_are_one_line(folder, labels, kind, message):
    with one_line(kind, message):
        load_dataset(str(folder), columns=RunConfig(labels=labels).columns)


@pytest.mark.parametrize("kind", [None, "classification"])
def test_a_zero_with_a_sign_is_that_without(kind, tmp_path):
    labels = [-0.0, 1.0, 0.0, 1.0] * 3  # as in round(-0.3)
    frame = pd.DataFrame({"text": [f"text {row}" for row in range(12)], "label": labels})
    frame["split"] = ["train"] * 4 + ["dev"] * 4 + ["test"] * 4
    frame.to_csv(tmp_path / "rounded.csv", index=False)
    for source in (frame, str(tmp_path / "rounded.csv")):
        found = load_dataset(source, columns=Columns(kind=kind))
        assert found.label_names == ("0", "1")
        assert names(found.splits["dev"]) == ["0", "1", "0", "1"]


def test_labels_that_train_lacks_are_an_error_unless_they_count(folder):
    with pytest.raises(DataError, match=r"dev has labels that train lacks.*unknown_labels count"):
        load_dataset(str(folder))
    config = RunConfig(dataset=str(folder), unknown_labels="count")
    found = load_dataset(str(folder), columns=config.columns)
    assert found.label_names == ("0", "1", "2", "3")
    assert found.splits["dev"].label_names == ("0", "1", "2", "3", "4")
    assert names(found.splits["dev"]) == ["1", "2", "4"]
    assert names(found.splits["test"]) == ["x", "3", "0", "x"]
    assert (
        "test has labels that train lacks: x; their 2 of 4 examples count as wrong" in found.notes
    )
    # What drives the weights has known labels only.
    data = load_run_data(config, ValidationSource())
    assert names(data.validation) == ["1", "2"]
    assert data.validation.label_names == data.dataset.label_names
    train = data.dataset.splits["train"]
    assert with_known_labels(train, train.label_names) is train
    message = error("data", "check", folder)
    assert "dev has labels that train lacks: '4'" in message
    assert "count as wrong" in call("data", "check", folder, "--unknown-labels", "count").stdout


def test_a_split_without_any_known_label_stays_an_error(folder):
    (folder / "dev.jsonl").write_text('{"text": "a", "label": 7}\n')
    with pytest.raises(DataError, match="dev has labels that train lacks: '7'"):
        load_dataset(str(folder), columns=Columns(unknown_labels="count"))


def test_unknown_labels_of_a_further_set_follow_the_common_classes():
    found = map_labels(("no", "yes"), ("maybe", "No", "yes"), None, "set", "count")
    assert found.label_names == ("no", "yes", "maybe")
    assert (found.targets, found.labels, found.known) == ((0, 1), (2, 0, 1), 2)
    given = {"a": "x", "b": "y", "c": "y"}
    mapped = map_labels(("a", "b", "c"), ("odd", "x", "y"), given, "set", "count")
    assert mapped.label_names == ("x", "y", "odd")
    assert (mapped.targets, mapped.labels, mapped.known) == ((0, 1, 1), (2, 0, 1), 2)
    for unknown in ("error", "count"):
        with pytest.raises(DataError, match="no counterpart"):
            map_labels(("no", "yes"), ("other", "third"), None, "set", unknown)
    with pytest.raises(DataError, match="unknown_labels: count"):
        map_labels(("no", "yes"), ("maybe", "no", "yes"), None, "set")
