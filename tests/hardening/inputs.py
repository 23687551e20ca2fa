"""Bad inputs, what writes their files, and the one line that each must be answered with."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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

    def copy_encoder(self) -> Path:
        """Copy a tiny encoder, to be spoiled."""
        return Path(shutil.copytree(self.encoder_folder("bert"), self.path / "encoder"))

    def copy_run(self) -> Path:
        """Copy the finished run, to be spoiled."""
        return Path(shutil.copytree(self.finished_run(), self.path / "run"))


Make = Callable[[Place], object]


@dataclass(frozen=True)
class Case:
    """A bad input: a command, and the one line that it must be answered with."""

    id: str
    command: Sequence[str]
    line: str  # a regular expression that an error line must contain
    make: Make | None = None
    typed: str | bytes | None = None
    lines: int = 3  # error lines at most
    leaves: tuple[str, ...] = ()  # names in the folder that the command may create or change


def cases(
    of: str,
    command: Sequence[str],
    rows: Mapping[str, Any],
    write: Callable[..., Make] | None = None,
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


GOOD = '{"text": "a fine day", "label": "good"}\n{"text": "rain again", "label": "bad"}\n'
MANY = "".join(
    json.dumps({"text": f"text number {i}", "label": ("good", "bad")[i % 2]}) + "\n"
    for i in range(40)
)
CHECK = ("data", "check", "d")
SWEEP = ("sweep", "s.yaml", "--dry-run")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def writes(name: str, content: str | bytes) -> Make:
    return lambda place: place.write(name, content)


config, sweep = partial(writes, "c.yaml"), partial(writes, "s.yaml")


def together(*makes: Make) -> Make:
    return lambda place: [make(place) for make in makes]


def beside_good_train(*makes: Make) -> Make:
    return together(writes("d/train.jsonl", GOOD), *makes)


def on_lines(extra: str) -> Make:
    """A train file with two good lines and another one."""
    return writes("d/train.jsonl", GOOD + extra + "\n")


def row(label: Any, text: Any = "some text", **more: Any) -> str:
    return json.dumps({"text": text, "label": label, **more})


def csv_of(*labels: str) -> str:
    return "text,label\n" + "".join(f"text {i},{label}\n" for i, label in enumerate(labels))


def parquet(renamed: list[str] | None = None, **columns: Any) -> Make:
    def make(place: Place) -> None:
        import pyarrow
        from pyarrow import parquet

        (place.path / "d").mkdir()
        table = pyarrow.table(columns)
        table = table.rename_columns(renamed) if renamed else table
        parquet.write_table(table, place.path / "d" / "train.parquet")

    return make


def made(name: str, write: Callable[[Any], object]) -> Make:
    def make(place: Place) -> None:
        (place.path / name).parent.mkdir(parents=True, exist_ok=True)
        write(place.path / name)

    return make


def link(name: str, target: str) -> Make:
    return made(name, lambda path: path.symlink_to(target))


def pipe(name: str) -> Make:
    return made(name, os.mkfifo)


def folder(name: str) -> Make:
    return made(name, os.mkdir)


def sparse_file(name: str, size: int) -> Make:
    """A file of any size that takes no room."""
    return together(writes(name, b""), made(name, lambda path: os.truncate(path, size)))


def train(*arguments: str) -> tuple[str, ...]:
    return ("train", "--config", "c.yaml", *arguments)


def of_encoder(make: Callable[[Any], object]) -> Make:
    """A data set, and an encoder whose folder is changed."""

    def both(place: Place) -> None:
        place.write("d/train.jsonl", MANY)
        make(place.copy_encoder())

    return both


def of_run(make: Callable[[Any], object]) -> Make:
    """A run the folder of whose model is changed."""
    return lambda place: make(place.copy_run() / "model")


def changed(name: str, change: Callable[[Any], Any], of: Any = of_encoder) -> Make:
    def make(model: Any) -> None:
        path = model / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return of(make)


def setting(of: Any = of_encoder, **changes: Any) -> Make:
    """Keys of the configuration of a model; ``...`` leaves one out."""

    def change(content: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in {**content, **changes}.items() if v is not ...}

    return changed("config.json", change, of)


def replaced(name: str, content: str | bytes) -> Make:
    write = content.encode() if isinstance(content, str) else content
    return of_encoder(lambda model: (model / name).write_bytes(write))


def removed(pattern: str) -> Make:
    return of_encoder(lambda model: [path.unlink() for path in model.glob(pattern)])


def weights(change: Callable[[str, Any], Any], part: str = "", of: Any = of_encoder) -> Make:
    """A model with changed weights: those whose name has this part; ``None`` leaves one out."""

    def make(model: Any) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(model / "model.safetensors")
        tensors |= {name: change(name, tensors[name]) for name in tensors if part in name}
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        save_file(kept, model / "model.safetensors", {"format": "pt"})

    return of(make)


def without(part: str, of: Any = of_encoder) -> Make:
    return weights(lambda name, tensor: None, part, of)


def filled(part: str, value: float, of: Any = of_encoder) -> Make:
    def fill(name: str, tensor: Any) -> Any:
        tensor.view(-1)[0] = value
        return tensor

    return weights(fill, part, of)


def narrower(part: str, of: Any = of_encoder) -> Make:
    return weights(lambda name, tensor: tensor[..., :-1].contiguous(), part, of)
