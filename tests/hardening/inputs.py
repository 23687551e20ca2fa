"""Bad inputs: what writes their files, and what the one line that answers them must name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.trained import Trained


@dataclass(frozen=True)
class Place:
    """The folder that a case is made in; commands run in it, so paths may be relative."""

    path: Path
    trained: Callable[[str], Trained]  # the run of a kind of labels, not to be changed

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file, text as UTF-8; its folder is created."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def copy_encoder(self) -> Path:
        """Copy a tiny encoder, to be spoiled."""
        return Path(shutil.copytree(self.trained("classification").encoder, self.path / "encoder"))

    def copy_run(self, which: str = "finished") -> Path:
        """Copy the finished or the unfinished run, to be spoiled, and its configuration."""
        folder = self.trained("classification").folder / which
        shutil.copy(folder / "config.yaml", self.path / "config.yaml")
        ignore = shutil.ignore_patterns(".lock")
        return Path(shutil.copytree(folder, self.path / "run", ignore=ignore))


Make = Callable[[Place], object]


@dataclass(frozen=True)
class Case:
    """A bad input: a command, and what the line that it is answered with must name."""

    id: str
    command: str
    names: str
    make: Make | None = None
    typed: str | bytes | None = None
    leaves: str = ""  # a name in the folder that the command may create or change


def cases(of: str, command: str, rows: Mapping[str, Any], **more: Any) -> list[Case]:
    """Cases of one command, by name: what the line names, alone or with what makes the case."""
    pairs = {key: (row, None) if isinstance(row, str) else row for key, row in rows.items()}
    return [Case(f"{of}: {key}", command, *pair, **more) for key, pair in pairs.items()]


GOOD = '{"text": "a fine day", "label": "good"}\n{"text": "rain again", "label": "bad"}\n'
MANY = "".join(
    json.dumps({"text": f"text number {i}", "label": ("good", "bad")[i % 2]}) + "\n"
    for i in range(40)
)


def writes(name: str, content: str | bytes) -> Make:
    return lambda place: place.write(name, content)


def together(*makes: Make) -> Make:
    return lambda place: [make(place) for make in makes]


def made(name: str, write: Callable[[Path], object]) -> Make:
    def make(place: Place) -> None:
        (place.path / name).parent.mkdir(parents=True, exist_ok=True)
        write(place.path / name)

    return make


def link(name: str, target: str) -> Make:
    return made(name, lambda path: path.symlink_to(target))


def pipe(name: str) -> Make:
    return made(name, os.mkfifo)


def sparse_file(name: str, size: int) -> Make:
    """A file of any size that takes no room."""
    return together(writes(name, b""), made(name, lambda path: os.truncate(path, size)))


def beside_train(*makes: Make) -> Make:
    """Something beside a good train file."""
    return together(writes("d/train.jsonl", GOOD), *makes)


def lines(extra: str) -> Make:
    """A train file with two good lines and another one."""
    return writes("d/train.jsonl", GOOD + extra + "\n")


def row(label: Any, text: Any = "some text", **more: Any) -> str:
    return json.dumps({"text": text, "label": label, **more})


def parquet(renamed: list[str] | None = None, **columns: Any) -> Make:
    def make(place: Place) -> None:
        import pyarrow
        from pyarrow import parquet

        (place.path / "d").mkdir()
        table = pyarrow.table(columns)
        table = table.rename_columns(renamed) if renamed else table
        parquet.write_table(table, place.path / "d" / "train.parquet")

    return make


def of_encoder(make: Callable[[Path], object]) -> Make:
    """A data set, and an encoder whose folder is changed."""
    return together(writes("d/train.jsonl", MANY), lambda place: make(place.copy_encoder()))


def of_run(make: Callable[[Path], object], which: str = "finished") -> Make:
    """A run whose folder is changed."""
    return lambda place: make(place.copy_run(which))


def beside_run(make: Make) -> Make:
    """Something beside a run."""
    return together(Place.copy_run, make)


def setting(**changes: Any) -> Make:
    """Keys of the configuration of an encoder; ``...`` leaves one out."""

    def make(model: Path) -> None:
        path = model / "config.json"
        content = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))

    return of_encoder(make)


def replaced(name: str, content: str | bytes) -> Make:
    """A file of an encoder with another content."""
    write = content.encode() if isinstance(content, str) else content
    return of_encoder(lambda model: (model / name).write_bytes(write))


def weights(part: str, change: Callable[[Any], Any]) -> Make:
    """An encoder with changed weights: those whose name has this part; ``None`` leaves one out."""

    def make(model: Path) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(model / "model.safetensors")
        tensors |= {name: change(tensors[name]) for name in tensors if part in name}
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        save_file(kept, model / "model.safetensors", {"format": "pt"})

    return of_encoder(make)
