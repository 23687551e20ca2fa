"""Data-set folders: a table file for each split, which ``<split>_meta.tsv`` adds columns to."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from auxlearn.core.errors import DataError, shorten, some_of
from auxlearn.core.files import name_problem, read_file, read_json
from auxlearn.core.settings import USUAL, Columns
from auxlearn.core.table import LARGEST_FILE, Table
from auxlearn.data.dataset import (
    CORE_SPLITS,
    Tables,
    TextDataset,
    in_reading_order,
    split_name,
    split_names,
)
from auxlearn.data.examples import read_dataset
from auxlearn.data.tables import READ_FORMATS, check_format, decoded, read_table, read_tables

#: File of the names of the classes in order, where the copy of a data set in memory has any.
LABEL_NAMES = "auxlearn_label_names.json"

#: Folders beside those of the classes, of texts without one.
_UNLABELLED = ("unsup", "unlabeled", "unlabelled")

#: Ends the name of a part of a split, with a hash where the hub wrote it in 2022 and 2023.
_SHARD = re.compile(r"-[0-9]{5}-of-([0-9]{5})(-[0-9a-f]{16})?$")

_MARKUP = {*READ_FORMATS, ".json", ".xml", ".html", ".htm"}

#: A suffix that names a format, as the end of a message's number is none.
_FORMAT = re.compile(r"\.[a-z][a-z0-9]{0,4}")


def read_folder(folder: Path, columns: Columns = USUAL, config: str | None = None) -> TextDataset:
    """Read a folder; ``config`` is a configuration of a copy of a repository of the hub."""
    if is_repository(folder):
        from auxlearn.data.hub import load_repository

        return load_repository(folder, config, columns)
    tables, names = folder_tables(folder, columns), None
    if "train" not in tables:
        raise DataError(
            f"{folder} has no train file (train.jsonl, .csv, .tsv or .parquet): "
            f"{_contents(folder, tables)}"
        )
    if (folder / LABEL_NAMES).is_file():
        names = tuple(map(str, read_json(folder / LABEL_NAMES)))
    return read_dataset(tables, columns, folder.resolve().name, str(folder), names)


def folder_tables(folder: Path, columns: Columns) -> Tables:
    """Return the splits of a folder of tables, or of a folder for each class."""
    files = data_files(folder)
    return Tables({name: partial(read_split, paths) for name, paths in files.items()}, columns)


def is_repository(folder: Path) -> bool:
    """Return whether a folder is one that ``save_to_disk`` of ``datasets`` writes, or a copy of a
    repository of the hub whose README says which files its splits are, or what its classes are.
    """
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return True
    try:
        with (folder / "README.md").open(encoding="utf-8", errors="replace") as file:
            head = file.read(2**20).partition("\n---")[0]
    except OSError:
        return False
    if head.startswith("\ufeff---"):  # datasets would take it for a README that says nothing
        raise DataError(f"{folder / 'README.md'} begins with a byte order mark: save it without")
    return head.startswith("---") and ("\nconfigs:" in head or " class_label:" in head)


def read_split(paths: Sequence[Path]) -> Table:
    """Read a split that :func:`data_files` has found."""
    if not paths[0].is_dir():
        parts = [match for path in paths if (match := _SHARD.search(path.stem))]
        if parts and len(parts) != int(parts[0][1]):
            raise DataError(
                f"{paths[0].parent}: of {int(parts[0][1])} parts of a split there are {len(parts)} "
                f"({some_of(path.name for path in paths)}): add the others, or rename these"
            )
        _check_one_format(paths[0].parent, paths)
        table = _with_meta_file(read_tables(paths), paths[0])
        if len({re.sub("[0-9]+", "#", path.stem) for path in paths}) > 1:  # no numbered parts
            note = f"read from {len(paths)} files, {some_of(path.name for path in paths)}"
            table = replace(table, notes=(*table.notes, note))
        return table
    classes = [path for path in _entries(paths[0]) if path.is_dir()]
    files = [path for folder in classes for path in _entries(folder)]
    for path in (*classes, *files):
        _check_inside(path, paths[0])
        if path.is_dir() and path not in classes:
            raise DataError(f"{path} is a folder: texts are read of {paths[0].name}/CLASS/FILE.txt")
    _check_one_format(paths[0], files)
    if markup := next((file for file in files if file.suffix.lower() in _MARKUP), None):
        raise DataError(f"{markup} is no plain text, as texts by class are: CLASS/FILE.txt")
    columns: dict[str, list[Any]] = {
        "text": [decoded(read_file(path, LARGEST_FILE, DataError), str(path)) for path in files],
        "label": [None if (name := path.parent.name) in _UNLABELLED else name for path in files],
    }
    places = [str(path) for path in files]
    return Table(str(paths[0]), columns, places=places, class_names={})


def _check_one_format(folder: Path, paths: Sequence[Path]) -> None:
    """Refuse files beside others, such as annotations, or a table that was saved in two formats."""
    formats: dict[str, str] = {}
    for path in paths:
        suffix = path.suffix.lower()
        formats.setdefault(suffix if _FORMAT.fullmatch(suffix) else "", path.name)
    if len(formats) > 1:
        raise DataError(
            f"{folder} has files of {len(formats)} formats ({some_of(formats.values())}): leave "
            "those of one there"
        )


def data_files(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split, or the folder that has a folder for each of its classes."""
    shown = shorten(str(folder), 300)
    if folder.is_file():
        check_format(folder)
        raise DataError(
            f"{shown} is a file of none of the formats {', '.join(READ_FORMATS)}: name a table "
            "with a column 'split', or the folder that holds train, dev and test"
        )
    if not folder.is_dir():
        raise DataError(f"there is no folder {shown}: check the path")
    found = [
        path
        for path in _entries(folder)
        if path.suffix.lower() in READ_FORMATS and not path.is_dir()
    ]
    inner = split_folders(folder)
    if not found and (inner or (folder / "data").is_dir()):
        return inner or data_files(folder / "data")
    beside = inner or [path.name for path in _entries(folder) if _is_split_folder(path)]
    if found and beside:
        raise DataError(
            f"{shown} has tables ({some_of(path.name for path in found)}) and the folders "
            f"{some_of(beside)}, which would be left out: keep one of both"
        )
    stems = {path.stem for path in found}
    found = [
        path
        for path in found
        if not (path.name.endswith("_meta.tsv") and path.stem.removesuffix("_meta") in stems)
    ]
    names = splits_of_files([path.stem for path in found])
    files: dict[str, list[Path]] = {}
    for path in found:
        _check_inside(path, folder)
        if problem := name_problem(path.stem):
            raise DataError(f"{shown}: the file name {problem}: rename the file")
        others = files.setdefault(names[path.stem], [])
        if others and not (_SHARD.search(path.stem) and _SHARD.search(others[0].stem)):
            raise DataError(
                f"{folder} has two files for the split '{names[path.stem]}', {others[0].name} and "
                f"{path.name}: remove one"
            )
        others.append(path)
    for path in _entries(folder):
        name = split_name(path.name.partition(".")[0])
        if name in CORE_SPLITS and name not in files and path.suffix and not path.is_dir():
            check_format(path)
            if path in found:
                fault = f"its name is not {name}{path.suffix}: rename it"
                raise DataError(f"{shown}/{path.name} would be no {name} split, as {fault}")
            raise DataError(
                f"{shown}/{path.name} would be left out, as its format is none of "
                f"{', '.join(READ_FORMATS)}: convert it, or give it another name"
                f"{' (a word and its tag on each line: .conll)' if path.suffix == '.txt' else ''}"
            )
    return files


