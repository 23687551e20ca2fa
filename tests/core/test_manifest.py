"""Manifests: every change of an exported folder is noticed before a file of it is used."""

import json

import pytest
import torch
from safetensors.torch import save_file

from auxlearn.core.errors import EncoderError
from auxlearn.core.files import (
    MANIFEST,
    Damaged,
    tensors_of,
    verify_export,
    write_checked_json,
    write_manifest,
)
from auxlearn.encoders.load import load_classifier, load_encoder
from tests.helpers import one_line


@pytest.fixture
def folder(tmp_path):
    export = tmp_path / "model"
    export.mkdir()
    save_file({"a": torch.ones(2, 3), "b": torch.zeros(1).half()}, export / "model.safetensors")
    (export / "config.json").write_text("{}")
    (export / "inner").mkdir()
    (export / "inner" / "vocab.txt").write_text("a\n")
    write_manifest(export)
    return export


def test_a_manifest_describes_every_file_and_tensor(folder):
    files = json.loads((folder / MANIFEST).read_text())["files"]
    assert list(files) == ["config.json", "inner/vocab.txt", "model.safetensors"]
    assert files["config.json"]["bytes"] == 2
    assert files["model.safetensors"]["tensors"] == {
        "a": {"dtype": "F32", "shape": [2, 3]},
        "b": {"dtype": "F16", "shape": [1]},
    }
    verify_export(folder)


def flip(path, place=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


def rewrite(folder, change):
    content = json.loads((folder / MANIFEST).read_text())
    del content["sha256"]
    change(content)
    write_checked_json(folder / MANIFEST, content)


DAMAGES = {
    "a flipped bit of the weights": lambda f: flip(f / "model.safetensors", -1),
    "a missing file": lambda f: (f / "config.json").unlink(),
    "a folder in place of a file": lambda f: replace_by_folder(f / "config.json"),
    "a list": lambda f: (f / MANIFEST).write_text("[]"),
    "nested too deeply": lambda f: (f / MANIFEST).write_text("[" * 20_000),
    "a folder in place of the manifest": lambda f: replace_by_folder(f / MANIFEST),
    "no files": lambda f: rewrite(f, lambda c: c.pop("files")),
    **{
        what: lambda f, change=change: rewrite(f, lambda c: change(c["files"]))
        for what, change in {
            "a description that is a text": lambda files: files.update({"config.json": "x"}),
            "a size that is a text": lambda files: files["config.json"].update(bytes="x"),
            "a name outside": lambda files: files.update({"../x": files["config.json"]}),
            "an absolute name": lambda files: files.update({"/etc/passwd": files["config.json"]}),
            "other tensors": lambda files: files["model.safetensors"]["tensors"].pop("a"),
        }.items()
    },
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_line(folder, damage):
    DAMAGES[damage](folder)
    with one_line(EncoderError, f"the model in {folder} is damaged (") as caught:
        verify_export(folder)
    assert "Cannot specify" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_folder_without_a_manifest_is_not_checked(tmp_path):
    verify_export(tmp_path)
    verify_export(tmp_path / "nothing")


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 8, b"\xff" * 20, b"\x02\0\0\0\0\0\0\0[]", b"\x04\0\0\0\0\0\0\0null"]
)
def test_what_is_no_safetensors_file(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(Damaged, match="no safetensors file"):
        tensors_of(path)


@pytest.mark.parametrize("load", [load_classifier, lambda f: load_encoder(str(f), ["a", "b"])])
def test_a_damaged_encoder_is_not_loaded(tmp_path, encoder_folder, load):
    folder = tmp_path / "export"
    load_encoder(str(encoder_folder("bert")), ["a", "b"]).save(folder, 16)
    write_manifest(folder)
    load(folder)
    flip(folder / "model.safetensors", -5)
    with pytest.raises(EncoderError, match=r"the checksum of model\.safetensors differs"):
        load(folder)
