"""Every bad input is answered by a line or a few, with exit code 2, and leaves nothing behind."""

from __future__ import annotations

import hashlib
import importlib
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from auxlearn.cli import cli
from tests import helpers
from tests.cli.helpers import write_run, write_split
from tests.hardening.inputs import Case, Place

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
