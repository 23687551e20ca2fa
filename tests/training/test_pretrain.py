"""Masked language modelling before fine-tuning: where its text comes from."""

import os
import shutil
import signal
from math import nan
from unittest.mock import Mock

import pytest
from transformers import BertModel

from auxlearn.core import errors
from auxlearn.core.errors import DataError, RunError, UserError
from auxlearn.encoders.load import load_encoder
from auxlearn.tasks.random_mlm import RandomMLM
from auxlearn.training import pretrain as module
from auxlearn.training.pretrain import pretrain
from tests import helpers


def test_the_texts_of_a_table_come_from_the_named_column(tmp_path, encoder_folder):
    helpers.write_splits(tmp_path, corpus=[{"body": line} for line in helpers.LINES[:6]])
    settings = {"corpus": tmp_path / "corpus.jsonl", "steps": 1, "batch_size": 2, "device": "cpu"}
    encoder = str(encoder_folder("bert"))
    with pytest.raises(DataError, match="text_column"):
        pretrain(encoder, tmp_path / "refused", **settings)
    made = pretrain(encoder, tmp_path / "made", text_column="body", **settings)
    assert made.texts == 5  # one is held out


#: Train splits whose labels no model could be trained on, or that have none.
WITHOUT_LABELS = {
    "texts alone": {"text": list(helpers.LINES)},
    "empty labels": {"text": list(helpers.LINES), "label": [None] * len(helpers.LINES)},
    "a single class": {"text": list(helpers.LINES), "label": ["a"] * len(helpers.LINES)},
    "words": {"tokens": [line.split(" ") for line in helpers.LINES]},
}


@pytest.mark.parametrize("table", WITHOUT_LABELS.values(), ids=WITHOUT_LABELS)
def test_texts_of_a_data_set_need_no_labels(table, tmp_path, encoder_folder):
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    helpers.write_splits(tmp_path / "data", train=rows)
    encoder, messages = str(encoder_folder("bert")), helpers.Messages()
    settings = {"steps": 1, "batch_size": 2, "device": "cpu", "reporter": messages}
    for number, dataset in enumerate((tmp_path / "data", {"train": table})):
        made = pretrain(encoder, tmp_path / str(number), dataset=dataset, **settings)
        assert made.texts == len(helpers.LINES) - 1  # one is held out
    assert sum("the texts of train are read without labels" in n for n in messages.lines) == 2
    for names in ("n", "label", "body, label"):
        train = {name: ["a", "b"] for name in names.split(", ")}
        with pytest.raises(DataError, match=f"has no text column 'text': its columns are {names}"):
            pretrain(encoder, tmp_path / "refused", dataset={"train": train})


def test_a_head_that_the_encoder_lacks_is_said(tmp_path, one_layer):
    encoder = tmp_path / "headless"
    shutil.copytree(one_layer, encoder)
    BertModel.from_pretrained(one_layer).save_pretrained(encoder)
    said = []
    for place in (one_layer, encoder):
        messages = helpers.Messages()
        settings = {"corpus": list(helpers.LINES), "steps": 1, "reporter": messages}
        pretrain(str(place), tmp_path / f"of {place.name}", **settings)
        said.append(sum("no masked-language-model head" in line for line in messages.lines))
    assert said == [0, 1]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(helpers.LINES) + "\n")
    return path


@pytest.fixture(scope="module")
def tapt(one_layer, corpus):
    def run(output, **options):
        settings = {"corpus": corpus, "steps": 6, "batch_size": 4, "max_length": 32, **options}
        return pretrain(str(one_layer), output, learning_rate=1e-3, device="cpu", **settings)

    return run


@pytest.fixture(scope="module")
def finished(tapt, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "encoder"
    return folder, tapt(folder)


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_folder_holds_the_encoder_its_manifest_and_its_record(finished):
    folder, results = finished
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "manifest.json", "pretraining.json"} <= names
    assert not [name for name in names if name.startswith(".") or name == "checkpoint"]
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {0o666 & ~os.umask(os.umask(0o022))}
    assert results.loss_after < results.loss_before
    load_encoder(str(folder), ["a", "b"])


