"""Run folders: the lock, the check of the configuration, a kill at the very start."""

from __future__ import annotations

import fcntl
import os
import platform
import threading

import pytest

from auxlearn.config import RunConfig
from auxlearn.errors import RunError, RunInUse
from auxlearn.locks import Lock
from auxlearn.results.folder import RunFolder


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
    with folder.locked(config):
        pass


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


def test_a_folder_that_is_moved_while_it_is_being_locked_is_not_used(tmp_path, monkeypatch):
    """A lock belongs to the opened file, wherever that has been moved."""
    config = RunConfig(learning_rate=1e-3)
    folder = RunFolder(tmp_path / "run")
    with folder.locked(config):
        pass
    real = Lock.acquire

    def acquire(self, *arguments, **settings):
        real(self, *arguments, **settings)
        os.rename(folder.path, tmp_path / "moved")

    monkeypatch.setattr(Lock, "acquire", acquire)
    with pytest.raises(RunInUse, match="has just moved"), folder.locked(config):
        pass
    assert not folder.path.exists()


def test_a_run_killed_at_its_very_start_can_start_again(tmp_path):
    config = RunConfig(learning_rate=1e-3)
    (tmp_path / "environment.json").write_text("{")
    (tmp_path / ".config.yaml.x1").write_text("data")
    folder = RunFolder(tmp_path)
    with folder.locked(config):
        assert folder.read_config().digest == config.digest
    assert (tmp_path / "environment.json").read_text() != "{"


def test_the_settings_that_differ_are_named(tmp_path):
    config = RunConfig(learning_rate=1e-3)
    folder = RunFolder(tmp_path / "run")
    with folder.locked(config):
        pass
    other = RunConfig(learning_rate=1e-3, seed=1, epochs=3, cache_dir="elsewhere")
    with pytest.raises(RunError) as caught, folder.locked(other):
        pass
    assert str(caught.value) == (
        f"{folder.path} holds the run of another configuration (its seed, epochs differ): "
        "choose another --output or delete the folder"
    )


def test_a_folder_that_is_not_a_run_folder_is_left_unchanged(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="is not empty"), RunFolder(tmp_path).locked(RunConfig()):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
