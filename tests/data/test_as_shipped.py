"""Data sets as their owners ship them: what is read of each form equals what pandas holds."""

from __future__ import annotations

import contextlib
import shutil

import pandas as pd
import pytest
import yaml
from datasets import ClassLabel, Dataset, DatasetDict, List

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import DataError
from auxlearn.data.load import card_names, find_card, load_dataset, load_evaluated
from auxlearn.data.memory import save_folder
from auxlearn.data.run_data import with_found_kind
from tests.data import replicas
from tests.data.hub_server import serve, use_hub
from tests.helpers import one_line

CARDS = [name for name in card_names() if find_card(name).hub is not None]
#: Those that are read without the hub as well: without a README, of a configuration, with hidden
#: labels, of several splits.
OFFLINE = ("sciie", "mnli", "imdb", "anli")


def rows_of(split):
    """The texts and labels of a split, as a frame."""
    labels = [split.kind.written(label, split.label_names) for label in split.labels]
    columns = {"text": split.texts, "text_pair": split.text_pairs, "label": labels}
    return pd.DataFrame({name: values for name, values in columns.items() if values is not None})


def assert_same(found, expected):
    found = found.set_axis(expected.columns, axis=1)
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True), check_dtype=False)


def check(form, spec):
    """Load a form, and compare each split with the frame that it was made of."""
    if form.read.startswith(replicas.REFUSED):
        with one_line(DataError, form.read.removeprefix(replicas.REFUSED)):
            load_dataset(spec, columns=form.columns)
        return
    dataset = load_dataset(spec, columns=form.columns)
    if "dev" not in form.rows:  # which is held out of train
        found = pd.concat([rows_of(dataset.splits[name]) for name in ("train", "dev")])
        found, expected = (
            one.sort_values(by=list(one.columns)) for one in (found, form.rows["train"])
        )
        assert_same(found.reset_index(drop=True), expected)
    else:
        assert set(dataset.everything) == set(form.rows)
    for name, expected in form.rows.items():
        if name != "train" or "dev" in form.rows:
            assert_same(rows_of(dataset.splits[name]), expected)
    labels = form.rows["train"]["label"].explode()
    assert list(dataset.label_names) == (form.names or sorted(set(labels)))
    if "with a note" in form.read:
        assert any("left out" in note for note in dataset.notes)


@pytest.mark.parametrize("form", replicas.FORMS, ids=lambda form: form.given)
def test_files_and_memory(tmp_path, form):
    folder = tmp_path / "set"
    spec = form.write(folder)
    check(form, folder if spec is None else spec)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Repositories, and the caches of who has loaded all, and of who has their files."""
    root = tmp_path_factory.mktemp("hub")
    replicas.write_cards(root / "repositories")
    specs = {form.given: form.write(root / "repositories") for form in replicas.HUB_FORMS}
    with serve(root / "repositories") as address, pytest.MonkeyPatch.context() as patch:
        use_hub(patch, root / "online", address)
        patch.setenv("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
        for spec in (*OFFLINE, *specs.values()):
            with contextlib.suppress(DataError):  # which the tests look at
                load_dataset(spec)
        shutil.copytree(root / "online" / "hub", root / "files" / "hub", symlinks=True)
        shutil.copytree(root / "online" / "datasets", root / "prepared" / "datasets")
        yield root, address, specs


@pytest.fixture(params=["online", "prepared", "files"])
def way(request, hub, monkeypatch):
    """The ways to the hub: it answers, or only what one of the libraries has cached is there."""
    root, address, _ = hub
    use_hub(monkeypatch, root / request.param, address if request.param == "online" else None)
    return request.param


def card_form(name):
    """A card's data set by the frames that its repository was made of."""
    card, frames = find_card(name), replicas.card_frames(name)
    names = dict(zip(replicas.HUB_NAMES.get(name, card.label_names), card.label_names, strict=True))
    frames = {split: rows.replace({"label": names}) for split, rows in frames.items()}
    rows = {
        split: pd.concat([frames[one] for one in hub_splits.split("+")])
        for split, hub_splits in card.hub.splits.items()
    }
    return replicas.Form(name, "", lambda _: name, rows, card.label_names)


