"""Every bad input is answered by a line or a few, with exit code 2, and leaves nothing behind."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from auxlearn.cli import cli
from auxlearn.core.files import write_text
from tests import helpers
from tests.cli.helpers import call, error, write_run, write_split
from tests.hardening.inputs import GOOD, Case, Place

#: Characters of standard output and standard error together, at most.
MOST_CHARACTERS = 1000

CASES: list[Case] = [
    case
    for path in sorted(Path(__file__).parent.glob("cases_*.py"))
    for case in importlib.import_module(f"tests.hardening.{path.stem}").CASES
]


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, encoder_folder):
    """Return the folder of a finished run, made when it is first asked for."""

    @cache
    def run() -> Path:
        folder = tmp_path_factory.mktemp("finished")
        rows = [("a good parser", "yes"), ("a bad tagger", "no")]
        for split in ("train", "dev", "test"):
            write_split(folder / "reviews" / f"{split}.tsv", rows)
        return write_run(folder / "run", encoder_folder("bert"), dataset=str(folder / "reviews"))

    return run


def content_of(folder: Path) -> dict[str, str]:
    """Return a digest of everything in a folder by relative path."""
    found = {}
    for path in folder.rglob("*"):
        digest = "link" if path.is_symlink() else "file" if path.is_file() else "other"
        if digest == "file" and path.stat().st_size <= 50_000_000:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = digest
    return found


def test_there_are_many_cases_with_names_of_their_own():
    assert len(CASES) == len({case.id for case in CASES}) >= 200


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_bad_input(case, tmp_path, monkeypatch, encoder_folder, finished_run):
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    helpers.only_builtin_plugins(monkeypatch)
    if case.make is not None:
        case.make(Place(folder, encoder_folder, finished_run))
    before = content_of(folder)

    result = CliRunner().invoke(cli, list(case.command), input=case.typed)

    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 2, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert 1 <= len(errors) <= case.lines, result.output
    assert any(re.search(case.line, line) for line in errors), result.output
    assert "Traceback" not in result.output
    assert len(result.output) <= MOST_CHARACTERS, result.output
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", result.output), ascii(result.output)
    after = content_of(folder)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert {name for name in changed if name.split("/")[0] not in case.leaves} == set()


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
