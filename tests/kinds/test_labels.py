"""Labels that stand for classes of another name, and labels that train lacks."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from auxlearn.core.config import RunConfig, load_config
from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.settings import Columns, ValidationSource
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.load import load_dataset
from auxlearn.data.ood import map_labels
from auxlearn.data.run_data import load_run_data, with_known_labels
from tests.cli.helpers import call, error
from tests.helpers import one_line, read_lines, write_splits

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
        name: pd.read_json(folder / f"{name}.jsonl", lines=True, dtype=False)
        for name in ("train", "dev", "test")
    }
    assert load_dataset(frames, columns=config.columns).splits == found.splits
    # The map is a setting: it is part of the identity, and config.yaml repeats it.
    assert config.digest != RunConfig().digest
    (other / "config.yaml").write_text(config.to_yaml())
    assert load_config(other / "config.yaml").renamed == {str(k): v for k, v in new.items()}
    options = [f"--labels={name}={old}" for old, name in new.items()]
    shown = call("data", "check", folder, *options, "--json")
    assert json.loads(shown.stdout)["splits"]["test"]["labels"] == {
        "mixed": 3,
        "negative": 1,
        "positive": 0,
    }


def test_a_built_in_set_is_mapped_as_well(monkeypatch):
    split = Split("train", TEXTS, (0, 1, 2, 0, 1, 2), ("numpy", "scipy", "torch"))
    built = TextDataset("pydocs", {name: replace(split, name=name) for name in ("train", "dev")})
    monkeypatch.setattr("auxlearn.data.pydocs.build.load_pydocs", lambda **_: built)
    assert load_dataset("pydocs", columns=Columns(text_column="body")).splits == built.splits
    found = load_dataset("pydocs", columns=Columns(labels={"arrays": "torch"}))
    assert found.label_names == ("arrays", "numpy", "scipy")
    assert names(found.splits["dev"]) == ["numpy", "scipy", "arrays"] * 2
    assert found.splits["dev"].texts == TEXTS


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


def test_the_command_line_says_the_same(folder):
    assert "write CLASS=LABEL" in error("data", "check", folder, "--labels", "good")
    message = error("data", "check", folder, "--labels", "a=0", "--labels", "b=0")
    assert "labels: the label '0' is given for the class 'b' and for 'a' as well" in message


def test_labels_that_train_lacks_are_an_error_unless_they_count(folder):
    with pytest.raises(DataError, match=r"dev has labels that train lacks.*--unknown-labels count"):
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
