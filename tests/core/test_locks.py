"""Locks: one holder, who is named; nothing is stale, nothing is left behind."""

from __future__ import annotations

import json
import os
import platform

import pytest

from auxlearn.core.errors import RunError
from auxlearn.core.locks import Lock, LockHeld, holder, is_held


def test_one_holds_it_and_the_other_is_told_who(tmp_path):
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    first.acquire()
    assert is_held(tmp_path / "lock")
    with pytest.raises(LockHeld) as caught:
        second.acquire()
    assert str(caught.value).startswith(f"process {os.getpid()} on {platform.node()}, since 2")
    first.release()
    first.release()
    assert not is_held(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []
    second.acquire()
    second.check()
    (tmp_path / "lock").rename(tmp_path / "moved")
    with pytest.raises(RunError, match="was deleted or moved by another process"):
        second.check()
    second.release()
    assert (tmp_path / "moved").exists()


def test_a_file_left_by_a_killed_process_is_no_lock(tmp_path):
    content = {"process": 4711, "host": "elsewhere", "since": "yesterday"}
    (tmp_path / "lock").write_text(json.dumps(content))
    assert holder(tmp_path / "lock") == "process 4711 on elsewhere, since yesterday"
    assert not is_held(tmp_path / "lock")
    lock = Lock(tmp_path / "lock")
    lock.acquire()
    assert holder(tmp_path / "lock").startswith(f"process {os.getpid()} on ")
    lock.release()


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"process": "x"}', "\x00" * 50])
def test_a_file_that_names_nobody(tmp_path, content):
    (tmp_path / "lock").write_text(content)
    assert holder(tmp_path / "lock") == ""
    assert holder(tmp_path / "nothing") == ""


def test_names_with_control_characters_are_not_shown(tmp_path):
    content = {"process": 1, "host": "\x1b[2Jnode", "since": "now"}
    (tmp_path / "lock").write_text(json.dumps(content))
    assert holder(tmp_path / "lock") == ""


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Lock(tmp_path / "lock").acquire()
    assert (tmp_path / "elsewhere").read_text() == "mine"
