"""Training that continues from a finished run: what is taken, what is new, what is refused."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file

import auxlearn
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, UserError
from auxlearn.encoders.load import load_classifier, load_encoder
from auxlearn.results.record import RunResults
from auxlearn.training import run as run_module
from tests import helpers
from tests.cli.helpers import error, write_split

AUX = ["random_mlm", "simcse"]


def settings(folder, encoder=None, data="data", **more):
    given = {} if encoder is None else {"encoder": encoder}
    return {
        "dataset": folder / data, **given, "epochs": 1, "batch_size": 4, "learning_rate": 1e-2,
        "max_length": 24, "device": "cpu", **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, one_layer):
    """A finished run with a masked task and a task with a head of its own, in ``first``."""
    place = tmp_path_factory.mktemp("continuation")
    for data, names in (("data", ("no", "yes")), ("renamed", ("da", "no")), ("more", "abc")):
        rows = [(text, names[n % len(names)]) for n, text in enumerate(helpers.LINES[:18])]
        for split, part in (("train", rows[:8]), ("dev", rows[8:12]), ("test", rows[12:])):
            write_split(place / data / f"{split}.tsv", part)
    auxlearn.train(**settings(place, one_layer, aux=AUX, output=place / "first"))
    return place


class Begun(Exception):
    """Stops a run before its first step."""


def begin(monkeypatch, config: RunConfig):
    """Return the encoder as it is just before the first step, and what was said."""
    found = {}
    prepare = run_module._Run.prepare

    def stop(self):
        prepare(self)
        found["encoder"], found["record"] = self.encoder, self.init_from
        raise Begun

    monkeypatch.setattr(run_module._Run, "prepare", stop)
    said = helpers.Messages()
    with pytest.raises(Begun):
        auxlearn.train(config, said)
    return found["encoder"], found["record"], " | ".join(said.lines)


def test_all_that_fits_is_taken(folder, one_layer, tmp_path, monkeypatch):
    given = settings(folder, aux=AUX, init_from=folder / "first", output=tmp_path / "next", seed=5)
    encoder, record, said = begin(monkeypatch, RunConfig(**given))
    classifier, _ = load_classifier(folder / "first" / "model")
    for name, tensor in classifier.state_dict().items():
        assert torch.equal(encoder.classifier.state_dict()[name], tensor), name
    heads = folder / "first" / "heads"
    (path,) = heads.glob("simcse/*.safetensors")
    own = encoder.heads[f"simcse/{path.stem}"].state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in load_file(path).items())
    saved = load_file(heads / "language_model.safetensors")
    assert saved.keys() == encoder.language_model_head().keys()
    pretrained = load_encoder(str(one_layer), ["no", "yes"]).language_model_head()
    assert any(not torch.equal(saved[name], pretrained[name]) for name in saved)  # it has learned
    for name, tensor in encoder.language_model_head().items():
        assert torch.equal(tensor, saved[name])
    assert record["parts"] == [
        "encoder", "classification head", "masked-language-model head",
        f"head simcse/{path.stem}",
    ]  # fmt: skip
    assert record["digest"] == RunResults.load(folder / "first").digest
    assert "it has the same labels" in said
    assert "training continues from" in said


@pytest.mark.parametrize("data", ["renamed", "more"])
def test_other_labels_have_a_new_output_layer(folder, tmp_path, monkeypatch, data):
    """As many labels with other names would otherwise inherit rows that mean something else."""
    given = settings(folder, data=data, init_from=folder / "first", output=tmp_path / "next")
    encoder, record, said = begin(monkeypatch, RunConfig(**given))
    assert "newly initialised: the labels of" in said
    assert "classification head" not in record["parts"]
    classifier, _ = load_classifier(folder / "first" / "model")
    old, new = classifier.classifier.weight, encoder.classifier.classifier.weight
    assert old.shape != new.shape or not torch.equal(old, new)
    assert 0 < new.std() < 3 * encoder.config.initializer_range
    assert torch.equal(encoder.body.pooler.dense.weight, classifier.bert.pooler.dense.weight)


def test_rows_follow_the_order_of_the_labels(folder):
    """The model folder as an encoder takes the same path."""
    model = str(folder / "first" / "model")
    same, turned = (load_encoder(model, names) for names in (["no", "yes"], ["yes", "no"]))
    assert same.kept_classifier
    assert turned.kept_classifier
    weight = same.classifier.classifier.weight
    assert torch.equal(turned.classifier.classifier.weight, weight.flip(0))
    assert load_encoder(model, ["no", "maybe"]).kept_classifier is False
    assert same.new_language_model_head  # it is taken by init_from only


def test_a_run_records_what_it_began_from(folder, tmp_path):
    source = shutil.copytree(folder / "first", tmp_path / "first")
    given = settings(folder, init_from=source, output=tmp_path / "next")
    results = auxlearn.train(**given)
    first = RunResults.load(source)
    assert results.init_from["run"] == str(source)
    assert results.config["encoder"] == first.config["encoder"]
    assert results.init_from["model"] in (tmp_path / "next/model/README.md").read_text()
    assert str(tmp_path) not in (tmp_path / "next/model/README.md").read_text()
    inputs = json.loads((tmp_path / "next/inputs.json").read_text())["inputs"]["encoder"]
    assert {"model.safetensors", "heads/language_model.safetensors"} <= set(inputs)
    assert auxlearn.train(**given).reproducible() == results.reproducible()
    (source / "heads" / "language_model.safetensors").write_bytes(b"other")
    with pytest.raises(UserError, match=r"encoder \(heads/language_model.safetensors\) has chan"):
        auxlearn.train(**given)
    shutil.rmtree(source)  # a finished run outlives the one that it began from
    again = auxlearn.train(RunConfig(**yaml.safe_load((tmp_path / "next/config.yaml").read_text())))
    assert again.reproducible() == results.reproducible()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: (run / "results.json").unlink(), "is not finished: resume it"),
        (lambda run: (run / "model/model.safetensors").write_bytes(b"x"), "is damaged"),
        (lambda run: (run / "heads/language_model.safetensors").write_bytes(b"x"), "is damaged"),
    ],
)
def test_an_unusable_source_is_refused_in_one_line(folder, tmp_path, change, message):
    source = shutil.copytree(folder / "first", tmp_path / "first")
    change(source)
    out = tmp_path / "next"
    words = ["--dataset", folder / "data", "--init-from", source, "--output", out, "--epochs", 1]
    assert message in error("train", *words, "--device", "cpu", "--max-length", 24)
    assert not (out / "config.yaml").exists()


def test_the_run_itself_and_another_encoder_are_refused(folder, one_layer, tmp_path):
    copy = shutil.copytree(folder / "first", tmp_path / "first")
    (copy / "results.json").unlink()
    config = copy / "config.yaml"
    helpers.change_settings(copy, init_from=str(copy))
    assert "is the run itself" in error("train", "--config", config, "--output", copy)
    with pytest.raises(ConfigError, match=r"trained the encoder .*, not 'bert': leave encoder out"):
        RunConfig(init_from=str(folder / "first"), encoder="bert").resolved()
    assert RunConfig(init_from=str(folder / "first")).resolved().encoder == str(one_layer)


def test_heads_of_data_sets_go_to_the_same_sets(folder, one_layer, tmp_path, monkeypatch):
    """Whatever their order; a set of the same name with other labels has a new head."""
    for name, labels in (("a", "xy"), ("b", "xy")):
        rows = [(text, labels[n % 2]) for n, text in enumerate(helpers.LINES[:18])]
        for split, part in (("train", rows[:12]), ("dev", rows[12:])):
            write_split(tmp_path / name / f"{split}.tsv", part)

    def aux(*order):
        return [{"supervised": {"datasets": [str(tmp_path / name) for name in order]}}]

    first = tmp_path / "run"
    auxlearn.train(**settings(folder, one_layer, aux=aux("a", "b"), output=first))
    kept = {path.stem: load_file(path) for path in (first / "heads" / "supervised").iterdir()}
    assert sorted(name[:6] for name in kept) == ["set_a_", "set_b_"]

    for split in ("train", "dev"):  # its classes have other names now
        path = tmp_path / "a" / f"{split}.tsv"
        rows = [line.replace("\ty", "\tz") for line in path.read_text().splitlines()]
        path.write_text("\n".join(rows) + "\n")
    given = settings(folder, aux=aux("b", "a"), init_from=first, output=tmp_path / "next")
    encoder, record, _ = begin(monkeypatch, RunConfig(**given).resolved())
    taken = [part for part in record["parts"] if "supervised" in part]
    (own,) = [name for name in kept if name.startswith("set_b_")]
    assert taken == [f"head supervised/{own}"]
    for key, value in encoder.heads[f"supervised/{own}"].state_dict().items():
        assert torch.equal(value, kept[own][key])
