"""A run on renamed labels, with labels in dev and test that train lacks."""

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

import auxlearn
from auxlearn.core.errors import DataError
from auxlearn.data.load import load_dataset
from tests import helpers
from tests.cli.helpers import call, error


@pytest.fixture(scope="module")
def run(tmp_path_factory, encoder_folder):
    """Labels 0, 1, 2, of which 1 and 2 stand for one class; 8 and 9 are in dev and test only."""
    folder = tmp_path_factory.mktemp("labels")
    rows = helpers.rows("", "again", "indeed")
    rows = [{**row, "label": number % 3} for number, row in enumerate(rows)]
    for number in (31, 32, 52, 53, 55):
        rows[number]["label"] = 8 + number % 2
    hard = [{**rows[50], "label": 0}, {**rows[51], "label": 7}]
    parts = {"train": rows[:30], "dev": rows[30:50], "test": rows[50:], "hard": hard}
    helpers.write_splits(folder / "data", **parts)
    results = auxlearn.train(
        dataset=folder / "data",
        labels={"zero": 0, "other": [1, 2]},
        unknown_labels="count",
        encoder=encoder_folder("bert"),
        aux="random_mlm",
        weights={"meta": {"horizon": "steps"}},
        metric="macro_f1",
        epochs=1,
        batch_size=10,
        max_length=32,
        device="cpu",
        output=folder / "run",
    )
    return folder, results


def predictions(folder, name):
    return helpers.read_lines(folder / "run" / "predictions" / f"{name}.jsonl")


@pytest.mark.parametrize(("name", "unknown"), [("dev", 2), ("test", 3)])
def test_metrics_are_those_of_scikit_learn_over_all_labels_that_occur(run, name, unknown):
    folder, results = run
    found = predictions(folder, name)
    truth = [one["label"] for one in found]
    predicted = [one["predicted"] for one in found]
    assert set(predicted) <= {"other", "zero"}
    labels = sorted({*truth, *predicted})
    assert {"8", "9"} <= set(labels)
    scores = results.evaluations[name]
    assert scores.unknown_labels == unknown == sum(one in ("8", "9") for one in truth)
    assert scores.all.accuracy == pytest.approx(accuracy_score(truth, predicted), abs=1e-12)
    expected = f1_score(truth, predicted, labels=labels, average="macro", zero_division=0)
    assert scores.all.macro_f1 == pytest.approx(expected, abs=1e-12)
    assert list(scores.all.per_class) == ["other", "zero", "8", "9"]
    assert scores.all.per_class["8"]["f1"] == 0
    assert np.array(scores.all.confusion).sum() == len(found)
    # Cross-entropy of the examples whose label has a probability.
    known = [one for one in found if one["label"] in ("other", "zero")]
    chance = [one["probabilities"][("other", "zero").index(one["label"])] for one in known]
    assert scores.loss == pytest.approx(-np.log(chance).mean(), abs=1e-6)
    majority = ["other"] * len(truth)
    expected = f1_score(truth, majority, average="macro", zero_division=0)
    assert scores.majority.macro_f1 == pytest.approx(expected, abs=1e-12)


def test_the_model_has_the_classes_of_train_and_everything_says_how_many_are_unknown(run):
    folder, results = run
    assert results.dataset.label_names == ["other", "zero"]
    config = json.loads((folder / "run" / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "other", "1": "zero"}
    assert "their 3 of 22 examples count as wrong" in " ".join(results.dataset.notes)
    sentence = "test: the label of 3 of 22 examples is unknown to the model; they count as wrong"
    assert sentence in (folder / "run" / "model" / "README.md").read_text()
    assert results.to_frame()["unknown_labels"].to_dict() == {"dev": 2, "test": 3, "hard": 1}
    (note, *_) = auxlearn.compare(folder / "run").notes
    assert note == f"data {sentence.replace('the model', 'the models')}"


def test_evaluation_reads_labels_as_the_run_did(run):
    folder, results = run
    again = auxlearn.evaluate(results, folder / "data")["data"]
    assert again.all == results.evaluations["test"].all
    assert again.unknown_labels == 3
    with pytest.raises(DataError, match="no counterpart for"):
        auxlearn.evaluate(results, folder / "data", unknown_labels="error")
    columns = auxlearn.RunConfig(unknown_labels="count").columns
    rows = list(load_dataset(folder / "data", columns=columns).splits["test"].rows())
    # A set that lacks some of the labels, or has the classes themselves, or is mapped by the user.
    few = [row for row in rows if row["label"] in ("0", "1")]
    named = [{**row, "label": {"0": "zero", "1": "other"}[row["label"]]} for row in few]
    scores = auxlearn.evaluate(results, {"few": few, "named": named})
    assert scores["few"].all == scores["named"].all
    given = auxlearn.evaluate(results, few, labels={"zero": "0", "other": "1"})["data"]
    assert given.all.accuracy == scores["few"].all.accuracy
    unseen = [{**row, "label": "new"} if n % 2 else row for n, row in enumerate(named)]
    counted = auxlearn.evaluate(results, unseen)["data"]
    assert counted.unknown_labels == len(unseen) // 2
    helpers.write_splits(folder / "unseen", test=unseen)
    command = ["evaluate", folder / "run", "--dataset", folder / "unseen"]
    assert "is unknown to the model" in call(*command).stdout
    assert "no counterpart for other" in error(*command, "--unknown-labels", "error")
