"""Ensembles: means of stored probabilities against those of the models, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas
import pytest
from sklearn.metrics import accuracy_score, f1_score

import auxlearn
from auxlearn.core.errors import ConfigError, UserError
from auxlearn.core.files import read_checked_json, write_checked_json
from auxlearn.core.settings import OODSource
from auxlearn.evaluation.evaluator import Classifier
from tests import helpers
from tests.cli.helpers import call, error, write_split
from tests.helpers import one_line

ROWS = [(text, ("no", "yes")[number % 2]) for number, text in enumerate(helpers.LINES[:18])]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, one_layer):
    """Two seeds on one data set, and a run that says it was of other data or of other labels."""
    folder = tmp_path_factory.mktemp("ensemble")
    for split, part in (("train", ROWS[:8]), ("dev", ROWS[8:12]), ("test", ROWS[12:])):
        write_split(folder / "data" / "reviews" / f"{split}.tsv", part)
    write_split(folder / "away" / "test.tsv", ROWS[12:])
    for seed, name in enumerate("ab"):
        auxlearn.train(
            dataset=folder / "data" / "reviews", encoder=one_layer, seed=seed, epochs=1,
            learning_rate=1e-2, device="cpu", output=folder / name, ood=[folder / "away"],
        )  # fmt: skip
    for name, change in (
        ("copy", {}),
        ("other", {"fingerprint": "feedfacecafebeef"}),
        ("renamed", {"label_names": ["da", "no"]}),
    ):
        results = auxlearn.load_run(shutil.copytree(folder / "a", folder / name))
        replace(results, dataset=replace(results.dataset, **change)).save(folder / name)
    return folder


def test_the_mean_of_stored_probabilities_is_that_of_the_models(runs, monkeypatch):
    members = [runs / name for name in "ab"]
    texts, labels = zip(*ROWS[12:], strict=True)
    alone = [Classifier.of_run(run).outputs(list(texts)) for run in members]
    assert np.ptp(np.stack(alone), axis=0).max() > 1e-3  # the seeds differ
    expected = np.mean(alone, axis=0)
    said = [("no", "yes")[number] for number in expected.argmax(1)]

    monkeypatch.setattr("auxlearn.evaluation.evaluator.load_classifier", None)  # is not used
    found = auxlearn.ensemble(*members)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-7, rtol=0)
    assert found.scores.accuracy == accuracy_score(labels, said)
    assert found.scores.macro_f1 == pytest.approx(f1_score(labels, said, average="macro"))
    single = [auxlearn.load_run(run).evaluations["test"].all for run in members]
    assert list(found.runs.values()) == single
    with one_line(ConfigError, "the runs have no metric 'f2': known: accuracy"):
        found.mean("f2")
    assert found.mean("accuracy") == pytest.approx(np.mean([one.accuracy for one in single]))
    frame = found.to_frame()
    assert list(frame.index) == [*map(str, members), "mean", "ensemble"]
    assert frame.loc["ensemble", "macro_f1"] == found.scores.macro_f1
    table = found.predictions()
    assert list(table["text"]) == list(texts)
    assert list(table["predicted_label"]) == said
    np.testing.assert_array_equal(table["probability_yes"], found.probabilities[:, 1])


def test_the_command_writes_what_predict_writes(runs, tmp_path):
    out = tmp_path / "ensemble.csv"
    done = call("ensemble", runs / "a", runs / "b", "--split", "validation", "--output", out)
    assert done.exit_code == 0
    assert "dev, 4 examples" in done.stdout
    assert str(out) in done.stdout
    found = auxlearn.ensemble(runs / "a", runs / "b", split="dev")
    pandas.testing.assert_frame_equal(
        pandas.read_csv(out), found.predictions().rename_axis(None), rtol=1e-12
    )
    call("predict", runs / "a", "--file", runs / "data/reviews/dev.tsv", "--output", out)
    assert list(pandas.read_csv(out).columns) == list(found.predictions().columns)
    printed = json.loads(call("ensemble", runs / "a", runs / "b", "--json").stdout)
    assert printed["mean"].keys() == {"accuracy", "macro_f1"}
    assert len(printed["runs"]) == 2


def test_a_set_whose_name_leads_out_of_the_folder_is_damage_for_every_reader(runs, tmp_path):
    members = [shutil.copytree(runs / name, tmp_path / name) for name in "ab"]
    for run in members:
        content = read_checked_json(run / "results.json")
        content["evaluations"]["../../secret"] = content["evaluations"]["test"]
        write_checked_json(run / "results.json", content)
        shutil.copy(run / "predictions" / "test.jsonl", tmp_path / "secret.jsonl")
    readers = [
        lambda: auxlearn.ensemble(*members, split="../../secret"),
        lambda: auxlearn.load_run(members[0]),
        lambda: auxlearn.report(members[0]),
        lambda: auxlearn.compare(*members),
    ]
    for reader in readers:
        with pytest.raises(UserError, match=r"results\.json is damaged .*is not a plain name"):
            reader()


def test_labels_of_the_most_likely_class_have_no_mean(runs, monkeypatch):
    """With decision argmax, a label is predicted whose classes together may be less likely."""
    from auxlearn.comparison.ensemble import RunFolder, _check_decision

    config = RunFolder(runs / "a").read_config()
    sets = (OODSource(dataset="hard", decision="argmax"),)
    config = config.model_copy(update={"ood": sets})
    monkeypatch.setattr(RunFolder, "read_config", lambda folder: config)
    with pytest.raises(UserError, match=r"predicted 'hard' by the most likely class .*decision"):
        _check_decision(runs / "a", "hard", np.array([1]), np.array([[0.6, 0.4]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "at least two runs"),
        (["a", "b", "a"], "is given twice"),
        (["a", "copy"], "have the same settings and seed: leave one out"),
        (["a", "other"], "trained on different data or splits"),
        (["a", "renamed"], "have different labels (no, yes; da, no)"),
        (["a", "nowhere"], "there is no run folder"),
        (["a", "b", "--split", "tset"], "no predictions for 'tset': did you mean 'test'"),
        (["a", "b", "--method", "STL"], "is a method of one sweep"),
        (["a", "b", "--output", "table.xls"], "names no format"),
    ],
)
def test_refused_in_one_line(runs, monkeypatch, arguments, message):
    monkeypatch.chdir(runs)
    assert message in error("ensemble", *arguments)


@pytest.mark.parametrize(("split", "file"), [("test", "data/reviews"), ("away", "away")])
def test_texts_are_written_only_if_the_data_have_not_changed(runs, tmp_path, split, file):
    found = auxlearn.ensemble(runs / "a", runs / "b", split=split)
    assert list(found.predictions()["text"]) == [text for text, _ in ROWS[12:]]
    path = runs / file / "test.tsv"
    before = path.read_text()
    text = ROWS[12][0]
    path.write_text(before.replace(text, f"{text} indeed"))  # the labels are the same
    try:
        with pytest.raises(UserError, match="has changed since the runs were trained"):
            found.save(tmp_path / "table.csv")
        assert not (tmp_path / "table.csv").exists()
        assert auxlearn.ensemble(runs / "a", runs / "b", split=split).scores == found.scores
    finally:
        path.write_text(before)


def test_texts_are_not_those_of_runs_that_have_taken_the_place_of_others(runs, tmp_path):
    for name in "ab":
        shutil.copytree(runs / name, tmp_path / name)
    found = auxlearn.ensemble(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    shutil.copytree(runs / "b", tmp_path / "a")
    with one_line(UserError, "holds another run than these results by now"):
        found.predictions()
