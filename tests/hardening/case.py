"""A bad input, and the one line that it must be answered with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Place:
    """The folder that a case is made in; commands run in it, so paths may be relative."""

    path: Path
    encoder_folder: Callable[[str], Path]  # of a tiny encoder by family, not to be changed
    finished_run: Callable[[], Path]  # with the classes "no" and "yes", not to be changed

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file, text as UTF-8; its folder is created."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def copy_encoder(self, name: str = "encoder", family: str = "bert") -> Path:
        """Copy a tiny encoder, to be spoiled."""
        return Path(shutil.copytree(self.encoder_folder(family), self.path / name))

    def copy_run(self, name: str = "run") -> Path:
        """Copy the finished run, to be spoiled."""
        return Path(shutil.copytree(self.finished_run(), self.path / name))


@dataclass(frozen=True)
class Case:
    """A bad input: a command, and the one line that it must be answered with."""

    id: str
    command: Sequence[str]
    line: str  # a regular expression that an error line must contain
    make: Callable[[Place], object] | None = None
    typed: str | bytes | None = None
    lines: int = 3  # error lines at most
    leaves: tuple[str, ...] = ()  # names in the folder that the command may create or change


def cases(
    of: str,
    command: Sequence[str],
    rows: Mapping[str, Any],
    write: Callable[..., Callable[[Place], object]] | None = None,
    **more: Any,
) -> list[Case]:
    """Cases of one command: by name the error line, alone or with what makes the case.

    With ``write`` that is what it is called with, such as the content of a bad file.
    """
    found = []
    for name, row in rows.items():
        line, *given = (row,) if isinstance(row, str) else row
        make = write(*given) if write and given else given[0] if given else None
        found.append(Case(f"{of}: {name}" if of else name, command, line, make, **more))
    return found