def splits_of_files(stems: Sequence[str]) -> dict[str, str]:
    """Return the split of each file by its name without suffix. What all names of a folder begin
    with, where none is that of a split, and the number of a part are left out.

    >>> splits_of_files(["en_ewt-ud-train", "en_ewt-ud-dev"])
    {'en_ewt-ud-train': 'train', 'en_ewt-ud-dev': 'dev'}
    """
    bare = {stem: _SHARD.sub("", stem) for stem in stems}
    splits = split_names(bare.values())
    if not set(CORE_SPLITS) & set(splits.values()):
        begin = re.match(r".*[-_. ]", os.path.commonprefix(list(bare.values())))  # noqa: RUF071
        cut = {stem: name[begin.end() if begin else 0 :] for stem, name in bare.items()}
        further = split_names(cut.values())
        if set(CORE_SPLITS) & set(further.values()):
            bare, splits = cut, further
    return {stem: splits[name] for stem, name in bare.items()}


def split_folders(folder: Path) -> dict[str, list[Path]]:
    """Return folders named as splits, which hold tables or a folder for each class."""
    folders = {
        path.name: path
        for path in _entries(folder)
        if path.is_dir() and not (path / "environment.json").is_file()  # which each run has
    }
    splits = split_names(folders)
    entries = {name: _entries(path) for name, path in folders.items()}
    classes = {
        name: {path.name for path in inner if path.is_dir()} for name, inner in entries.items()
    }
    usual = [name for name, split in splits.items() if split in CORE_SPLITS and entries[name]]
    known = {one for name in usual if len(classes[name]) > 1 for one in classes[name]}
    found: dict[str, list[Path]] = {}
    for name, split in splits.items():
        tables = [path for path in entries[name] if path.suffix.lower() in READ_FORMATS]
        for path in (folders[name], *tables):
            if split in CORE_SPLITS or tables:
                _check_inside(path, folder)
        if tables and known & classes[name]:
            raise DataError(
                f"{folders[name]} has tables ({some_of(path.name for path in tables)}) beside the "
                "folders of its classes, which would be left out: keep one of both"
            )
        if tables:
            found[split] = tables
        elif known & classes[name]:
            found[split] = [folders[name]]
    if not set(CORE_SPLITS) & found.keys():
        return {}
    for name in usual:
        if splits[name] not in found:
            raise DataError(
                f"{folders[name]} would be left out, as it holds no tables, and no folders for "
                "the classes of train: give it another name"
            )
    return found