def test_a_finished_pretraining_is_not_repeated(finished, tapt, monkeypatch):
    folder, results = finished
    before = contents(folder)
    monkeypatch.setattr(module, "load_encoder", None)
    again = tapt(folder)
    assert again.seconds == 0
    assert (again.loss_after, again.accuracy_after) == (results.loss_after, results.accuracy_after)
    assert contents(folder) == before


KILLED = Mock(side_effect=SystemExit)


@pytest.mark.parametrize("steps", [5, 6])
def test_a_killed_pretraining_ends_with_the_same_bytes(
    finished, tapt, tmp_path, monkeypatch, steps
):
    """Killed after some steps, with a checkpoint at every step, or in the export."""
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 0.0)
    made = []
    real = RandomMLM.loss

    def loss(*arguments):
        if len(made) == steps:
            raise SystemExit
        made.append(1)
        return real(*arguments)

    monkeypatch.setattr(RandomMLM, "loss", loss)
    if steps == 6:
        monkeypatch.setattr(module.PretrainFolder, "finish", KILLED)
    with pytest.raises(SystemExit):
        tapt(tmp_path / "out")
    monkeypatch.undo()
    (tmp_path / "out" / ".config.json.1a2b3c4d.part").write_text("half")
    results = tapt(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(finished[0])
    assert results.loss_before == finished[1].loss_before


def test_a_signal_writes_a_checkpoint(finished, tapt, tmp_path, monkeypatch, capsys):
    real = RandomMLM.loss

    def loss(*arguments):
        os.kill(os.getpid(), signal.SIGHUP)
        return real(*arguments)

    monkeypatch.setattr(RandomMLM, "loss", loss)
    with pytest.raises(
        errors.Interrupted, match="stopped at step 1 of 6: run the same command again"
    ):
        tapt(tmp_path / "out")
    monkeypatch.undo()
    assert (tmp_path / "out" / "checkpoint" / "latest.json").exists()
    capsys.readouterr()
    tapt(tmp_path / "out", verbose=True)
    assert "\nmasked language modelling, 1 done before: 5 in " in capsys.readouterr().err
    assert contents(tmp_path / "out") == contents(finished[0])


def test_another_pretraining_in_the_folder_is_refused(finished, tapt, monkeypatch):
    monkeypatch.setattr(module, "load_encoder", None)
    with pytest.raises(RunError, match=r"it has seed 0, not 1; steps .*, not 7"):
        tapt(finished[0], steps=7, seed=1)


def test_a_pretraining_that_diverges_at_once_leaves_its_folder_free(tapt, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            RandomMLM, "loss", lambda self, encoder, *_: next(encoder.parameters()).sum() * nan
        )
        with pytest.raises(errors.TrainingDiverged, match=r"lower (--)?learning.rate"):
            tapt(tmp_path / "out")
    assert not (tmp_path / "out" / "pretraining.json").exists()
    assert tapt(tmp_path / "out", seed=1).steps == 6


def test_changed_texts_are_noticed_on_resume(tapt, tmp_path, monkeypatch):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(helpers.LINES))

    def run():
        return tapt(tmp_path / "out", corpus=texts, steps=2)

    monkeypatch.setattr(module.PretrainFolder, "finish", KILLED)
    with pytest.raises(SystemExit):
        run()
    texts.write_text("\n".join(helpers.LINES[1:]))
    with pytest.raises(RunError, match=r"cannot be resumed, as the texts \(content\) has changed"):
        run()


OUTPUTS = {
    "the working folder": lambda f: (f / "thesis.tex").write_text("x"),
    "a file": lambda f: (f.rmdir(), f.write_text("x")),
    "a damaged record": lambda f: (f / "pretraining.json").write_text("{"),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_the_output_is_checked_before_any_work(tapt, tmp_path, monkeypatch, what):
    monkeypatch.setattr(module, "load_encoder", None)
    monkeypatch.setattr(module, "_read_texts", None)
    folder = tmp_path / "out"
    folder.mkdir()
    OUTPUTS[what](folder)
    with helpers.one_line(UserError, str(folder)):
        tapt(folder)
