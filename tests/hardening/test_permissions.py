"""Files and folders that may not be read. Permission is denied by hand: root always has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from auxlearn.core.files import write_text
from tests.cli.helpers import call, error
from tests.hardening.inputs import GOOD


@pytest.fixture
def deny(monkeypatch):
    """Let every attempt to open a file of some name, or to list a folder of that name, fail."""

    def of(name: str) -> None:
        def refusing(real):
            def call(path, *arguments, **more):
                if Path(path).name == name:
                    raise PermissionError(13, "Permission denied", str(path))
                return real(path, *arguments, **more)

            return call

        for owner, function in ((os, "open"), (Path, "open"), (Path, "iterdir")):
            monkeypatch.setattr(owner, function, refusing(getattr(owner, function)))

    return of


@pytest.mark.parametrize(
    ("denied", "arguments"),
    [
        ("train.jsonl", ["data", "check", "d"]),
        ("d", ["data", "check", "d"]),
        ("c.yaml", ["data", "check", "c.yaml"]),
        ("c.yaml", ["train", "--config", "c.yaml"]),
        ("c.yaml", ["sweep", "c.yaml", "--dry-run"]),
        ("texts.txt", ["pretrain", "--encoder", "tiny", "--corpus", "texts.txt", "--output", "o"]),
        ("encoder", ["data", "check", "d", "--encoder", "encoder"]),
        ("config.json", ["data", "check", "d", "--encoder", "encoder"]),
        ("p.py", ["check", "p.py"]),
        ("p.py", ["train", "--plugin", "p.py", "--aux", "mine"]),
    ],
)
def test_what_may_not_be_read_is_named(denied, arguments, deny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    contents = {"c.yaml": "name: x", "texts.txt": "a text\n", "p.py": "# registers nothing\n"}
    contents["d/train.jsonl"] = GOOD * 2 + GOOD.replace("day", "night")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        contents[f"encoder/{name}"] = "{}"
    for name, content in contents.items():
        write_text(Path(name), content)
    deny(denied)
    line = error(*arguments)
    assert denied in line
    assert "Permission denied" in line


def test_labels_that_look_like_missing_values_can_be_kept(tmp_path):
    rows = [f'{{"text": "text {i}", "label": "{("None", "some")[i % 2]}"}}' for i in range(8)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    assert "--keep-null-labels" in error("data", "check", tmp_path)
    shown = call("data", "check", tmp_path, "--keep-null-labels").stdout
    assert any(line.split()[:1] == ["None"] for line in shown.splitlines())