def _is_split_folder(path: Path) -> bool:
    """Return whether a path is a folder that is named as a split, holds anything, and is no run."""
    named = path.is_dir() and split_name(path.name) in CORE_SPLITS
    return named and not (path / "environment.json").is_file() and bool(_entries(path))


def _check_inside(path: Path, folder: Path) -> None:
    """Check that a path in a folder does not lead out of it through a link."""
    if path.is_symlink():
        shown = shorten(str(path), 300)
        try:
            inside = path.resolve(strict=True).is_relative_to(folder.resolve(strict=True))
        except (OSError, RuntimeError):
            raise DataError(f"{shown} is a link that leads nowhere") from None
        if not inside:
            raise DataError(
                f"{shown} is a link out of the folder, which is not followed: copy the file there"
            )


def _entries(folder: Path) -> list[Path]:
    """Return what a folder holds, but for what is hidden, also by archives made on a Mac."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{shorten(str(folder), 300)} cannot be read ({error.strerror})") from None
    return [path for path in paths if path.name[0] != "." and path.name != "__MACOSX"]


def _contents(folder: Path, splits: Collection[str]) -> str:
    if splits:
        return f"its splits are {some_of(in_reading_order(splits))} (--ood and evaluate need none)"
    names = [path.name for path in _entries(folder)]
    if sum(path.is_dir() for path in _entries(folder)) > 1:
        return f"it holds {some_of(names)} (texts by class are read of train/CLASS/FILE.txt)"
    return f"it holds {some_of(names)}" if names else "it is empty"


def _with_meta_file(table: Table, path: Path) -> Table:
    """Add the columns of ``NAME_meta.tsv``, if it exists, to the table of ``NAME``."""
    meta_path = path.with_name(f"{path.stem}_meta.tsv")
    if not meta_path.exists():
        return table
    meta = read_table(meta_path)
    if len(meta) != len(table):
        raise DataError(
            f"{meta_path} has {len(meta)} rows but {path.name} has {len(table)}: it needs one row "
            "per example"
        )
    columns = dict(meta.columns)
    # A column "line" numbers the rows, which shows whether the two files belong together.
    numbers = columns.pop("line", None)
    if numbers is not None and numbers != [str(row + 1) for row in range(len(numbers))]:
        raise DataError(f"{meta_path}: its column 'line' does not count 1, 2, 3 ... in order")
    if taken := sorted(set(columns) & set(table.columns)):
        raise DataError(f"{meta_path} and {path.name} both have the column '{taken[0]}'")
    return replace(table, columns=table.columns | columns)
