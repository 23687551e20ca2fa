"""A run folder is what it says it is: settings, checkpoint, results and model are of one run."""

import os
import shutil
from pathlib import Path

import pytest

import auxlearn
from auxlearn import train
from auxlearn.core.errors import RunError, UserError
from auxlearn.results.folder import RunFolder
from auxlearn.results.record import RunResults
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.pretrain import PretrainFolder, pretrain
from tests import helpers
from tests.cli.helpers import error


@pytest.fixture(scope="module")
def finished(settings, tmp_path_factory):
    """Two finished runs that differ in their seed."""
    place = tmp_path_factory.mktemp("finished")
    for seed in (0, 1):
        train(settings(aux=[], weights="fixed", seed=seed, output=str(place / f"seed{seed}")))
    return place


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished / "seed0", tmp_path / "run")
    return tmp_path / "run"


def edit(run, old, new):
    path = run / "config.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("reader", [auxlearn.load_run, lambda run: auxlearn.predict(run, ["a"])])
def test_edited_settings_are_not_those_of_the_results(run, config, reader):
    edit(run, "epochs: 2", "epochs: 6")
    with helpers.one_line(RunError, "config.yaml has been changed since it was written"):
        reader(run)
    with pytest.raises(RunError, match="yaml has been changed"):
        train(config(aux=[], weights="fixed", epochs=6, output=str(run)))
    edit(run, "epochs: 6", "epochs: 2")
    edit(run, "\noutput: ", "\noutput: /elsewhere")  # where a run is, is no setting of it
    assert reader(run) is not None


def test_results_and_model_of_another_seed_are_refused(run, config, finished):
    other = finished / "seed1"
    shutil.copy(other / "results.json", run)
    for use in (auxlearn.load_run, lambda run: auxlearn.predict(run, ["a text"])):
        with helpers.one_line(RunError, "is of another run than config.yaml"):
            use(run)
    shutil.copy(finished / "seed0" / "results.json", run)
    shutil.rmtree(run / "model")
    shutil.copytree(other / "model", run / "model")
    with helpers.one_line(
        RunError, "model/manifest.json is damaged (its checksum is not that in results.json)"
    ):
        auxlearn.predict(run, ["a text"])
    with helpers.one_line(RunError, "model/manifest.json is damaged"):
        train(config(aux=[], weights="fixed", output=str(run)))


def killed(config):
    helpers.kill_before_step(9, config)
    return RunFolder(Path(config.output))


def test_a_checkpoint_knows_its_run(config, tmp_path):
    own = config(aux=[], weights="fixed")
    folder = killed(own)
    other = killed(config(aux=[], weights="fixed", output=str(tmp_path / "other"), seed=1))
    kept = shutil.move(folder.checkpoint_path, tmp_path / "kept")
    shutil.copytree(other.checkpoint_path, folder.checkpoint_path)
    with helpers.one_line(RunError, "is of another run, with"):
        train(own)
    shutil.rmtree(folder.checkpoint_path)
    shutil.move(kept, folder.checkpoint_path)
    own = config(aux=[], weights="fixed", learning_rate=0.1)
    (folder.path / "config.yaml").write_text(own.resolved().to_yaml())
    with helpers.one_line(RunError, "is of another run, with"):
        train(own)


def test_the_checkpoint_of_another_pretraining_is_refused(one_layer, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(helpers.LINES))
    for seed in (0, 1):
        given = {"corpus": corpus, "steps": 2, "batch_size": 4, "device": "cpu"}
        with monkeypatch.context() as patch:
            patch.setattr(PretrainFolder, "finish", stop)
            with pytest.raises(KeyboardInterrupt):
                pretrain(str(one_layer), tmp_path / f"seed{seed}", seed=seed, **given)
    shutil.rmtree(tmp_path / "seed0" / "checkpoint")
    shutil.copytree(tmp_path / "seed1" / "checkpoint", tmp_path / "seed0" / "checkpoint")
    with helpers.one_line(RunError, "it is of another run, with other settings or inputs"):
        pretrain(str(one_layer), tmp_path / "seed0", seed=0, **given)


def test_a_plug_in_that_changes_the_working_folder_is_named(tmp_path, config, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    real = TrainingLoop.run_step

    def changed(self):
        found = real(self)
        os.chdir(tmp_path / "other")
        return found

    monkeypatch.setattr(TrainingLoop, "run_step", changed)
    with helpers.one_line(UserError, f"the working folder was changed to {tmp_path / 'other'}"):
        train(config(aux=[], weights="fixed", output="run"))
    assert Path.cwd() == tmp_path
    assert not list((tmp_path / "other").iterdir())
    assert not (tmp_path / "run" / ".lock").exists()


@pytest.mark.parametrize(("moment", "replaced"), [("step", False), ("export", True)])
def test_a_run_whose_folder_was_deleted_writes_nothing_more(
    config, finished, tmp_path, monkeypatch, moment, replaced
):
    own = config(aux=[], weights="fixed")
    run = tmp_path / "run"
    other = {}

    def replace(*_):
        if not other:
            shutil.rmtree(run)
            if replaced:
                shutil.copytree(finished / "seed1", run)
            other.update(contents(tmp_path))

    def contents(place):
        return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}

    target, name = {
        "step": (TrainingLoop, "run_step"),
        "export": (auxlearn.training.run._Run, "results"),
    }[moment]
    real = getattr(target, name)

    def wrapped(self, *arguments):
        if moment == "export" or self.state.step > 5:
            replace()
        return real(self, *arguments)

    monkeypatch.setattr(target, name, wrapped)
    with helpers.one_line(UserError, "was deleted or moved by another process"):
        train(own)
    assert contents(tmp_path) == other
    assert run.exists() == replaced
    if replaced:
        assert RunResults.load(run).config["seed"] == 1


def test_a_file_that_may_not_be_read_is_not_called_damaged(run, monkeypatch):
    real, name = open, "results.json"

    def refusing(path, *arguments, **options):
        if str(path) == str(run / name):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr("builtins.open", refusing)
    line = error("predict", run, "a text")
    assert f"{name} cannot be read (Permission denied)" in line
    assert "delete" not in line
    assert "damaged" not in line
