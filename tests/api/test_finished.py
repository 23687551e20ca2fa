"""``auxlearn.predict``, ``evaluate`` and ``score``, and the files that their commands write."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from pydantic import TypeAdapter
from sklearn.metrics import accuracy_score, f1_score
from transformers import logging

import auxlearn
from auxlearn.core.errors import DataError, UserError
from auxlearn.core.files import read_json
from auxlearn.core.settings import OODSource
from auxlearn.data.ood import load_ood_sets
from auxlearn.evaluation.evaluator import Classifier
from auxlearn.results.record import Evaluation
from tests import helpers
from tests.cli.helpers import call, error, write_run
from tests.results import examples

pytestmark = pytest.mark.filterwarnings("ignore:tokens per text of the texts")  # some are cut

TEXTS = [*helpers.LINES[:4], 'Quoted "words", a comma,\nand a line break.', "日本 and ümlaut"]
ROWS = pd.DataFrame(
    {
        "id": [10, 11, 12, 13, 14, 15],
        "text": TEXTS,
        "label": ["yes", "no"] * 3,
        "score": [0.1, 1.5, -2.25, 1e-9, 3.0, 4.0],
    }
)
ADDED = ["predicted_label", "probability_no", "probability_yes"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, one_layer):
    return write_run(tmp_path_factory.mktemp("runs") / "run", one_layer, dataset="reviews")


@pytest.fixture(scope="module")
def expected(run):
    return Classifier.of_run(run).outputs(TEXTS)


def test_without_a_train_split_nothing_is_said_of_unseen_examples(run, tmp_path):
    both = ROWS.assign(split=["train"] * 3 + ["test"] * 3)
    found = auxlearn.evaluate(run, {"alone": ROWS, "both": both})
    assert found.no_train == ("alone",)
    found.save(tmp_path / "scores.json")
    content = read_json(tmp_path / "scores.json")
    assert content["alone"]["seen_examples"] is content["alone"]["unseen"] is None
    assert content["both"]["seen_examples"] == 0
    assert TypeAdapter(Evaluation).validate_python(content["alone"]) == found["alone"]


def check(frame: pd.DataFrame, expected: np.ndarray) -> None:
    # A batch of another size may be rounded otherwise.
    rtol = 0 if len(expected) == len(TEXTS) else 1e-6
    np.testing.assert_allclose(frame[ADDED[1:]].to_numpy(), expected, rtol=rtol, atol=0)
    assert frame["predicted_label"].tolist() == [("no", "yes")[row.argmax()] for row in expected]


FORMS = {
    "DataFrame": ROWS,
    "list": TEXTS,
    "Series": ROWS["text"],
    "columns": ROWS.to_dict("list"),
    "rows": ROWS.to_dict("records"),
    "Dataset": Dataset.from_pandas(ROWS),
    "Column": Dataset.from_pandas(ROWS)["text"],
}


@pytest.mark.parametrize("form", FORMS)
def test_predictions_of_every_form(run, expected, form):
    found = auxlearn.predict(run, FORMS[form])
    check(found, expected)
    assert found["text"].tolist() == TEXTS
    assert found.index.tolist() == list(range(len(TEXTS)))
    if form not in ("list", "Series", "Column"):
        pd.testing.assert_frame_equal(found[list(ROWS)], ROWS, check_names=False, check_dtype=False)


def test_a_frame_keeps_its_index_types_and_content_and_a_series_its_index(run, expected):
    frame = ROWS.set_index(pd.Index(list("aabcde"), name="key")).astype({"label": "category"})
    before = frame.copy()
    found = auxlearn.predict(run, frame["text"])
    check(found, expected)
    pd.testing.assert_frame_equal(found[["text"]], frame[["text"]])
    found = auxlearn.predict(run, frame)
    check(found, expected)
    pd.testing.assert_frame_equal(found[list(frame)], frame)
    pd.testing.assert_frame_equal(frame, before)


READ = {
    ".csv": pd.read_csv,
    ".tsv": lambda path: pd.read_csv(path, sep="\t"),
    ".jsonl": lambda path: pd.read_json(path, lines=True, precise_float=True),
    ".parquet": pd.read_parquet,
}
WRITE = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, sep="\t", index=False),
    ".jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    ".parquet": lambda frame, path: frame.to_parquet(path),
}


@pytest.mark.parametrize("suffix", READ)
def test_a_table_comes_back_with_its_columns_and_predictions(run, expected, tmp_path, suffix):
    source, output = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    kept = [row for row, text in enumerate(TEXTS) if suffix != ".tsv" or "\n" not in text]
    rows = ROWS.iloc[kept].reset_index(drop=True)
    WRITE[suffix](rows, source)
    before = READ[suffix](source)
    result = call("predict", run, "--file", source, "--output", output)
    assert result.stdout == f"{len(kept)} texts with their predictions: {output}\n"
    found = READ[suffix](output)
    pd.testing.assert_frame_equal(found[list(before)], before)
    assert list(found) == [*before, *ADDED]
    rtol = 1e-12 if len(kept) == len(TEXTS) else 1e-6  # a batch of another size
    np.testing.assert_allclose(found[ADDED[1:]].to_numpy(), expected[kept], rtol=rtol, atol=0)
    again = auxlearn.predict(run, source, output=tmp_path / f"again{suffix}")
    assert (tmp_path / f"again{suffix}").read_bytes() == output.read_bytes()
    check(again, expected[kept])


def test_rows_without_a_text_have_no_prediction_and_blank_lines_are_named(run, tmp_path):
    texts = [helpers.LINES[0], "", helpers.LINES[1], "\u200b"]
    whole = auxlearn.predict(run, [texts[0], texts[2]])
    with pytest.warns(UserWarning, match="without a prediction: 2, the first is .* index 1"):
        found = auxlearn.predict(run, pd.DataFrame({"id": list("abcd"), "text": texts}))
    assert found["predicted_label"].isna().tolist() == [False, True, False, True]
    for missing in (None, float("nan"), pd.NA):
        with pytest.warns(UserWarning, match="without a prediction: 3, the first is .* row 1"):
            labels = auxlearn.predict(run, [missing, *texts])["predicted_label"]
        assert labels.isna().tolist() == [True, False, True, False, True]
    pd.testing.assert_frame_equal(
        found.dropna()[ADDED].reset_index(drop=True),
        whole[ADDED].reset_index(drop=True),
        check_dtype=False,
    )
    for name, lines in (("in.csv", ["text", *texts[:2], texts[2]]), ("in.txt", texts)):
        quoted = [f'"{line}"' if name == "in.csv" else line for line in lines]
        (tmp_path / name).write_text("\n".join(quoted) + "\n")
        for suffix in (".csv", ".jsonl", ".parquet"):
            output = tmp_path / f"out{suffix}"
            result = call("predict", run, "--file", tmp_path / name, "--output", output)
            assert ("in.csv:3" if name == "in.csv" else "left out: line 2 of") in result.stderr
            labels = READ[suffix](output)["predicted_label"]
            assert labels.dropna().tolist() == whole["predicted_label"].tolist()
            assert len(labels) == 2 + (name == "in.csv")
    with pytest.warns(UserWarning, match="left out: line 2 of") as warned:
        assert len(auxlearn.predict(run, tmp_path / "in.txt")) == 2
    assert warned[0].filename == __file__
    assert call("predict", run, "--file", tmp_path / "in.csv").stdout.splitlines()[1] == "\t\t"
    assert "before texts that begin with -, write --" in error("predict", run, "-1 star")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"texts": ["", " "]}, "row 1: empty text in column 'text' (and 1 more)"),
        ({"texts": []}, "contains no text"),
        ({"texts": ROWS, "text_column": "txt"}, "no text column 'txt'.*did you mean 'text'"),
        ({"texts": ROWS.assign(predicted_label="x")}, "has a column 'predicted_label' already"),
        ({"texts": ["a"], "text_pairs": ["b", "c"]}, "differ in length: text 1, text_pair 2"),
        (
            {"texts": ROWS["text"], "text_pairs": ROWS["text"][::-1]},
            "its columns are Series with different indices",
        ),
        ({"texts": ROWS, "text_pairs": ["b"]}, "leave text_pairs out"),
        ({"texts": ["a", "b"], "text_pairs": "ab"}, "text_pairs: give a list .* 'ab' (str)"),
        ({"texts": ["a", "b"], "text_pairs": pd.DataFrame({"x": [1], "y": [2]})}, "give a list"),
        ({"texts": {"train": ROWS}}, "is not a table: give .*, or a datasets.Dataset"),
        ({"texts": ["a"], "output": "out.xlsx"}, "names no format: end it with .jsonl, .csv"),
        ({"texts": ["a\tb"], "output": "out.tsv"}, "a cell with a tab or line break"),
        ({"texts": Path("no.csv")}, "there is no file no.csv"),
    ],
)
def test_mistakes_in_the_texts_are_one_line(run, given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with helpers.one_line(UserError, *message.split(".*")):
        auxlearn.predict(run, **given)
    assert list(tmp_path.iterdir()) == []


def test_the_path_of_a_file_is_no_text(run, tmp_path):
    (tmp_path / "new.csv").write_text("text\na\n")
    for name, (function, first) in product(
        ("new.csv", "missing.csv"), ((auxlearn.predict, run), (auxlearn.score, "tiny"))
    ):
        with pytest.raises(UserError, match=rf"{name}' looks like a file: give a pathlib\.Path"):
            function(first, str(tmp_path / name))
    assert list(auxlearn.predict(run, ["new.csv"]).text) == ["new.csv"]
    for command in (("predict", run), ("score", "--encoder", "tiny")):
        line = error(*command, "a text", "new.csv")
        assert line == "'new.csv' looks like a file: --file reads its texts"
    line = error("predict", run, "-")
    assert line == "- is no text: leave it out, and standard input is read"


def test_threads_leave_what_a_process_has_once_as_it_is(run, expected):
    def state():
        return torch.get_default_dtype(), torch.get_default_device(), logging.get_verbosity()

    before = state()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: auxlearn.predict(run, TEXTS), range(8)))
    assert state() == before
    for frame in found:
        check(frame, expected)


@pytest.fixture(scope="module")
def trained_on(run, tmp_path_factory, one_layer):
    """Runs that recorded whether they were trained on pairs of texts."""
    made = {}
    for pairs in (True, False):
        folder = write_run(tmp_path_factory.mktemp("pairs") / "run", one_layer)
        content = read_json(folder / "results.json")
        content["dataset"]["pairs"] = pairs
        del content["sha256"]
        (folder / "results.json").write_text(json.dumps(content))
        made[pairs] = folder
    return made


def test_a_model_of_pairs_refuses_single_texts(trained_on, tmp_path):
    for arguments in (["a"], ["--file", tmp_path / "in.csv"]):
        ROWS.to_csv(tmp_path / "in.csv")
        message = error("predict", trained_on[True], *arguments)
        assert message.startswith("the run was trained on pairs of texts, but")
    assert len(auxlearn.predict(trained_on[True], ["a"], ["b"])) == 1
    with pytest.raises(DataError, match="generator"):
        auxlearn.predict(trained_on[True], (text for text in "a"), ["b"])
    with pytest.raises(DataError, match="single texts, but the run was trained on pairs"):
        auxlearn.evaluate(trained_on[True], ROWS)
    ROWS.assign(text_pair="b").to_csv(tmp_path / "two.csv")
    shown = call("predict", trained_on[False], "--file", tmp_path / "two.csv", "--json")
    assert "column 'text_pair' is not read: the run was trained on single" in shown.stderr
    assert all("text_pair" not in json.loads(line) for line in shown.stdout.splitlines())
    # A column of the default name is not read by a model of single texts.
    frame = ROWS.assign(text_pair=["", *"bcdef"])
    with pytest.warns(UserWarning, match="column 'text_pair' is not read"):
        found = auxlearn.predict(trained_on[False], frame)
    assert found[ADDED].equals(auxlearn.predict(trained_on[False], ROWS)[ADDED])
    for name in ("label", "text_pair"):  # nothing else is read of such a table
        frame = ROWS.drop(columns="label", errors="ignore").rename(columns={"text": name})
        again = auxlearn.predict(trained_on[False], frame, text_column=name)
        assert again[ADDED].equals(found[ADDED])


def write_set(folder: Path, rows: pd.DataFrame) -> None:
    folder.mkdir()
    rows.to_csv(folder / "test.csv", index=False)


def test_sets_are_evaluated_by_name(run, expected, tmp_path):
    truth = np.array([1, 0] * 3)
    for name in ("a", "b"):
        write_set(tmp_path / name, ROWS)
    arguments = ["--dataset", tmp_path / "a", "--dataset", tmp_path / "b"]
    result = call("evaluate", run, *arguments, "--output", tmp_path / "scores.json")
    written = json.loads((tmp_path / "scores.json").read_text())
    assert list(written) == ["a", "b"]
    assert "\na " in result.stdout
    assert "\nb " in result.stdout
    found = auxlearn.evaluate(run, {"a": tmp_path / "a", "b": ROWS, "c": {"test": ROWS}})
    assert list(found) == ["a", "b", "c"]
    assert found["a"] == found["b"] == found["c"]
    assert found.to_dict()["a"] == written["a"]
    assert auxlearn.evaluate(run, ROWS) == {"data": found["a"]}  # and a second time
    predicted = expected.argmax(1)
    frame = found.to_frame()
    assert frame.loc["b", "accuracy"] == accuracy_score(truth, predicted)
    assert frame.loc["b", "macro_f1"] == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert frame.to_html() == found._repr_html_()
    twice = auxlearn.evaluate(run, [tmp_path / "a", str(tmp_path / "a")])
    assert list(twice) == ["a", "a_2"]


def test_how_a_set_was_read_is_said_wherever_it_is_read(run, tmp_path, capsys):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    rows = Dataset.from_dict({"text": TEXTS, "label": [-1, 0, 1, 0, 1, 0]}, features=features)
    said = "1 examples without a label were left out"
    auxlearn.evaluate(run, {"mine": rows})
    assert f"mine: {said}" in capsys.readouterr().err
    lists = {"text": [f"['a', {n}]" for n in range(6)], "label": ["yes", "no"] * 3}
    auxlearn.evaluate(run, {"mine": lists})
    assert "mine: each text is a list (" in capsys.readouterr().err
    auxlearn.evaluate(run, {"mine": rows}, verbose=False)
    assert capsys.readouterr().err == ""
    auxlearn.pretrain("tiny", tmp_path / "encoder", dataset=rows, steps=1, batch_size=2)
    assert said in capsys.readouterr().err
    rows.to_parquet(tmp_path / "mine.parquet")
    source = OODSource(dataset=str(tmp_path / "mine.parquet"), name="mine")
    _, notes = load_ood_sets([source], "reviews", auxlearn.load_dataset(ROWS[["text", "label"]]))
    assert notes == [f"mine: {said}"]


@pytest.mark.parametrize(
    "texts", [["a", "\ud800"], [{"text": "ok", "k": "\ud800"}], {"text": ["ok"], "\ud800": [1]}]
)
def test_half_of_a_character_is_refused_wherever_it_stands(run, texts):
    with helpers.one_line(DataError, "half of a surrogate pair"):
        auxlearn.predict(run, texts)


def test_what_texts_say_against_how_they_are_read_is_said_of_predictions(run):
    with pytest.warns(UserWarning, match=r"texts that look like a missing value: 1 \('nan'\)"):
        auxlearn.predict(run, ["nan", "a film"])


CUT = ": median 62, 95% have at most 62; 1 of 1 are longer than the 24 of max_length and are cut, "
CUT += "which keeps 38.7% of all tokens"


def test_texts_that_are_cut_are_said_where_they_are_evaluated_or_predicted(run, capsys):
    long = " ".join(["parser"] * 60)  # 62 tokens with [CLS] and [SEP]
    sets = {"long": {"text": [long], "label": ["no"]}, "short": {"text": ["a"], "label": ["no"]}}
    auxlearn.evaluate(run, sets)
    said = [line for line in capsys.readouterr().err.splitlines() if "tokens per text" in line]
    assert [line.removeprefix("note: ") for line in said] == [f"tokens per text of long{CUT}"]
    with pytest.warns(UserWarning, match=f"^tokens per text of the texts{CUT}$"):
        auxlearn.predict(run, long)
    assert f"note: tokens per text of the texts{CUT}\n" in call("predict", run, long).stderr


def test_labels_are_mapped_after_training(run, tmp_path):
    renamed = ROWS.replace({"label": {"yes": "a=b", "no": "other"}})
    plain = auxlearn.evaluate(run, ROWS)["data"]
    with pytest.raises(DataError, match="no counterpart"):
        auxlearn.evaluate(run, renamed)
    mapped = auxlearn.evaluate(run, renamed, labels={"yes": "a=b", "no": "other"})["data"]
    assert mapped.all.accuracy == plain.all.accuracy
    numbers = ROWS.replace({"label": {"yes": "1", "no": "0"}})
    mapped = auxlearn.evaluate(run, numbers, labels={"yes": np.int64(1), "no": 0})["data"]
    assert mapped.all.accuracy == plain.all.accuracy
    write_set(tmp_path / "set", renamed)
    command = ["evaluate", run, "--dataset", tmp_path / "set", "--json", "--labels"]
    found = json.loads(call(*command, "yes=a=b", "--labels", "no=other").stdout)["set"]
    assert found["all"]["accuracy"] == plain.all.accuracy
    assert "no class 'yse': did you mean 'yes'?" in error(*command, "yse=a=b")
    assert "write CLASS=LABEL" in error(*command, "yes")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": ROWS, "split_column": "fold"}, "no column 'fold' that names splits"),
        ({"dataset": {"train": ROWS}, "split": "test"}, "has no split 'test'"),
        ({"dataset": ROWS.drop(columns="label")}, "has no label column 'label'"),
        ({"dataset": ROWS.assign(label=0.5)}, "has the labels 0.5, the model knows no, yes"),
        ({"dataset": []}, "has no rows"),
        ({"dataset": {"../x": "pydocs"}}, "'../x' is not a plain name"),
        ({"dataset": [ROWS, ROWS]}, "a DataFrame in a list of data sets is not a path"),
        ({"dataset": {"test": ROWS, "y": "pydocs"}}, "by other names than those of splits"),
        ({"dataset": {"Test": ROWS, "more": ROWS}}, "as in {'name': {'test': data}}"),
    ],
)
def test_mistakes_in_the_sets_are_one_line(run, given, message):
    with helpers.one_line(UserError, message):
        auxlearn.evaluate(run, **given)


def test_results_stand_for_their_folder_and_are_refused_without_one(run):
    results = auxlearn.load_run(run)
    assert os.fspath(results) == str(run)
    with pytest.raises(UserError, match="holds no predictions"):  # so it is read
        auxlearn.compare(results)
    with pytest.raises(UserError, match="do not know their run folder"):
        auxlearn.predict(examples.results(), ["a"])
    with pytest.raises(UserError, match="there is no run folder"):
        auxlearn.load_run("nowhere")


def test_results_stand_for_their_run_wherever_the_program_goes(run, tmp_path, monkeypatch):
    for place in ("here", "there"):
        shutil.copytree(run, tmp_path / place / "run")
    monkeypatch.chdir(tmp_path / "here")
    results = auxlearn.load_run("run")
    assert os.fspath(results) == "run"
    assert repr(results).startswith("<RunResults in run: ")
    monkeypatch.chdir(tmp_path / "there")
    assert results.folder == Path(os.fspath(results)) == tmp_path / "here" / "run"
    shutil.rmtree(tmp_path / "there" / "run")
    assert len(auxlearn.predict(results, TEXTS)) == len(TEXTS)
    shutil.rmtree(tmp_path / "here")  # the run, and where the program was
    for use in (results.history, lambda: auxlearn.predict(results, TEXTS)):
        with helpers.one_line(UserError, "run folder"):
            use()


@pytest.mark.parametrize("number", [2**60 + 1, 2**63 + 1])
def test_whole_numbers_beside_missing_ones_keep_their_digits(run, tmp_path, number):
    path = tmp_path / "texts.jsonl"
    rows = [{"text": TEXTS[0], "id": number}, {"text": TEXTS[1], "id": None}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame = auxlearn.predict(run, path)
    assert frame["id"][0] == number
    assert frame["id"].isna().tolist() == [False, True]


def test_a_working_folder_that_has_been_deleted_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with helpers.one_line(UserError, "the working folder has been deleted"):
        auxlearn.train(dataset="pydocs", output=tmp_path / "run")
    assert "the working folder has been deleted" in error("list", "tasks")


@pytest.mark.parametrize("changed", [{"seed": 7}, {"trained_on": "other data"}])
def test_results_are_of_no_other_run_that_took_their_folder(run, tmp_path, one_layer, changed):
    results = auxlearn.load_run(shutil.copytree(run, tmp_path / "run"))
    shutil.rmtree(tmp_path / "run")
    if "seed" in changed:
        write_run(tmp_path / "run", one_layer, dataset="reviews", **changed)
    else:  # of equal settings, by which the path of the data alone is known
        again = shutil.copytree(run, tmp_path / "run")
        (again / "metrics.jsonl").write_text("{}\n")
        results.save(again)
    with pytest.raises(UserError, match="holds another run than these results by now"):
        auxlearn.predict(results, TEXTS)


def test_a_run_that_another_has_compared_keeps_no_model(run, tmp_path):
    branch = shutil.copytree(run, tmp_path / "run" / "branches" / "single-task")
    shutil.rmtree(branch / "model")
    with helpers.one_line(UserError, f"single-task is a run that {tmp_path / 'run'} has compared"):
        auxlearn.predict(branch, TEXTS)


SCORED = ["The parser reads a file.", "A tagger learns words."]


@pytest.mark.parametrize("missing", [None, pd.NA, 3])
@pytest.mark.parametrize("make", [list, pd.Series, lambda texts: pd.DataFrame({"text": texts})])
def test_a_missing_value_is_no_text(one_layer, missing, make):
    with helpers.one_line(UserError, "column 'text'"):
        auxlearn.score(one_layer, make(["a", missing]))


def test_blank_lines_of_a_file_that_is_scored_are_said(one_layer, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("\n\n".join(SCORED))
    frame = auxlearn.score(one_layer, tmp_path / "a.txt", level="text")
    assert len(frame) == len(SCORED)
    assert "blank lines are left out: line" in "".join(capsys.readouterr())


def test_a_table_in_memory_is_read_by_its_column(one_layer):
    expected = auxlearn.score(one_layer, SCORED)
    frame = pd.DataFrame({"id": [1, 2], "text": SCORED})
    pd.testing.assert_frame_equal(auxlearn.score(one_layer, frame), expected)
    named = frame.rename(columns={"text": "body"})
    pd.testing.assert_frame_equal(auxlearn.score(one_layer, named, text_column="body"), expected)
    with pytest.raises(UserError, match=r"no column 'text' of texts in .*: known: body, id"):
        auxlearn.score(one_layer, named)


@pytest.mark.parametrize(("text", "level"), [("中文字", "token"), ("x" * 101, "text")])
def test_texts_of_which_the_encoder_knows_nothing_are_an_error_of_one_line(text, level):
    line = error("score", "--encoder", "tiny", "--level", level, text)
    assert "the encoder knows no word or character of" in line
    # Beside others, they have no scores.
    frame = auxlearn.score("tiny", [text, SCORED[0]], level=level)
    assert set(frame["text"]) == {0, 1}
    assert frame.loc[frame["text"] == 0, "log_probability"].isna().all()
