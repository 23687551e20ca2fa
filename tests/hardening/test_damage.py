"""A disk that is full at any write, and bits that flip in any file, change no result."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from auxlearn import RunConfig, train
from auxlearn.core.errors import UserError
from auxlearn.results.record import RunResults
from tests import helpers

#: Moments at which the disk is full, spread over the writes of a run; as many as it has writes, if
#: every write is to be tried.
MOMENTS = int(os.environ.get("AUXLEARN_FULL_DISK_MOMENTS", "3"))

#: Files in which equal runs may differ: times, paths and hardware. The model card shows the time
#: that the run took, and the manifest of the model describes the card.
DIFFERING = (
    "results.json",
    "environment.json",
    "config.yaml",
    "model/README.md",
    "model/manifest.json",
)


def outcome_of(folder: Path) -> dict[str, Any]:
    """All that equal runs share: results without times, and the bytes of other files."""
    shared: dict[str, Any] = {"results": json.dumps(RunResults.load(folder).reproducible())}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in DIFFERING:
            shared[name] = path.read_bytes()
    return shared


@pytest.fixture(scope="module")
def undisturbed(trained, tmp_path_factory):
    """Train once; return the configuration, the outcome and the number of file operations."""
    folder = tmp_path_factory.mktemp("undisturbed")
    config = RunConfig(  # short, and of a run that writes every kind of file
        dataset=str(trained("classification").data),
        encoder=str(trained("classification").encoder),
        aux=["mask_tuning"],
        weights={"meta": {"horizon": "steps", "warmup_steps": 1}},
        epochs=1,
        batch_size=4,
        eval_steps=2,
        patience=0,
        max_length=16,
        device="cpu",
        cache_dir=str(folder / "cache"),
        output=str(folder / "run"),
    )
    with full_from(below=str(folder)) as operations:
        train(config)
    return config, outcome_of(folder / "run"), operations.count


def flip(path: Path, number: int) -> None:
    content = bytearray(path.read_bytes())
    content[number // 8] ^= 1 << number % 8
    path.write_bytes(bytes(content))


def test_flipped_bits_are_noticed_or_harmless(undisturbed, tmp_path):
    """Of a copy of an unfinished run, one bit; what is resumed is equal, or an error in a line."""
    config, expected, _ = undisturbed
    source, copy = tmp_path / "killed", tmp_path / "copy"
    helpers.kill_before_step(3, config.model_copy(update={"output": str(source)}))
    draws, outcomes = random.Random(4), Counter()
    for _ in range(15):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        path = draws.choice(sorted(p for p in copy.rglob("*") if p.is_file() and p.stat().st_size))
        flip(path, draws.randrange(8 * path.stat().st_size))
        line = None
        try:
            train(config.model_copy(update={"output": str(copy)}))
        except UserError as error:
            line = str(error)
        outcomes["equal" if line is None else "noticed"] += 1
        assert "\n" not in (line or ""), path
        assert line or outcome_of(copy) == expected, path
    assert outcomes["noticed"] >= 8


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_disk_that_is_full_is_one_line_and_costs_nothing(undisturbed, tmp_path, moment):
    config, expected, count = undisturbed
    assert count > 50
    paths = {"output": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}
    config = config.model_copy(update=paths)
    at = 1 + moment * (count - 1) // (MOMENTS - 1)
    with (
        full_from(at, below=str(tmp_path)) as operations,
        helpers.one_line((UserError, OSError), os.strerror(28)),
    ):
        train(config)
    assert operations.count >= at
    train(config)
    assert outcome_of(tmp_path / "run") == expected
    assert not list(tmp_path.rglob(".*"))


#: Operations that need space; "file" is opening a file for writing.
WRITES = ("file", "open", "fsync", "replace", "rename", "mkdir")


@contextmanager
def full_from(at: float = float("inf"), below: str = "/") -> Iterator[SimpleNamespace]:
    """Count operations on paths below a folder; from number ``at`` (from 1) on the disk is full."""
    seen = SimpleNamespace(count=0)

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            if _changes_files(name, arguments, settings, below):
                seen.count += 1
                if seen.count >= at:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **settings)

        return call

    opened = counted("file", builtins.open)
    names = {name: counted(name, getattr(os, name)) for name in WRITES if name != "file"}
    with (
        mock.patch.multiple(os, **names),
        mock.patch.object(builtins, "open", opened),
        mock.patch.object(io, "open", opened),
    ):
        yield seen


def _changes_files(name: str, given: tuple[Any, ...], settings: dict[str, Any], below: str) -> bool:
    first = given[0] if given else ""
    named = isinstance(first, str | os.PathLike)
    if named and not str(os.path.abspath(os.fspath(first))).startswith(below):
        return False
    if name == "file":
        mode = settings.get("mode", given[1] if len(given) > 1 else "r")
        return named and any(letter in mode for letter in "wax+")
    if name == "open":
        return bool((given[1] if len(given) > 1 else 0) & os.O_CREAT)
    return True