@pytest.mark.parametrize(
    ("way", "name"),
    [
        *(("online", name) for name in CARDS),
        *((way, name) for way in ("prepared", "files") for name in OFFLINE),
    ],
    indirect=["way"],
)
def test_cards(way, name):
    card, form = find_card(name), card_form(name)
    if card.hub.dev_from == "test":
        dataset = load_dataset(name)
        assert_same(rows_of(dataset.splits["train"]), form.rows["train"])
        assert len(dataset.splits["dev"]) + len(dataset.splits["test"]) == len(form.rows["test"])
        assert dataset.label_names == tuple(card.label_names)
    else:
        check(form, name)


@pytest.mark.parametrize("form", replicas.HUB_FORMS, ids=lambda form: form.given)
def test_the_hub(way, hub, form):
    if way == "prepared" and not form.prepared:
        return
    if way == "files" and "zip" in form.given:  # none was downloaded
        return
    check(form, hub[2][form.given])


TAGS = ["O", "B-PER", "I-PER"]
#: Columns whose classes have names, in an order of their own, for each kind that has classes.
NAMED = {
    "classification": {"text": ["a b", "c d", "e"] * 8, "label": [1, 0, 1] * 8},
    "multi_label": {"text": ["a b", "c d", "e"] * 8, "labels": [[1, 0], [2], []] * 8},
    "token_classification": {"tokens": [["a", "b"], ["c"]] * 8, "ner_tags": [[1, 2], [0]] * 8},
}


@pytest.mark.parametrize("kind", NAMED)
def test_names_of_classes_are_the_same_wherever_they_come_from(tmp_path, kind):
    column = list(NAMED[kind])[1]
    feature = ClassLabel(names=["pos", "neg"] if kind == "classification" else TAGS)
    made = Dataset.from_dict(NAMED[kind])
    made = made.cast_column(column, feature if kind == "classification" else List(feature))
    data = DatasetDict(train=made, dev=made.select(range(4)), test=made.select(range(4, 9)))
    replicas.parquet(data)(tmp_path / "parquet")
    data.save_to_disk(str(tmp_path / "saved"))
    replicas.write_repository(tmp_path / "repository", {"default": data})
    expected = load_dataset(data)
    assert expected.kind.name == kind
    assert expected.label_names == tuple(feature.names)
    for name in ("parquet", "saved", "repository"):
        assert load_dataset(tmp_path / name).splits == expected.splits
    single, _ = load_evaluated(tmp_path / "parquet" / "test.parquet", "test")
    assert single.labels == expected.splits["test"].labels
    # What a run keeps of data in memory, and what is given again, are the same.
    save_folder(expected, tmp_path / "kept")
    for again in (tmp_path / "kept", expected):
        assert load_dataset(again).fingerprint == expected.fingerprint


def test_a_card_may_name_the_classes_of_the_hub_in_another_order(way, hub, tmp_path):
    card = {
        **{"name": "own", "title": "x", "description": "x", "hub": {"id": "me/parquet"}},
        **{"metric": "accuracy", "licence": "x", "paper": "x"},
    }
    for names in (["neg", "pos"], ["neg", "other"]):
        (tmp_path / "own.yaml").write_text(yaml.safe_dump({**card, "label_names": names}))
        if names[1] == "other":
            with one_line(DataError, "has the classes pos, neg, but the card neg, other"):
                load_dataset(tmp_path / "own.yaml")
        else:
            dataset = load_dataset(tmp_path / "own.yaml")
            assert dataset.label_names == ("neg", "pos")
            assert_same(rows_of(dataset.splits["train"]), replicas.ROWS["train"])


def test_a_run_finds_the_kind_of_a_set_of_the_hub_as_an_audit_does(way, hub):
    for given, kind, metric in (
        ("scores that are all -1.0, as the test split of STS-B", "regression", "pearson"),
        ("Parquet files, with `validation`", None, "accuracy"),
    ):
        config = with_found_kind(RunConfig(dataset=hub[2][given], output="x"), None)
        assert (config.kind, config.metric) == (kind, metric)


def test_the_page_has_the_tables_of_these_tests():
    assert replicas.PAGE.read_text() == replicas.page()
