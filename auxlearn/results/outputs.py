"""Where a command may write: not over the files of runs and sweeps, nor over what it reads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from auxlearn.core.errors import DataError, UserError, describe
from auxlearn.core.files import check_output, expand
from auxlearn.data.dataset import CORE_SPLITS, split_names
from auxlearn.data.folders import split_folders, splits_of_files
from auxlearn.data.tables import READ_FORMATS

#: Names in a run folder that belong to the run.
_RUN = "config.yaml inputs.json environment.json results.json error.log metrics.jsonl"
_RUN += " perturbations.jsonl predictions plots data model heads adapter checkpoint branches"
RUN_NAMES = frozenset([*_RUN.split(), "tracker_id.txt"])
#: Names in the folder of a sweep that belong to the sweep.
SWEEP_NAMES = frozenset(
    ["sweep.yaml", "plan.json", "results.json", "trials", "failures", "logs", "data"]
)
#: Ends of the names of files of scores.
JSON = (".json",)
Kind = Literal["run", "sweep"]
#: By kind of folder: a file that it always has, others of which it has one, and its own names.
_KINDS: dict[Kind, tuple[str, tuple[str, ...], frozenset[str]]] = {
    "run": ("config.yaml", ("environment.json", "inputs.json", "results.json"), RUN_NAMES),
    "sweep": ("sweep.yaml", ("plan.json", "results.json", "trials"), SWEEP_NAMES),
}


def check_output_file(
    path: Path, endings: Iterable[str], inputs: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Check before any work that a file can be written, and that its name ends as its format."""
    check_output(path.parent if os.path.exists(path) else path)
    if os.path.exists(path) and not os.path.isfile(path):
        what = "a folder" if os.path.isdir(path) else "not a regular file"
        raise UserError(f"{path} is {what}: choose another --output")
    check_unowned(path)
    check_no_split(path)
    splits = splits_in(path.parent)
    if path.is_file() and path.stem in splits and len({*splits.values()}) > 1:
        raise UserError(f"{path} is a split of the data set there: choose another --output")
    place = _resolved(path)
    for read in inputs:
        source = expand(read)
        if os.path.isdir(source) and source.resolve() in place.parents:
            raise UserError(f"{path} is in {read}, which is read: choose another --output")
        if os.path.isfile(source) and os.path.exists(path) and path.samefile(source):
            raise UserError(f"{path} is the file that is read: choose another --output")
    if path.suffix.lower() not in endings:
        raise UserError(f"{describe(str(path))} names no format: end it with {', '.join(endings)}")


def check_output_folder(path: Path, allowed: str = "") -> None:
    """Check that a folder can be written into, and is none of another run, sweep, model or data."""
    check_output(path)
    check_unowned(path)
    check_no_split(path)
    if _split_folders(path.absolute().parent):  # its tables would be another set
        raise UserError(f"{path} is beside the splits of data: choose another --output")
    for kind in ("run", "sweep"):
        if kind != allowed and is_owner(path, kind):
            raise UserError(f"{path} is the folder of a {kind}: choose another --output")
    held = {"an encoder": ["*.safetensors"], "a data set": [f"train{end}" for end in READ_FORMATS]}
    for what, patterns in held.items():
        if what != allowed and any(match for pattern in patterns for match in path.glob(pattern)):
            raise UserError(f"{path} holds {what}: choose another --output")


def splits_in(folder: Path) -> dict[str, str]:
    """Return the core split of each table of a folder by its name without suffix."""
    names = os.listdir(folder) if os.access(folder, os.R_OK) and folder.is_dir() else []
    tables = [path for path in map(Path, names) if path.suffix.lower() in READ_FORMATS]
    splits = splits_of_files([path.stem for path in tables])
    return {stem: split for stem, split in splits.items() if split in CORE_SPLITS}


def check_no_split(path: Path) -> None:
    """Check that a new path would not be read as a part of the data set that it is in."""
    if split_names([path.name])[path.name] in CORE_SPLITS and splits_in(path.parent):
        raise UserError(f"{path} is named as a split of data beside it: choose another --output")
    place = _resolved(path)
    for split in (split for folder in place.parents for split in _split_folders(folder)):
        if place.is_relative_to(split):
            raise UserError(f"{path} is in {split}, a split of data: choose another --output")


def _split_folders(folder: Path) -> set[Path]:
    """Return the folders of the splits of a data set that has a folder for each."""
    if not (folder / "train").is_dir():
        return set()
    try:
        splits = split_folders(folder)
    except DataError:  # it is none
        return set()
    parts = (part for paths in splits.values() for part in paths)
    return {part if part.is_dir() else part.parent for part in parts}


def check_unowned(path: Path) -> None:
    """Check that a path is none that belongs to the innermost run or sweep that it is in."""
    place = _resolved(path)
    for folder in place.parents:
        kind = next((kind for kind in _KINDS if is_owner(folder, kind)), None)
        if kind and place.relative_to(folder).parts[0] in _KINDS[kind][2]:
            raise UserError(f"{path} belongs to the {kind} in {folder}: choose another --output")
        if kind:
            return


def is_owner(folder: Path, kind: Kind) -> bool:
    """Return whether a folder is that of a run or a sweep, as its files tell."""
    first, others, _ = _KINDS[kind]
    return (folder / first).is_file() and any((folder / other).exists() for other in others)


def _resolved(path: Path) -> Path:
    """Return the path without links but for its last part, which a write replaces."""
    return path.parent.resolve() / path.name
