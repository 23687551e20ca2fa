"""The tensor cache: damaged files, concurrent processes, interruptions."""

import errno
import json
import multiprocessing
import os
import signal
import sys
import time
from unittest.mock import Mock

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from auxlearn.core.cache import TensorCache, content_key, default_folder
from auxlearn.core.errors import UserError

KEY, OTHER = content_key("one"), content_key("another")

TENSORS = {
    "scores": torch.linspace(0, 1, 100),
    "where": torch.tensor([True, False]),
    "small": torch.tensor([[1, 2], [3, 4]], dtype=torch.int8),
    "empty": torch.zeros(0, dtype=torch.int64),
}


def never():
    raise AssertionError("made again")


def same(found):
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_a_stored_entry_is_found_and_the_folder_is_not_listed_for_it(tmp_path, caplog, monkeypatch):
    folder = tmp_path / "new" / "cache"
    with monkeypatch.context() as patch:
        for name in ("listdir", "scandir"):
            patch.setattr(os, name, Mock(side_effect=AssertionError("the folder is listed")))
        cache = TensorCache(folder)
        same(cache.get(KEY, lambda: TENSORS))
        same(cache.get(KEY, never))
    same(TensorCache(folder).get(KEY, never))
    other = TensorCache(folder).get(OTHER, lambda: {"x": torch.ones(1)})
    assert other["x"].tolist() == [1.0]
    assert caplog.records == []


def test_a_key_that_says_nothing_of_its_tensors_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'scores' is no content_key of all that"):
        TensorCache(tmp_path).get("scores", lambda: TENSORS)


def test_pieces_are_joined_on_the_disk(tmp_path):
    cache, whole = TensorCache(tmp_path), {"x": torch.arange(7), "y": torch.rand(7, 2).bfloat16()}
    parts = (slice(0, 2), slice(2, 2), slice(2, 7))
    found = cache.joined_by_name({n: one[part] for n, one in whole.items()} for part in parts)
    torch.testing.assert_close(found, whole, rtol=0, atol=0)
    assert torch.equal(cache.joined(whole["x"][part] for part in parts), whole["x"])
    none = cache.joined([whole["y"][:0]])
    assert (none.dtype, none.shape) == (torch.bfloat16, (0, 2))
    assert list(tmp_path.iterdir()) == []


