"""Data-set folders: a table file for each split, which ``<split>_meta.tsv`` adds columns to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from auxlearn.core.errors import DataError, did_you_mean, shorten, some_of
from auxlearn.core.files import name_problem
from auxlearn.core.settings import USUAL, Columns
from auxlearn.data.dataset import CORE_SPLITS, Split, TextDataset, split_name
from auxlearn.data.examples import RawExamples, assemble, parse_examples, parse_splits, to_split
from auxlearn.data.tables import READ_FORMATS, read_table


def read_folder(folder: Path, columns: Columns = USUAL) -> TextDataset:
    files = data_files(folder)
    if "train" not in files:
        raise DataError(
            f"{folder} has no train file (train.jsonl, .csv, .tsv or .parquet): "
            f"{_contents(folder, files)}"
        )
    raw_splits, notes = parse_splits(
        ((name, read_table(files[name])) for name in in_reading_order(files)), columns
    )
    splits, more_notes = assemble(
        {name: _with_meta_file(examples, files[name]) for name, examples in raw_splits.items()},
        columns,
    )
    return TextDataset(name=folder.resolve().name, splits=splits, notes=(*notes, *more_notes))


def read_evaluation_split(folder: Path, split: str = "test", columns: Columns = USUAL) -> Split:
    """Read one labelled split of a folder; the folder need not have a train file."""
    files = data_files(folder)
    name = split_name(split)
    if name not in files:
        hint = f"; {did_you_mean(name, files)}" if files else ""
        raise DataError(
            f"{folder} has no split '{shorten(split)}': {_contents(folder, files)}{hint}"
        )
    examples = parse_examples(read_table(files[name]), columns)
    return to_split(_with_meta_file(examples, files[name]), name)


def is_single_table(path: Path) -> bool:
    """Return whether a data set is a single file, whose column ``split`` divides it."""
    return path.suffix.lower() in READ_FORMATS and path.is_file()


def data_files(folder: Path) -> dict[str, Path]:
    shown = shorten(str(folder), 300)
    if folder.is_file():
        raise DataError(
            f"{shown} is a file of none of the formats {', '.join(READ_FORMATS)}: name a table "
            "with a column 'split', or the folder that holds train, dev and test"
        )
    if not folder.is_dir():
        raise DataError(f"there is no folder {shown}: check the path")
    # Archives made on a Mac hold a file ._NAME beside each NAME.
    found = [
        path
        for path in _entries(folder)
        if path.suffix.lower() in READ_FORMATS and not path.name.startswith(".")
    ]
    stems = {path.stem for path in found}
    files: dict[str, Path] = {}
    for path in found:
        _check_inside(path, folder)
        if path.name.endswith("_meta.tsv") and path.stem.removesuffix("_meta") in stems:
            continue
        if problem := name_problem(path.stem):
            raise DataError(f"{shown}: the file name {problem}: rename the file")
        name = split_name(path.stem)
        if name in files:
            raise DataError(
                f"{folder} has two files for the split '{name}', {files[name].name} and "
                f"{path.name}: remove one"
            )
        files[name] = path
    for path in _entries(folder):
        name = split_name(path.name.partition(".")[0])
        if name in CORE_SPLITS and name not in files and path.suffix and not path.is_dir():
            raise DataError(
                f"{shown}/{path.name} would be left out, as its format is none of "
                f"{', '.join(READ_FORMATS)}: convert it, or give it another name"
                f"{' (a word and its tag on each line: .conll)' if path.suffix == '.txt' else ''}"
            )
    return files


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
                f"{shown} is a link out of the folder, which is not followed: copy the file into "
                "the folder"
            )


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{shorten(str(folder), 300)} cannot be read ({error.strerror})") from None


def in_reading_order(names: Iterable[str]) -> list[str]:
    known = set(names)
    return [*(one for one in CORE_SPLITS if one in known), *sorted(known - {*CORE_SPLITS})]


def _contents(folder: Path, files: dict[str, Path]) -> str:
    if files:
        return f"its splits are {some_of(in_reading_order(files))}"
    names = [path.name for path in _entries(folder)]
    return f"it holds {some_of(names)}" if names else "it is empty"


def _with_meta_file(examples: RawExamples, path: Path) -> RawExamples:
    """Add the columns of ``NAME_meta.tsv``, if it exists, to the examples of ``NAME``."""
    meta_path = path.with_name(f"{path.stem}_meta.tsv")
    if not meta_path.exists():
        return examples
    table = read_table(meta_path)
    if len(table) != len(examples.texts):
        raise DataError(
            f"{meta_path} has {len(table)} rows but {path.name} has {len(examples.texts)}: "
            "it needs one row per example"
        )
    columns = dict(table.columns)
    # A column "line" numbers the rows, which shows whether the two files belong together.
    numbers = columns.pop("line", None)
    if numbers is not None and numbers != [str(row + 1) for row in range(len(numbers))]:
        raise DataError(f"{meta_path}: its column 'line' does not count 1, 2, 3 ... in order")
    taken = sorted(set(columns) & set(examples.meta))
    if taken:
        raise DataError(f"{meta_path} and {path.name} both have the column '{taken[0]}'")
    return replace(examples, meta={**examples.meta, **columns})
