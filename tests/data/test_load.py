"""Loading data sets by folder, card, built-in name and hub id."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest

from auxlearn.core.errors import DataError
from auxlearn.core.settings import Columns
from auxlearn.data import hub
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.load import card_names, dataset_names, load_dataset, load_evaluated
from auxlearn.data.tables import read_table
from tests.helpers import write_splits


def write(folder: Path, name: str, texts: list[str]) -> None:
    write_splits(folder, **{name: [{"text": t, "label": i % 2} for i, t in enumerate(texts)]})


def made(name: str, count: int) -> Split:
    texts = tuple(f"{name} {i}" for i in range(count))
    return Split(name, texts, tuple(i % 2 for i in range(count)), ("no", "yes"))


@pytest.fixture(name="asked")
def _asked(monkeypatch):
    """Stand in for the hub; return what it is asked for."""
    asked: list[tuple] = []

    def load_hub(
        hub_id, config=None, split_map=None, columns=None, label_names=None, revision=None
    ):
        asked.append((hub_id, config, split_map, columns, label_names))
        splits = {name: made(name, 100) for name in ("train", "test")}
        return TextDataset(hub_id.split("/")[-1], splits, notes=("from the hub",))

    monkeypatch.setattr(hub, "load_hub", load_hub)
    return asked


@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_single_table_is_read_as_a_frame(tmp_path, suffix, divided):
    frame = pd.DataFrame({"text": [f"text {i}" for i in range(60)], "label": ["no", "yes"] * 30})
    if divided:
        frame["split"] = ["train"] * 20 + ["validation"] * 20 + ["test"] * 20
    path = tmp_path / f"my films.{suffix}"
    write = {"csv": frame.to_csv, "parquet": frame.to_parquet}.get(
        suffix, lambda path, index: frame.to_json(path, orient="records", lines=True)
    )
    write(path, index=False)
    found, wanted = load_dataset(path, seed=3), load_dataset(frame, seed=3)
    assert found.name == "my films"
    assert found.fingerprint == wanted.fingerprint
    assert found.notes == wanted.notes
    evaluated, train = load_evaluated(path, "test")
    assert (len(evaluated), train and len(train)) == ((20, 20) if divided else (60, None))


def test_a_single_table_with_other_splits_is_refused_by_its_name(tmp_path):
    path = tmp_path / "films.csv"
    path.write_text("text,label,split\na,no,trian\nb,yes,dev\n")
    for load, said in (
        (
            lambda: load_dataset(path),
            r"films\.csv has no train split: its splits are trian, dev",
        ),
        (lambda: load_evaluated(path, "test"), r"films\.csv has no split 'test'"),
        (lambda: load_dataset("data/film.csv"), r"there is no file 'data/film\.csv'"),
    ):
        with pytest.raises(DataError, match=said):
            load()


def test_a_column_of_labels_that_is_called_split_divides_nothing(tmp_path):
    frame = pd.DataFrame({"text": [f"text {i}" for i in range(40)], "split": ["no", "yes"] * 20})
    path = tmp_path / "logs.csv"
    frame.to_csv(path, index=False)
    for data in (frame, path):
        found = load_dataset(data, columns=Columns(label_column="split"))
        assert found.splits["train"].label_names == ("no", "yes")
        assert (len(found.splits["train"]), len(found.splits["dev"])) == (36, 4)


def test_results_without_a_test_split_are_not_only_those_on_dev(tmp_path):
    for name in ("train", "testa", "testb"):
        write(tmp_path / "mine", name, [f"{name} {number}" for number in range(20)])
    (tmp_path / "mine" / "new.csv").write_text("text\nwithout a label there is no score\n")
    (note,) = [one for one in load_dataset(tmp_path / "mine").notes if "no test split" in one]
    assert note == (
        "no test split: beside those on testa, testb, the only results are on dev, which also "
        "selects the model"
    )


def test_a_folder_without_train_is_told_what_reads_it(tmp_path):
    write(tmp_path / "hard", "test", [f"text {number}" for number in range(20)])
    told = r"its splits are test \(ood and evaluate need none\)$"
    with pytest.raises(DataError, match=told):
        load_dataset(tmp_path / "hard")
    assert len(load_evaluated(tmp_path / "hard", "test")[0]) == 20


def test_labels_that_test_lacks_are_named_as_in_train(tmp_path):
    for name in ("train", "dev"):
        rows = "".join(f"{name} text {number},{number / 4}\n" for number in range(20))
        (tmp_path / f"{name}.csv").write_text("text,score\n" + rows)
    (tmp_path / "test.csv").write_text("text\nno score\n")
    notes = load_dataset(tmp_path).notes
    assert f"{tmp_path / 'test.csv'}: left out, as it has no label column 'score'" in notes


def test_a_set_that_is_too_small_to_hold_out_dev_is_named(tmp_path):
    write(tmp_path / "small", "train", ["one", "two"])
    with pytest.raises(DataError, match=r"^data set small: split 'train' is too small to hold"):
        load_dataset(tmp_path / "small")


def test_missing_dev_is_held_out_of_train_with_a_note(tmp_path):
    write(tmp_path / "mine", "train", [f"text {i}" for i in range(40)])
    dataset = load_dataset(str(tmp_path / "mine"), seed=5)
    assert (len(dataset.splits["train"]), len(dataset.splits["dev"])) == (36, 4)
    assert dataset.splits["dev"].labels.count(0) == 2
    assert dataset.notes == (
        "no dev split: 4 of the 40 examples of train were held out as dev (stratified, seed 5)",
        "no test split: the only results are on dev, which also selects the model",
    )
    assert load_evaluated(tmp_path / "mine", "dev")[0].notes == (
        "no dev split: 4 of the 40 examples of train were held out as dev (stratified, seed 0)",
    )
    (tmp_path / "mine" / "test.csv").write_text("text\na\n")
    with pytest.raises(DataError, match=r"test\.csv: left out, as "):
        load_evaluated(tmp_path / "mine", "test")
    (tmp_path / "mine" / "test.csv").unlink()
    assert load_dataset(str(tmp_path / "mine"), seed=5).fingerprint == dataset.fingerprint
    assert load_dataset(str(tmp_path / "mine"), seed=6).fingerprint != dataset.fingerprint


def test_a_folder_may_have_the_name_of_a_card(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("imdb"), "train", [f"text {i}" for i in range(20)])
    assert len(load_dataset("imdb").splits["train"]) == 18


def test_dev_held_out_of_test_does_not_depend_on_the_seed(asked):
    first, second = (load_dataset("imdb", seed=seed) for seed in (0, 1))
    sizes = {name: len(split) for name, split in first.splits.items()}
    assert sizes == {"train": 100, "test": 90, "dev": 10}
    assert first.fingerprint == second.fingerprint


def test_card_file_and_a_card_without_a_hub_id_which_says_how_to_make_the_folder(asked, tmp_path):
    command = "`auxlearn data get ohsumed --from PATH --output data/ohsumed`"
    with pytest.raises(DataError, match=rf"ohsumed.*text_gcn.*{command}"):
        load_dataset("ohsumed")
    assert asked == []
    card = tmp_path / "own.yaml"
    card.write_text(
        "{name: own, title: t, description: d, hub: {id: me/own}, label_names: [a, b],"
        " metric: macro_f1, licence: l, paper: p}"
    )
    dataset = load_dataset(str(card))
    assert (dataset.name, dataset.metric, asked[0][0]) == ("own", "macro_f1", "me/own")
    with pytest.raises(DataError, match="there is no file"):
        load_dataset(str(tmp_path / "missing.yaml"))


def test_hub_error_mentions_the_missing_folder(monkeypatch):
    monkeypatch.setattr(hub, "load_hub", Mock(side_effect=DataError("the hub has none")))
    with pytest.raises(DataError, match=r"^there is no folder 'data/mine', and .*the hub has none"):
        load_dataset("data/mine")


@pytest.mark.parametrize("spec", ["./mine", "../mine", "/nowhere/mine", "a/b/c", "mine/", "~/x/y"])
def test_a_path_is_never_looked_up_on_the_hub(asked, spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="there is no folder"):
        load_dataset(spec)
    assert asked == []


def test_names_known_and_unknown(tmp_path, monkeypatch):
    names = dataset_names()
    assert set(names) == {"pydocs", *card_names()}
    assert all(title and "\n" not in title for title in names.values())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"did you mean 'acl_arc'.*a path of a table"):
        load_dataset("ACL-ARC")


def test_evaluation_split_of_a_folder_and_of_a_name(asked, tmp_path):
    write(tmp_path / "eval", "test", ["a", "b"])
    split, train = load_evaluated(str(tmp_path / "eval"), "test")
    assert (split.label_names, train) == (("0", "1"), None)
    split, train = load_evaluated("some/set", "validation")
    assert (split.name, train.name) == ("dev", "train")
    with pytest.raises(DataError, match="has no split 'tset': did you mean 'test'"):
        load_evaluated("some/set", "tset")


def test_cells_of_a_tsv_that_a_csv_writer_has_written_over_lines_are_refused(tmp_path):
    path = tmp_path / "new.tsv"
    frames = {
        "train.tsv": pd.DataFrame({"text": ["a\tb\nc", "two", "three"], "label": ["x", "y", "x"]}),
        "new.tsv": pd.DataFrame({"text": ["one\nmore", 'two "2"\nmore']}),
    }
    for name, frame in frames.items():
        path = tmp_path / name
        frame.to_csv(path, sep="\t", index=False)
        with pytest.raises(DataError, match=rf"{name}:3: a quoted cell has a line break \(a cell"):
            read_table(path)
    # Marks of the texts themselves, which begin and end where a text does.
    for text in ('"Hello,\nI said" loudly', '"The song\nit is "good"', '"one\ntwo'):
        path.write_text(f"text\n{text}\n")
        assert read_table(path).columns["text"] == text.split("\n")
    path.write_text('text\tlabel\n"The song\tx\nit is" good\ty\n')
    assert read_table(path).columns["text"] == ['"The song', 'it is" good']
    path.write_text('text\tlabel\n"The song\tx\nit is good"\ty\nsay "no" twice\tx\n')
    assert read_table(path).columns["label"] == ["x", "y", "x"]
