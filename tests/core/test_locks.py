"""Locks: one holder, who is named at once; nothing is stale, nothing is left behind."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import platform
import threading
import time
from unittest.mock import Mock

import pytest

from auxlearn.core import locks
from auxlearn.core.cache import TensorCache
from auxlearn.core.errors import UserError
from auxlearn.core.locks import Lock, LockHeld, holder, is_held


def test_one_holds_it_and_the_other_is_told_who(tmp_path):
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    first.acquire()
    assert is_held(tmp_path / "lock")
    with pytest.raises(LockHeld) as caught:
        second.acquire(timeout=0)
    assert str(caught.value).startswith(f"process {os.getpid()} on {platform.node()}, since 2")
    first.release()
    first.release()
    assert not is_held(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []
    second.acquire(timeout=0)
    second.release()


def test_who_waits_is_told_soon_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "GRACE", 0.01)
    monkeypatch.setattr(locks, "REMIND_EVERY", 0.05)
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    first.acquire()
    told: list[float] = []

    def waiting(owner):
        assert owner.startswith(f"process {os.getpid()}")
        told.append(time.monotonic())
        if len(told) == 3:
            first.release()

    second.acquire(waiting=waiting)
    assert all(later - sooner >= 0.05 for sooner, later in itertools.pairwise(told))
    assert len(told) == 3
    second.release()


def test_threads_exclude_each_other(tmp_path):
    """Also while the file is deleted and made anew at every release."""
    inside, most, rounds = [], [], 15

    def work():
        for _ in range(rounds):
            lock = Lock(tmp_path / "lock")
            lock.acquire()
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.0005)
            inside.pop()
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 4 * rounds
    assert list(tmp_path.iterdir()) == []


def test_a_file_left_by_a_killed_process_is_no_lock(tmp_path):
    (tmp_path / "lock").write_text('{"process": 1, "host": "elsewhere", "since": "yesterday"}')
    assert not is_held(tmp_path / "lock")
    Lock(tmp_path / "lock").acquire(timeout=0)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("S", ""),
        ("T", " (it is stopped: `kill -CONT 4711` lets it continue)"),
        ("", " (it has ended, but a process that it started still holds the lock)"),
        (None, ""),
    ],
)
def test_why_a_lock_is_held_long(tmp_path, monkeypatch, state, said):
    monkeypatch.setattr(locks, "_state_of", lambda process: state)
    for host, more in ((platform.node(), said), ("node3", "")):
        content = {"process": 4711, "host": host, "since": "2026-01-01 10:00:00 UTC"}
        (tmp_path / "lock").write_text(json.dumps(content))
        expected = f"process 4711 on {host}, since 2026-01-01 10:00:00 UTC{more}"
        assert holder(tmp_path / "lock") == expected


def test_the_state_of_a_process():
    assert locks._state_of(os.getpid()) in ("R", "S")
    assert locks._state_of(2**30) == ""


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"process": "x"}', '{"process": 1}', "\x00" * 50]
)
def test_a_file_that_names_nobody(tmp_path, content):
    (tmp_path / "lock").write_text(content)
    assert holder(tmp_path / "lock") == ""
    assert holder(tmp_path / "nothing") == ""


def test_names_with_control_characters_are_not_shown(tmp_path):
    content = {"process": 1, "host": "\x1b[2Jnode", "since": "now"}
    (tmp_path / "lock").write_text(json.dumps(content))
    assert holder(tmp_path / "lock") == ""


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, code):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(code, os.strerror(code))))
    with pytest.raises(OSError, match="has no locks"):
        Lock(tmp_path / "lock").acquire()
    said = rf"^cannot write to the cache folder {tmp_path} \(its file system has no locks\): "
    with pytest.raises(UserError, match=said + "choose another with --cache-dir$"):
        TensorCache(tmp_path).get("key", dict)


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Lock(tmp_path / "lock").acquire()
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_waiting_for_a_cache_entry_names_the_process(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(locks, "GRACE", 0.0)
    lock = Lock(tmp_path / "key.lock")
    lock.acquire()
    release = threading.Timer(0.1, lock.release)
    release.start()
    with caplog.at_level("INFO", "auxlearn"):
        TensorCache(tmp_path).get("key", dict)
    release.join()
    assert f"waiting for a cache entry that process {os.getpid()} on " in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.safetensors"]
