"""Every bad input is answered by one line, with exit code 2, and leaves nothing behind.

The cases are one of each kind of fault that the tests of the rooms do not have; what the line says
beside what it names is of no interest here. What the cases do not think of, bytes that change in
files of every kind do.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from auxlearn.cli import cli
from tests import helpers
from tests.cli.helpers import error
from tests.hardening import cases_data, cases_encoders, cases_runs, cases_settings
from tests.hardening.inputs import (
    MANY,
    Case,
    Make,
    Place,
    of_encoder,
    of_run,
    parquet,
    writes,
)

CASES: list[Case] = [
    case
    for module in (cases_data, cases_encoders, cases_runs, cases_settings)
    for case in module.CASES
]
#: Changed files of each kind; more find more.
CHANGES = int(os.environ.get("AUXLEARN_FUZZ_EXAMPLES", "40")) // 5


def content_of(folder: Path) -> dict[str, str]:
    """Return a digest of everything in a folder by relative path."""
    digests = {}
    for path in folder.rglob("*"):
        digest = "link" if path.is_symlink() else "file" if path.is_file() else "other"
        if digest == "file" and path.stat().st_size <= 50_000_000:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        digests[str(path.relative_to(folder))] = digest
    return digests


def refused(command: str, typed: str | bytes | None = None, leaves: str = "") -> list[str] | None:
    """Run a command in the working folder; return its error lines, ``None`` if it succeeds."""
    before = content_of(Path())
    words = shlex.split(command) if "'" in command else command.split(" ")
    result = CliRunner().invoke(cli, words, input=typed)
    if result.exit_code == 0:
        return None
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert len(result.output) <= 1000, result.output
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", result.output), ascii(result.output)
    after = content_of(Path())
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert {name for name in changed if name.split("/")[0] != leaves} == set()
    return [line for line in result.stderr.splitlines() if line.startswith("error: ")]


@pytest.fixture
def place(tmp_path, monkeypatch, trained) -> Place:
    monkeypatch.chdir(tmp_path)
    helpers.only_builtin_plugins(monkeypatch)
    return Place(tmp_path, trained)


def test_cases_have_names_of_their_own():
    assert len(CASES) == len({case.id for case in CASES}) >= 100


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_bad_input(case, place):
    if case.make is not None:
        case.make(place)
    lines = refused(case.command, case.typed, case.leaves)
    assert lines
    assert 1 <= len(lines) <= 3
    assert case.names in lines[0], lines


CSV = "text,label\n" + "".join(f'"text, number {i}",{"ab"[i % 2]}\n' for i in range(20))
CONLL = "the O\ncat B-X\n\na O\nday O\n\n"
CARD = cases_settings.CARD.format("name: mine")
SWEEP = "name: s\nbase: {dataset: d, encoder: encoder}\ngrid: {epochs: [1, 2]}\nseeds: 2\n"
#: A file of each kind: what makes it, and a command that reads it and writes nothing.
FILES: dict[str, tuple[Make, str]] = {
    "d/train.jsonl": (writes("d/train.jsonl", MANY), "data check d"),
    "d/train.csv": (writes("d/train.csv", CSV), "data check d"),
    "d/train.parquet": (parquet(text=list("abcdef"), label=list("xyxyxy")), "data check d"),
    "d/train.conll": (writes("d/train.conll", CONLL * 9), "data check d"),
    "texts.txt": (
        of_run(lambda run: run.with_name("texts.txt").write_text("\n".join(helpers.LINES))),
        "predict run --file texts.txt",
    ),
    "card.yaml": (writes("card.yaml", CARD), "data check card.yaml"),
    "config.yaml": (of_run(lambda run: None), "train --config config.yaml --dataset ./nowhere"),
    "s.yaml": (
        lambda place: (of_encoder(lambda model: None)(place), place.write("s.yaml", SWEEP)),
        "sweep s.yaml --dry-run",
    ),
    **{
        f"encoder/{name}": (of_encoder(lambda model: None), "score --encoder encoder 'the parser'")
        for name in ("config.json", "tokenizer.json", "model.safetensors")
    },
    **{
        f"run/{name}": (of_run(lambda run: None), "report run --output page.html")
        for name in ("config.yaml", "results.json", "metrics.jsonl", "predictions/dev.jsonl")
    },
    **{
        f"run/model/{name}": (of_run(lambda run: None), "predict run 'the parser'")
        for name in ("config.json", "manifest.json", "model.safetensors")
    },
}
PIECES = (b"", b'"', b"{", b"\n", b"\0", b"\xff", b"\\", b",", b"\t", b": ", b"- ", b"[" * 50)


def spoiled(content: bytes, draw: random.Random) -> bytes:
    """Replace bytes at some places, or cut the content off."""
    if draw.random() < 0.2:
        return content[: draw.randrange(len(content))]
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(content))
        piece = draw.choice((*PIECES, draw.randbytes(3)))
        content = content[:at] + piece + content[at + max(1, len(piece)) :]
    return content


@pytest.mark.parametrize("name", FILES)
def test_changed_bytes_are_read_or_answered_by_a_line(name, place):
    make, command = FILES[name]
    make(place)
    path, draw = place.path / name, random.Random(name)
    good = path.read_bytes()
    answers = []
    for _ in range(CHANGES):
        path.write_bytes(spoiled(good, draw))
        answers.append(refused(command))
        Path("page.html").unlink(missing_ok=True)
    told = [lines for lines in answers if lines is not None]
    assert all(1 <= len(lines) <= 6 for lines in told), told
    assert told


def refusing(real, name):
    """A function of a path that may not read what has this name."""

    def call(path, *arguments, **more):
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **more)

    return call


@pytest.mark.parametrize(
    ("denied", "command"),
    [
        ("train.jsonl", "data check d"),
        ("c.yaml", "train --config c.yaml"),
        ("texts.txt", "pretrain --encoder tiny --corpus texts.txt --output o"),
        ("config.json", "data check d --encoder encoder"),
        ("p.py", "check p.py"),
    ],
)
def test_what_may_not_be_read_is_named(denied, command, place, monkeypatch):
    place.copy_encoder()
    contents = {"c.yaml": "name: x", "texts.txt": "a text\n", "p.py": "", "d/train.jsonl": MANY}
    for name, content in contents.items():
        place.write(name, content)
    for owner, function in ((os, "open"), (Path, "open"), (Path, "iterdir")):
        monkeypatch.setattr(owner, function, refusing(getattr(owner, function), denied))
    line = error(*command.split())
    assert denied in line
    assert "Permission denied" in line
