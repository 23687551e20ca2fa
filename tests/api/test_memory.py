"""Training on data in memory: the results of the same data in files, saved with the run."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
import yaml
from datasets import Dataset, DatasetDict

import auxlearn
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, DataError, RunError, UserError
from auxlearn.core.files import content_digest
from auxlearn.core.settings import Columns
from tests import helpers
from tests.cli.helpers import call

ROWS = [
    {"split": split, "text": f"{line} {extra}".strip(), "label": helpers.LABELS[n % 3], "id": n}
    for extra, split in (("", "train"), ("again", "dev"), ("indeed", "test"))
    for n, line in enumerate(helpers.LINES[:12])
]
FRAME = pd.DataFrame(ROWS)
PLAIN = FRAME.drop(columns="split")


def write_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for split, part in FRAME.groupby("split"):
        part.drop(columns="split").to_csv(folder / f"{split}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def settings(one_layer):
    return {
        "encoder": one_layer,
        "aux": "random_mlm",
        "weights": {"meta": {"horizon": "steps"}},
        "epochs": 2,
        "batch_size": 4,
        "eval_steps": 2,
        "learning_rate": 1e-3,
        "device": "cpu",
    }


def weights(run: Path) -> str:
    return content_digest(run / "model" / "model.safetensors")


@pytest.fixture(scope="module")
def from_files(settings, tmp_path_factory):
    """A run on files, the reference of all others."""
    place = tmp_path_factory.mktemp("files")
    return auxlearn.train(dataset=write_folder(place / "reviews"), output=place / "run", **settings)


def test_the_first_argument_is_the_data_set_and_the_history_a_frame(from_files, settings, tmp_path):
    given = {**settings, "dataset_name": "reviews", "output": tmp_path / "run", "verbose": False}
    results = auxlearn.train(FRAME, **given)
    assert results.evaluations == from_files.evaluations
    predictions = helpers.read_lines(tmp_path / "run" / "predictions" / "test.jsonl")
    assert [line["id"] for line in predictions] == [str(n) for n in range(12)]
    history = results.history()
    rows = helpers.read_lines(tmp_path / "run" / "metrics.jsonl")
    assert list(history.index) == [row["step"] for row in rows]
    evaluated = history[history["kind"] == "eval"]
    assert evaluated["dev/accuracy"].max() == results.best.value
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunError, match=r"run folder .* does not exist"):
        results.history()
    with pytest.raises(ConfigError, match="config is the data set, which is given once"):
        auxlearn.train(FRAME, dataset=FRAME)


def test_further_columns_do_not_take_the_place_of_text_and_label():
    body = FRAME.rename(columns={"text": "body", "label": "topic"}).assign(second="x")
    columns = Columns(text_column="body", text_pair_column="second", label_column="topic")
    plain = auxlearn.load_dataset(body, columns=columns)
    named = body.assign(text="other", text_pair="third", label=["x", "y"] * 18)
    loaded = auxlearn.load_dataset(named, columns=columns)
    assert loaded.splits["train"].meta.keys() == {"text", "text_pair", "label", "id"}
    assert auxlearn.load_dataset(loaded).fingerprint == plain.fingerprint
    assert loaded.to_frame().equals(plain.to_frame())
    # With the names of the columns they keep their own.
    assert auxlearn.load_dataset(loaded, columns=columns).fingerprint == loaded.fingerprint


FORMS = {
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "Series of polars": lambda columns: {name: pl.Series(v) for name, v in columns.items()},
    "splits": lambda columns: {"train": pl.DataFrame(columns)},
}
WORDS = {"tokens": [[word, "b"] for word in "acdefghijk"], "tags": [["X", "Y"]] * 10}


@pytest.mark.parametrize("columns", [PLAIN.to_dict("list"), WORDS], ids=["classes", "words"])
@pytest.mark.parametrize("form", FORMS)
def test_tables_of_other_libraries_are_the_lists_that_they_hold(form, columns):
    expected = auxlearn.load_dataset(columns).fingerprint
    assert auxlearn.load_dataset(FORMS[form](columns)).fingerprint == expected


def test_what_the_caller_has_switched_in_torch_changes_no_digit(from_files, settings, tmp_path):
    def used():
        run = from_files.folder
        yield auxlearn.predict(run, FRAME["text"])
        yield auxlearn.evaluate(run, FRAME).to_frame()
        yield auxlearn.score("tiny", list(FRAME["text"]), level="text", verbose=False)

    expected = list(used())
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            found = auxlearn.train(dataset=FRAME, output=tmp_path / "run", **settings)
            again = list(used())
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device().type == "meta"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert weights(found.folder) == weights(from_files.folder)
    for one, other in zip(again, expected, strict=True):
        assert one.equals(other)


def test_a_run_from_memory_is_that_from_files_to_the_last_bit(from_files, settings, tmp_path):
    run = tmp_path / "run"
    found = auxlearn.train(dataset=FRAME, dataset_name="reviews", output=run, **settings)
    assert found.folder == run
    assert found.dataset == from_files.dataset
    assert found.evaluations == from_files.evaluations
    assert found.weights == from_files.weights
    assert weights(run) == weights(from_files.folder)
    name = "metrics.jsonl"
    assert (run / name).read_bytes() == (from_files.folder / name).read_bytes()
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["dataset"] == str(run / "data" / found.dataset.fingerprint / "reviews")
    saved = auxlearn.load_dataset(config["dataset"])
    assert saved.fingerprint == found.dataset.fingerprint
    # The saved configuration repeats the run without the data in memory.
    repeated = tmp_path / "repeated"
    call("train", "--config", run / "config.yaml", "--output", repeated)
    assert weights(repeated) == weights(run)
    # The same call returns the finished run; other data are refused.
    again = auxlearn.train(dataset=FRAME, dataset_name="reviews", output=run, **settings)
    assert again == found
    with pytest.raises(RunError, match=r"it has dataset .*, not "):
        auxlearn.train(dataset=FRAME[:-1], dataset_name="reviews", output=run, **settings)


def test_a_run_on_data_in_memory_is_known_wherever_its_folder_is(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = settings | {"epochs": 1, "aux": (), "weights": "fixed", "dataset": FRAME}
    helpers.kill_before_step(2, output="run", **given)
    # Unfinished, it resumes by its own configuration after it has been moved.
    Path("run").rename("moved")
    call("train", "--config", "moved/config.yaml", "--output", "moved")
    found = auxlearn.load_run("moved")
    for output in ("moved", tmp_path / "moved", "./moved/"):
        assert auxlearn.train(output=output, **given) == found
    Path("moved").rename("again")
    assert auxlearn.train(output="again", **given) == found
    # What reads the data of a run again finds them.
    elsewhere = auxlearn.train(output="elsewhere", **given)
    assert elsewhere.config["dataset"] != found.config["dataset"]
    assert elsewhere.reproducible() == found.reproducible()
    other = auxlearn.train(output="other", **{**given, "seed": 7})
    assert other.folder == tmp_path / "other"  # also after the program has changed its folder
    table = auxlearn.ensemble("again", other).predictions()
    assert list(table["text"]) == list(FRAME[FRAME["split"] == "test"]["text"])


def test_a_label_map_is_of_the_run_as_it_is_with_files(from_files, settings, tmp_path):
    """Further sets in memory are read with the map of the run, which a saved copy follows too."""
    given = dict(zip(helpers.LABELS, (1, 2, 3), strict=True))
    numbered = FRAME.assign(label=FRAME["label"].map(given).astype(str))
    run = tmp_path / "run"
    helpers.kill_before_step(3, dataset=numbered, labels=given, output=run, **settings)
    call("train", "--config", run / "config.yaml", "--output", run)
    found = auxlearn.train(dataset=numbered, labels=given, output=run, **settings)
    assert weights(run) == weights(from_files.folder)
    assert found.config["labels"] == {name: [str(label)] for name, label in given.items()}
    test = numbered[numbered["split"] == "test"].drop(columns="split")
    assert auxlearn.evaluate(found, test)["data"].all == found.evaluations["test"].all


def test_without_an_output_the_folder_follows_from_the_data(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for data in (FRAME, FRAME, FRAME[1:]):
        helpers.kill_before_step(0, dataset=data, **settings)
    names = sorted(path.name for path in Path("runs").iterdir())
    assert len(names) == 2
    assert all(name.startswith("data-") for name in names)


changed = FRAME.assign
TWICE = pd.concat([FRAME, FRAME["text"]], axis=1)
NAN = changed(label=[*FRAME["label"][:-1], float("nan")])
MISTAKES = {
    "no label column": (
        FRAME.rename(columns={"label": "lable"}),
        "has no label column 'label': its columns are text, lable, id; did you mean 'lable'",
    ),
    "no train": (
        FRAME.replace({"split": {"train": "trian"}}),
        "data in memory has no train split: its splits are trian, dev, test",
    ),
    "split of no name": (changed(split=[None, *FRAME["split"][1:]]), "index 0: column 'split'"),
    "label NaN": (NAN, "index 35: missing label in column 'label'"),
    "several labels": (
        changed(label=[*FRAME["label"][1:], ["a", "b"]]),
        "holds ['a', 'b']: an example has one label; several are one list in JSON",
    ),
    "label lists of datasets": (
        DatasetDict(train=Dataset.from_dict({"text": ["a", "b"], "label": [["x", "x"], ["y"]]})),
        "names the label 'x' twice",
    ),
    "two columns of one name": (TWICE, "two columns are called 'text': rename one"),
    "two columns of one name in pyarrow": (
        pa.table([["a", "b"]] * 3, names=["text", "label", "label"]),
        "data in memory: two columns are called 'label': rename one",
    ),
    "no columns": (pd.DataFrame(), "has no rows"),
    "columns of other lengths": ({"text": ["a"], "label": [1, 2]}, "text 1, label 2"),
    "half a character": (
        {"text": ["a", "\ud800"], "label": ["x", "y"]},
        "row 2: column 'text': half of a",
    ),
    "a split without a name": ({"train": PLAIN, None: PLAIN}, "memory: None names no split: write"),
    "a split of missing values": ({"train": PLAIN, float("nan"): PLAIN}, "nan names no split"),
    "columns of two levels": (
        pd.concat({"a": PLAIN}, axis=1),
        "the columns of the DataFrame have 2 levels: keep one, as by droplevel(0, axis=1)",
    ),
    "a frame as a dictionary of columns": (
        PLAIN.to_dict(),
        "split 'text' of data in memory: ",
    ),
    "lists of texts and of labels as splits": (
        {"train": (["a", "b"], [0, 1]), "test": (["c"], [0])},
        "split 'train' of data in memory: (['a', 'b'], [0, 1]) (tuple) is not a table: give a Data",
    ),
    "a path as a split": ({"train": PLAIN, "../x": PLAIN}, "'../x' is not a plain name"),
    "two dev splits": ({"train": PLAIN, "dev": PLAIN, "Dev": PLAIN}, "'dev', 'Dev' are one split"),
    "splits in the index": (
        FRAME.set_index("split"),
        "'split' is the index of the DataFrame, which is not read: make it a column",
    ),
    "answers of annotators": (
        PLAIN.assign(answer=["accept"] * (len(PLAIN) - 2) + ["ignore", "reject"]),
        "column 'answer' holds 'ignore' (and 1 more): delete rows whose label is not accepted",
    ),
    "splits by other words": (
        PLAIN.assign(Usage=["Training"] * (len(PLAIN) - 2) + ["PublicTest", "PrivateTest"]),
        "column 'Usage' holds PrivateTest, PublicTest, Training: if it divides the table",
    ),
    "a transform": (
        Dataset.from_pandas(PLAIN).with_transform(lambda rows: rows),
        "data in memory has a transform (set_transform), which would not be applied: apply it",
    ),
    "a class": (pd.DataFrame, "(type) is not a data set: give a DataFrame"),
    "no text column": (PLAIN.drop(columns="text"), "(another column is named with text_column)"),
    "a number": (3, "3 (int) is not a data set: give a DataFrame"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_data_is_one_line_and_leaves_nothing(mistake, settings, tmp_path):
    data, message = MISTAKES[mistake]
    with helpers.one_line(DataError, *message.split(".*")):
        auxlearn.train(dataset=data, output=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": -1}, "epochs: "),
        ({"aux": ["randm_mlm"]}, "randm_mlm"),
        ({"epoch": 3}, "unknown key 'epoch'"),
        ({"dataset": FRAME}, "dataset: "),
    ],
)
def test_a_copy_of_settings_with_a_mistake_is_refused(changed, message, tmp_path):
    config = auxlearn.RunConfig(encoder="tiny", output=tmp_path / "run")
    with pytest.raises(UserError, match=message):
        auxlearn.train(config.model_copy(update=changed))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fixed_alpha": 0.3}, "fixed_alpha: write weights={'fixed': {'alpha': ...}}"),
        ({"weights": "fixed", "alpha": 0.3}, "alpha: write weights={'fixed': {'alpha': ...}}"),
        ({"corpus": "a.txt"}, "corpus: write aux={'random_mlm': {'corpus': ...}}"),
        ({"aux": ["l3mask"], "corpus": "a.txt"}, "corpus: write aux={'l3mask': {'corpus': ...}}"),
        ({"aux": "l3mask", "alpha": 0.3}, "unknown key 'alpha'"),
    ],
)
def test_an_option_is_refused_with_what_python_writes(settings, message):
    with helpers.one_line(ConfigError, message):
        auxlearn.train("pydocs", **{"aux": "random_mlm"} | settings)


def test_a_test_split_without_rows_is_left_out_as_such():
    found = auxlearn.load_dataset({"train": PLAIN, "dev": PLAIN, "test": PLAIN[:0]})
    assert "split 'test' of data in memory: left out, as it has no rows" in found.notes


@pytest.mark.parametrize("given", [{"labels": 3}, {"foo": 3}])
def test_a_mistake_in_columns_is_one_line(given):
    with helpers.one_line(ConfigError, f"settings: {'unknown key ' * ('foo' in given)}"):
        Columns(**given)


def test_a_stream_is_no_data_set():
    stream = Dataset.from_pandas(FRAME).to_iterable_dataset()
    for data in (stream, {"train": stream}):
        with helpers.one_line(DataError, "IterableDataset is a stream"):
            auxlearn.load_dataset(data)


def test_a_run_that_fails_leaves_its_folder_free_also_for_a_thread(from_files, settings, tmp_path):
    run = tmp_path / "run"
    missing = settings | {"aux": {"random_mlm": {"corpus": tmp_path / "nowhere.txt"}}}
    with pytest.raises(UserError, match=r"nowhere\.txt"):
        auxlearn.train(dataset=FRAME, output=run, **missing)
    assert not run.exists()
    config = auxlearn.RunConfig(output=run, **settings)
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(auxlearn.train, config, dataset=FRAME).result()
    assert found.folder == run
    assert found.evaluations == from_files.evaluations


def test_columns_may_hold_mappings_and_arrays_of_two_dimensions():
    texts = [f"text {number}" for number in range(20)]
    rows = {"text": texts, "label": ["a", "b"] * 10, "meta": [{"id": 1}] * 20}
    assert auxlearn.load_dataset(rows).label_names == ("a", "b")
    found = auxlearn.load_dataset({"text": texts, "label": np.eye(2, dtype=int)[[0, 1] * 10]})
    assert found.kind.name == "multi_label"


def test_settings_without_effect_are_refused_in_a_configuration_object():
    with helpers.one_line(ConfigError, "lora_alpha: it has no effect without lora_rank"):
        auxlearn.train(RunConfig(dataset="pydocs", lora_alpha=32))
