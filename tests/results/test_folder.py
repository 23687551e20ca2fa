"""Run folders: the lock, the check of the configuration, a kill at the very start."""

import fcntl
import os
import platform
import threading

import pytest

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import RunError, RunInUse, UserError
from auxlearn.results.folder import RunFolder, load_run
from tests.helpers import one_line


@pytest.fixture
def begun(tmp_path):
    folder, config = RunFolder(tmp_path / "run"), RunConfig(learning_rate=1e-3)
    enter(folder, config)
    return folder, config


def test_a_locked_folder_is_refused_with_the_name_of_its_owner(tmp_path):
    config = RunConfig(learning_rate=1e-3)
    folder = RunFolder(tmp_path / "run")
    assert not folder.in_use
    owner = f"process {os.getpid()} on {platform.node()}"
    with folder.locked(config):
        assert folder.in_use
        for _ in range(2):  # an attempt must not release the lock
            with pytest.raises(RunInUse, match=owner), RunFolder(folder.path).locked(config):
                pass
        assert folder.in_use
    assert not folder.in_use
    enter(folder, config)


def test_testing_the_lock_hinders_no_other_process(tmp_path):
    """Neither one that tests at the same time nor one that locks the folder."""
    config = RunConfig(learning_rate=1e-3)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    (folder.path / ".lock").touch()
    tested = os.open(folder.path / ".lock", os.O_RDONLY)
    fcntl.flock(tested, fcntl.LOCK_SH)  # another process that is just testing the lock
    assert not folder.in_use
    done = threading.Timer(0.05, os.close, [tested])
    done.start()
    with folder.locked(config):
        assert folder.in_use
    done.join()


def test_a_run_killed_at_its_very_start_can_start_again(tmp_path):
    config = RunConfig(learning_rate=1e-3)
    (tmp_path / "environment.json").write_text("{")
    (tmp_path / ".config.yaml.x1").write_text("data")
    folder = RunFolder(tmp_path)
    with folder.locked(config):
        assert folder.read_config().digest == config.digest
    assert (tmp_path / "environment.json").read_text() != "{"


def test_the_settings_that_differ_are_named(begun):
    folder, _ = begun
    other = RunConfig(learning_rate=1e-3, seed=1, epochs=3, cache_dir="elsewhere")
    with pytest.raises(RunError) as caught:
        enter(folder, other)
    assert str(caught.value) == (
        f"{folder.path} holds the run of another configuration (it has seed 0, not 1; "
        "epochs 10, not 3): choose another --output or delete the folder"
    )


def test_a_folder_that_is_not_a_run_folder_is_left_unchanged(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="is not empty"):
        enter(RunFolder(tmp_path), RunConfig())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("what", ["a link to a folder", "a link further down", "a pipe"])
def test_nothing_is_read_outside(begun, tmp_path, what):
    folder, _ = begun
    (tmp_path / "outside").mkdir()
    if what == "a link to a folder":
        (folder.path / "plots").symlink_to("../outside")
    elif what == "a link further down":
        (folder.path / "model").mkdir()
        (folder.path / "model" / "config.json").symlink_to(tmp_path / "outside")
    else:
        os.mkfifo(folder.path / "inputs.json")
    with one_line(RunError, "leads out of" if "link" in what else "neither"):
        load_run(folder.path)


def enter(folder, config):
    with folder.locked(config):
        pass


def test_what_killed_writes_have_left_is_deleted(begun, tmp_path):
    folder, config = begun
    (tmp_path / "outside").write_text("mine")
    (folder.path / "checkpoint").mkdir()
    (folder.path / ".model.1a2b3c4d.part").mkdir()
    (folder.path / ".model.1a2b3c4d.part" / "config.json").touch()
    (folder.path / "checkpoint" / ".latest.json.1a2b3c4d.part").touch()
    enter(folder, config)
    names = {path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*")}
    assert names == {"config.yaml", "environment.json", "checkpoint"}


def test_a_damaged_environment_is_noticed_before_training(begun):
    folder, config = begun
    (folder.path / "environment.json").write_text("{")
    enter(folder, config)  # there is no checkpoint: the run starts again
    folder.checkpoint_path.mkdir()
    (folder.checkpoint_path / "latest.json").write_text("{}")
    (folder.path / "environment.json").write_text("{")
    with pytest.raises(RunError, match=r"environment\.json is damaged"):
        enter(folder, config)


def test_the_output_may_be_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunFolder.of(RunConfig(output="~/x")).path == tmp_path / "x"
    with pytest.raises(UserError, match="no home folder for ~nosuchuser/x"):
        RunFolder.of(RunConfig(output="~nosuchuser/x"))


@pytest.mark.parametrize("content", ["[]\n", "{\n", '"x"\n', "[" * 20_000 + "\n", "\x00\n"])
def test_a_damaged_log_is_one_line(begun, content):
    folder, _ = begun
    folder.metrics_path.write_text('{"step": 1}\n' + content)
    with pytest.raises(RunError, match="is damaged: line 2 is no JSON object"):
        folder.read_metrics()


def test_data_in_memory_and_branches_outlive_a_failed_second_attempt(tmp_path):
    folder = RunFolder(tmp_path / "run")
    saved = folder.data_path / "f00d" / "rows"
    config = RunConfig(learning_rate=1e-3, dataset=str(saved))

    def fail_after_saving():
        saved.mkdir(parents=True)
        (folder.branches_path / "single-task").mkdir(parents=True)
        raise RunError("first")

    with pytest.raises(RunError, match="first"), folder.locked(config):
        fail_after_saving()
    assert not folder.data_path.exists()  # the folder is free
    assert not folder.branches_path.exists()
    with folder.locked(config):  # killed before its first step
        saved.mkdir(parents=True)
        (saved / "train.jsonl").write_text("rows")
        (folder.branches_path / "single-task").mkdir(parents=True)
    with pytest.raises(RunError, match="disk full"), folder.locked(config):
        raise RunError("disk full")
    assert (saved / "train.jsonl").read_text() == "rows"
    assert (folder.branches_path / "single-task").is_dir()
    assert folder.read_config().digest == config.digest


def test_a_part_of_a_run_and_a_sweep_lead_to_the_run_that_is_meant(tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").touch()
    with pytest.raises(RunError, match=rf"no config.yaml; the run is {tmp_path / 'run'}$"):
        load_run(tmp_path / "run" / "model")
    (tmp_path / "sweep.yaml").touch()  # a user's own
    with pytest.raises(RunError, match=r"is not a run folder: it has no config.yaml$"):
        load_run(tmp_path)
    (tmp_path / "trials").mkdir()
    with pytest.raises(RunError, match=rf"a sweep, whose runs are in {tmp_path / 'trials'}$"):
        load_run(tmp_path)
