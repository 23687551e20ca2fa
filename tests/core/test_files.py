"""Atomic writes of files and folders."""

import errno
import os
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest

from auxlearn.core.errors import UserError
from auxlearn.core.files import (
    check_output,
    filled_folder,
    read_checked_json,
    replaced_folder,
    write_bytes,
    write_checked_json,
    write_text,
)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, code):
    path = tmp_path / "results.json"
    write_bytes(path, b"old")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(code, os.strerror(code))))
    said = rf"^cannot write {path} \({os.strerror(code)}\): free some space or raise "
    with pytest.raises(UserError, match=said + "the limit, then run the same command again$"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_what_is_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="choose a path that can be written to"):
        write_bytes(tmp_path / "file" / "below.txt", b"")
    (tmp_path / "results.json").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        write_bytes(tmp_path / "results.json", b"new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "results.json"]


KILLED = """
import os, signal, sys
from pathlib import Path
from auxlearn.core.files import replaced_folder, write_bytes
path = Path(sys.argv[1])
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
if path.suffix:
    write_bytes(path, b"half")
with replaced_folder(path) as folder:
    (folder / "half").touch()
    os.fsync(0)
"""


@pytest.mark.parametrize("name", ["scores.csv", "model"])
def test_what_a_killed_process_has_left_goes_with_the_next_write(tmp_path, name):
    path = tmp_path / name
    for left in (1, 1):  # that of the first is deleted by the second
        done = subprocess.run([sys.executable, "-c", KILLED, path])
        assert done.returncode == -signal.SIGKILL
        assert len(list(tmp_path.iterdir())) == left
    with replaced_folder(tmp_path / "other"):  # which leaves what is of another path
        (left,) = tmp_path.glob(f".{name}.*.part")
        (own,) = tmp_path.glob(".other.*.part")
    machine, pid, started, _ = own.name.split(".")[2].split("-")
    kept = [
        f"{machine}-{pid}-{started}-00000000",  # it is being written
        f"{machine}-{os.getpid()}-0-00000000",  # by a process of which no more is known
        f"00000000-{2**22 + 1}-1-00000000",  # on another machine
        "1a2b3c4d",
    ]
    for mark in (*kept, f"{machine}-{pid}-1-00000000"):  # the last, of an earlier process
        (tmp_path / f".{name}.{mark}.part").touch()
    write_text(path, "whole")
    expected = {name, "other", *(f".{name}.{mark}.part" for mark in kept)}
    assert {entry.name for entry in tmp_path.iterdir()} == expected


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "model"
    for content in ("old", "new"):
        with replaced_folder(folder) as temporary:
            (temporary / content).write_text(content)
        assert [entry.name for entry in folder.iterdir()] == [content]
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(("error", "raised"), [(OSError, UserError), (KeyError, KeyError)])
def test_a_folder_that_cannot_be_written_leaves_the_old_one(tmp_path, error, raised):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old").write_text("old")

    def write_half():
        with replaced_folder(folder) as temporary:
            (temporary / "new").write_text("half")
            raise error("no space")

    with pytest.raises(raised):
        write_half()
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert [entry.name for entry in folder.iterdir()] == ["old"]


def test_all_modes_are_those_of_a_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "x")
        with replaced_folder(tmp_path / "folder") as temporary:
            (temporary / "secret").touch(mode=0o600)
        with filled_folder(tmp_path / "folder") as temporary:
            (temporary / "other").touch(mode=0o600)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"file": 0o640, "folder": 0o750, "secret": 0o640, "other": 0o640}


def test_checked_json_notices_a_changed_bit(tmp_path):
    path = tmp_path / "x.json"
    content = {"a": [None, (3, "é")], "b": {"1": float("-inf")}}
    write_checked_json(path, content)
    whole = path.read_bytes()
    expected = read_checked_json(path, required=True)
    assert expected == {"a": [None, [3, "é"]], "b": content["b"]}
    noticed = 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(bytes(changed))
        try:
            assert read_checked_json(path, required=True) == expected
        except ValueError:
            noticed += 1
    assert noticed > len(whole) / 2


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file", "is a file"),
        ("file/below/it", "is a file"),
        ("x" * 300, "File name too long"),
        ("new/" + "x" * 300 + "/y", "File name too long"),
        ("closed/new", "no permission to write into"),
        ("a\0b", "null"),
    ],
)
def test_an_output_is_checked_without_making_anything(tmp_path, monkeypatch, path, reason):
    (tmp_path / "file").touch()
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda place, mode: place.name != "closed")
    with pytest.raises(UserError, match=f"cannot write to .*{reason}.*: choose another --output"):
        check_output(tmp_path / path)
    check_output(tmp_path / "new" / "folder")
    check_output(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["closed", "file"]
