"""A run folder belongs to one process at a time, and survives a kill at its very beginning."""

from __future__ import annotations

import fcntl
import os
import platform
import threading

import pytest
from filelock import FileLock

from auxlearn.config import RunConfig
from auxlearn.errors import RunError, RunInUse
from auxlearn.results.folder import RunFolder


def test_a_second_claim_is_refused_and_names_the_first(tmp_path):
    config = RunConfig(learning_rate=1e-3)
    folder = RunFolder(tmp_path / "run")
    assert not folder.in_use
    who = f"process {os.getpid()} on {platform.node()}"
    with folder.claimed(config):
        assert folder.in_use
        for _ in range(2):  # an attempt must not loosen the lock
            with pytest.raises(RunInUse, match=who), RunFolder(folder.path).claimed(config):
                pass
        assert folder.in_use
    assert not folder.in_use
    with folder.claimed(config):
        pass


def test_who_only_asks_is_in_nobodys_way(tmp_path):
    """Neither for who asks at the same time nor for who claims the folder."""
    config = RunConfig(learning_rate=1e-3)
    folder = RunFolder(tmp_path / "run")
    with folder.claimed(config):
        pass
    asking = os.open(folder.path / ".lock", os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)  # another process in the middle of its question
    assert not folder.in_use
    done = threading.Timer(0.05, os.close, [asking])
    done.start()
    with folder.claimed(config):
        assert folder.in_use
    done.join()


def test_a_folder_that_is_moved_away_while_it_is_claimed_is_not_held(tmp_path, monkeypatch):
    """A lock belongs to the file that was opened, wherever that is by now."""
    config = RunConfig(learning_rate=1e-3)
    folder = RunFolder(tmp_path / "run")
    with folder.claimed(config):
        pass
    real = FileLock.acquire

    def acquire(self, *arguments, **settings):
        held = real(self, *arguments, **settings)
        os.rename(folder.path, tmp_path / "moved")
        return held

    monkeypatch.setattr(FileLock, "acquire", acquire)
    with pytest.raises(RunInUse, match="has just moved"), folder.claimed(config):
        pass
    assert not folder.path.exists()


def test_a_run_killed_while_it_claimed_its_folder_can_begin_again(tmp_path):
    config = RunConfig(learning_rate=1e-3)
    (tmp_path / "environment.json").write_text("{")
    (tmp_path / ".config.yaml.x1").write_text("data")
    folder = RunFolder(tmp_path)
    with folder.claimed(config):
        assert folder.read_config().digest == config.digest
    assert (tmp_path / "environment.json").read_text() != "{"


def test_the_settings_that_differ_are_named(tmp_path):
    config = RunConfig(learning_rate=1e-3)
    folder = RunFolder(tmp_path / "run")
    with folder.claimed(config):
        pass
    other = RunConfig(learning_rate=1e-3, seed=1, epochs=3, cache_dir="elsewhere")
    with pytest.raises(RunError) as caught, folder.claimed(other):
        pass
    assert str(caught.value) == (
        f"{folder.path} holds the run of another configuration (its seed, epochs differ): "
        "choose another --output or delete the folder"
    )


def test_what_is_not_a_run_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="is not empty"), RunFolder(tmp_path).claimed(RunConfig()):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