def test_pieces_that_a_full_disk_does_not_take_are_one_line(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("auxlearn.core.cache.tempfile.TemporaryFile", Mock(side_effect=full))
    with pytest.raises(UserError, match=r"No space left on device\): free some space"):
        TensorCache(tmp_path).joined([torch.ones(2)])


def written(change):
    """Damage that changes the content of a file."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


DAMAGES = {
    "cut": written(lambda content: content[: len(content) // 2]),
    "emptied": written(lambda content: b""),
    "overwritten": written(lambda content: b"x" * len(content)),
    "one bit": written(lambda content: content[:-7] + bytes([content[-7] ^ 1]) + content[-6:]),
    "header": written(lambda content: b"\xff" * 8 + content[8:]),
    "without a checksum": lambda path: save_file({"scores": torch.ones(3)}, path),
    "in the place of another": lambda path: path.with_name(f"{OTHER}.safetensors").replace(path),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_computed_again(tmp_path, caplog, damage):
    cache = TensorCache(tmp_path)
    for key in (KEY, OTHER):
        cache.get(key, lambda: TENSORS)
    path = tmp_path / f"{KEY}.safetensors"
    DAMAGES[damage](path)
    made = []
    same(cache.get(KEY, lambda: made.append(1) or TENSORS))
    assert made == [1]
    assert [record.getMessage() for record in caplog.records] == [
        f"cache file {path} is damaged: its content is computed again"
    ]
    same(cache.get(KEY, never))


def forked(work):
    """Run a function in a child of this process; return its number."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    return child


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_two_processes_at_once_compute_once(tmp_path):
    barrier = multiprocessing.get_context("fork").Barrier(2)

    def make():
        with (tmp_path / "made.log").open("a") as log:
            log.write("made\n")
        time.sleep(0.3)
        return TENSORS

    def work():
        barrier.wait()
        same(TensorCache(tmp_path / "cache").get(KEY, make))

    children = [forked(work) for _ in range(2)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert (tmp_path / "made.log").read_text() == "made\n"


def test_a_file_is_that_of_the_library(tmp_path, monkeypatch):
    monkeypatch.setattr("auxlearn.core.cache.AT_ONCE", 64)
    names = {"é": torch.ones(3, dtype=torch.bfloat16), "number": torch.tensor(3.0).double()}
    TensorCache(tmp_path).get(KEY, lambda: TENSORS | names)
    with safe_open(tmp_path / f"{KEY}.safetensors", "pt") as file:
        save_file(TENSORS | names, tmp_path / "of the library", file.metadata())
    own, other = (
        (tmp_path / name).read_bytes() for name in (f"{KEY}.safetensors", "of the library")
    )
    end = 8 + int.from_bytes(other[:8], "little")
    assert (own[:8], own[end:]) == (other[:8], other[end:])
    # The order of keys counts, but for that of the metadata, which the library writes in any order.
    headers = [json.loads(content[8:end]) for content in (own, other)]
    assert [*headers[0].items()] == [*headers[1].items()]


def test_an_interruption_is_heard_within_a_large_entry(tmp_path, monkeypatch):
    monkeypatch.setattr("auxlearn.core.cache.AT_ONCE", 64)
    synced = []

    def interrupted(descriptor):
        synced.append(os.fstat(descriptor).st_size)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            TensorCache(tmp_path).get(KEY, lambda: TENSORS)
    assert list(tmp_path.iterdir()) == []
    same(TensorCache(tmp_path).get(KEY, lambda: TENSORS))
    (path,) = tmp_path.glob("*.safetensors")
    assert len(synced) == 1
    assert synced[0] < path.stat().st_size  # it was heard before the last piece


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_kill_between_writing_and_moving_leaves_no_entry(tmp_path):
    def work():
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        TensorCache(tmp_path).get(KEY, lambda: TENSORS)

    assert os.WTERMSIG(os.waitpid(forked(work), 0)[1]) == signal.SIGKILL
    assert list(tmp_path.glob("*.safetensors")) == []
    assert len(list(tmp_path.glob(".*.part"))) == 1
    # The lock of the dead is free, and what it left does not get in the way.
    made = []
    same(TensorCache(tmp_path).get(KEY, lambda: made.append(1) or TENSORS))
    assert made == [1]
    same(TensorCache(tmp_path).get(KEY, never))
    assert list(tmp_path.glob(".*.part")) == []


def test_a_folder_that_cannot_be_made_or_locked(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="choose another with --cache-dir"):
        TensorCache(tmp_path / "file" / "cache")
    cache, refused = TensorCache(tmp_path), PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr("auxlearn.core.cache.Lock.acquire", Mock(side_effect=refused))
    with pytest.raises(UserError, match="choose another with --cache-dir"):
        cache.get(KEY, lambda: TENSORS)


def test_the_default_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("AUXLEARN_CACHE", "~/mine")
    assert str(default_folder()) == "/home/someone/mine"
    monkeypatch.delenv("AUXLEARN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    assert str(default_folder()) == "/var/caches/auxlearn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert str(default_folder()) == "/home/someone/.cache/auxlearn"


def test_keys_differ_for_different_contents():
    ids = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    parts = [(ids,), (ids.long(),), (ids.reshape(2, 2),), (ids.flip(0),), (ids[:2], ids[2:])]
    parts += [("ab", "c"), ("a", "bc"), ("abc",), ("a", "b"), (("a", "b"),), ("1",), ("",)]
    parts += [(None,), (1,), ({"x": 1},), ({"x": 1.5},)]
    assert len({content_key(*part) for part in parts}) == len(parts)
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})
    assert content_key(ids.reshape(2, 2).T) == content_key(ids.reshape(2, 2).T.contiguous())
    assert content_key(torch.ones(2, dtype=torch.bfloat16)) != content_key(torch.ones(2))
