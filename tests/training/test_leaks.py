"""No label that a run is evaluated on is one that it has been trained on, whichever way."""

import json
import shutil

import numpy as np
import pytest

import auxlearn
from auxlearn.core.errors import UserError
from auxlearn.data.dataset import TextDataset
from auxlearn.data.leaks import FILE, trained_on
from auxlearn.data.load import load_dataset
from auxlearn.plugins import register_task
from auxlearn.tasks.supervised import Supervised
from tests import helpers

ROWS = helpers.rows("", "again", "indeed")
TRAIN, DEV, TEST = ROWS[:36], ROWS[36:48], ROWS[48:60]
OTHER = {"background": "result", "method": "background", "result": "method"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Data, copies of some of its parts as further data, and a run on all of its train split."""
    folder = tmp_path_factory.mktemp("leaks")
    helpers.write_splits(folder / "data", train=TRAIN, dev=DEV, test=TEST)
    upper = [{**row, "text": f" {row['text'].upper()}"} for row in TEST]
    renamed = [{**row, "label": OTHER[row["label"]]} for row in TEST]
    more = ROWS[60:]
    for name, rows in {
        "tested": [*more, *TEST], "upper": [*more, *upper], "renamed": [*more, *renamed],
        "nothing": TEST, "apart": more, "dev": [*more, *DEV], "train": TRAIN,
    }.items():  # fmt: skip
        helpers.write_splits(folder / name, train=rows, dev=more[:3])
    helpers.write_splits(folder / "ood", test=more[:4])
    return folder


@pytest.fixture(scope="module")
def train(place, one_layer):
    def run(output, *, data="data", reporter=None, **more):
        given = {
            "dataset": str(place / data), "encoder": str(one_layer), "epochs": 1, "batch_size": 8,
            "max_length": 24, "device": "cpu", "output": str(output),
        }  # fmt: skip
        return auxlearn.train(reporter=reporter, **given | more)

    return run


@pytest.fixture
def run(train, tmp_path):
    return lambda name="run", **settings: train(tmp_path / name, **settings)


@pytest.fixture(scope="module")
def first(train, place):
    """Folder of a run on the whole train split."""
    return train(place / "first").folder


def said(run, **settings):
    messages = helpers.Messages()
    results = run(reporter=messages, **settings)
    return results, " | ".join(line for line in messages.lines if "evaluated" in line)


def supervised(place, name):
    return [{"supervised": {"datasets": str(place / name)}}]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tested", "supervised: data set tested: 12 of 24 examples are left out"),
        ("upper", "supervised: data set upper: 12 of 24 examples are left out"),
        ("renamed", "the texts of 12 examples are evaluated in this run, with other labels"),
        ("apart", ""),
    ],
)
def test_a_further_set_lacks_what_is_evaluated(run, place, monkeypatch, name, expected):
    batches = []
    prepare = Supervised.prepare

    def kept(self, context):
        prepare(self, context)
        batches.extend(self.sets)

    monkeypatch.setattr(Supervised, "prepare", kept)
    results, line = said(run, aux=supervised(place, name))
    assert expected in line
    assert bool(expected) == bool(line) == any("evaluated" in one for one in results.dataset.notes)
    (found,) = batches
    texts = {text.strip().casefold() for text in found.dataset.splits["train"].texts}
    evaluated = {row["text"].casefold() for row in (*DEV, *TEST)}
    assert bool(texts & evaluated) == (name == "renamed")
    assert len(found.train) == len(found.dataset.splits["train"].texts)


def test_a_set_of_nothing_else_is_refused_and_nothing_is_left(run, place, tmp_path):
    with helpers.one_line(UserError, "data set nothing: all of its examples are evaluated"):
        run(aux=supervised(place, "nothing"))
    assert not (tmp_path / "run").exists()


class Stop(Exception):
    """Ends a run before its first step."""


def test_with_a_fold_the_same_data_give_their_training_part(run, place, monkeypatch, tmp_path):
    trained = []

    def stop(self, *_):
        trained.append(self.texts)
        raise Stop

    monkeypatch.setattr(Supervised, "stream", stop)
    source = shutil.copytree(place / "data", tmp_path / "elsewhere")
    with pytest.raises(Stop):
        run(fold="1/3", aux=[{"supervised": {"datasets": str(source)}}])
    fold = load_dataset(str(place / "data"), fold="1/3")
    assert len(trained[0]) == len(fold.splits["train"]) == 24


def test_sets_in_memory_and_of_plug_ins_are_compared_as_well(run, place):
    @register_task("in_memory")
    class InMemory(Supervised):
        def load(self, context):
            self.loaded = context.load_dataset(str(place / "tested"))
            train = load_dataset(str(place / "upper")).splits
            return {"mine": TextDataset("mine", dict(train))}

    _, line = said(run, aux="in_memory")
    assert "data set mine: 12 of 24" in line
    assert "data set tested: 12 of 24" in line


def test_sets_out_of_distribution_are_evaluated_too(run, place):
    ood = {"dataset": str(place / "ood"), "name": "ood"}
    _, line = said(run, ood=[ood], aux=supervised(place, "apart"))
    assert "4 of 12 examples are left out" in line


def test_validation_examples_are_not_tested_on(run, place, tmp_path):
    file = tmp_path / "chosen.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*DEV, *TEST[:5]]))
    settings = {"aux": "random_mlm", "weights": {"tartan": {"split": str(file)}}}
    results, line = said(run, **settings)
    assert "chosen.jsonl: 5 of 17 examples are left out" in line
    assert any("5 of 17" in note for note in results.dataset.notes)
    file.write_text("".join(json.dumps(row) + "\n" for row in TEST))
    with helpers.one_line(UserError, "chosen.jsonl: all of its examples are evaluated"):
        run("next", **settings)


@pytest.mark.parametrize("way", ["init_from", "pretrained", "chained"])
def test_no_encoder_has_seen_the_labels_that_are_tested(run, first, place, tmp_path, way, capsys):
    keys = trained_on(str(first / "model"))
    assert len(keys) == len(np.unique(keys[:, 1])) == 36
    if way == "init_from":
        auxlearn.evaluate(first, {"mine": place / "data"}, split="train")
        line = "mine: the text of 36 of 36 examples is among those that the run was trained on"
        assert line in capsys.readouterr().err
        auxlearn.evaluate(first, {"mine": place / "data"})
        assert "was trained on" not in capsys.readouterr().err
    settings = {"encoder": str(first / "model")}
    if way == "init_from":
        settings = {"init_from": str(first)}
    elif way == "pretrained":
        auxlearn.pretrain(first / "model", tmp_path / "more", dataset=place / "apart", steps=1)
        settings = {"encoder": str(tmp_path / "more")}
    elif way == "chained":  # by way of other data
        second = run("second", data="apart", encoder=str(first / "model")).folder
        settings = {"encoder": str(second / "model")}
    name = "init_from" if way == "init_from" else "encoder"
    data = shutil.copytree(place / "data", tmp_path / "moved")
    with helpers.one_line(UserError, f"{name}: ", "was trained on 12 of the examples that this"):
        run("next", data=data, fold="1/3", **settings)
    assert not (tmp_path / "next").exists()
    run("whole", **settings)  # its train split is what the encoder knows


def test_a_run_of_the_same_fold_is_a_sound_beginning(run):
    first = run("first", fold="1/3").folder
    run("same", fold="1/3", encoder=str(first / "model"))
    run("own test", encoder=str(first / "model"))
    with pytest.raises(UserError, match="was trained on 12 of"):
        run("other", fold="2/3", encoder=str(first / "model"))


def test_what_further_sets_have_taught_counts(run, place):
    first = run("first", data="apart", aux=supervised(place, "train")).folder
    with pytest.raises(UserError, match="was trained on 12 of"):
        run("next", fold="1/3", encoder=str(first / "model"))


@pytest.mark.parametrize(
    ("loss", "role"),
    [("confidence", "teacher"), ("poe", "bias model")],
)
def test_what_is_cross_fitted_has_not_seen_the_labels(run, first, loss, role):
    model = str(first / "model")
    settings = {"encoder": model, "loss": loss}
    if role == "bias model":
        settings = {"loss": {loss: {"bias": "weak", "bias_encoder": model}}}
    with helpers.one_line(UserError, f"seen the labels of 36 of the examples that the {role} of"):
        run("next", **settings)


def test_a_damaged_record_is_named(run, first, tmp_path):
    model = shutil.copytree(first / "model", tmp_path / "model")
    (model / FILE).write_bytes(b"no keys")
    with helpers.one_line(UserError, f"{FILE}"):
        run("next", encoder=str(model))
