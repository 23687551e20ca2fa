"""A folder of data files read into a :class:`~auxlearn.data.dataset.TextDataset`.

The folder holds one file per split, named after it: ``train``, ``dev`` (or ``validation``,
``valid``, ``val``) and ``test``, as .jsonl, .csv, .tsv or .parquet. Any further data file is a
split of its own name. Beside a file ``<split>.jsonl`` there may be ``<split>_meta.tsv``, with a
header and one line per row, whose columns join :attr:`Split.meta`.
"""

from __future__ import annotations

from pathlib import Path

from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.rows import Columns, Rows, assemble, rows_of, sort_labels, to_split
from auxlearn.data.tables import FORMATS, read_table
from auxlearn.errors import DataError, did_you_mean

CORE_SPLITS = ("train", "dev", "test")
"""The splits with a fixed meaning; every other split is extra."""

DEV_NAMES = ("dev", "validation", "valid", "val")


def split_name(stem: str) -> str:
    """Return the split that a file or hub split of this name holds.

    Examples:
        >>> split_name("validation"), split_name("Test"), split_name("hard_cases")
        ('dev', 'test', 'hard_cases')
    """
    lower = stem.lower()
    if lower in DEV_NAMES:
        return "dev"
    return lower if lower in CORE_SPLITS else stem


def read_folder(folder: Path, columns: Columns | None = None) -> TextDataset:
    """Read every split in a folder.

    Args:
        folder: The folder.
        columns: Which column holds what; the default names where left out.

    Returns:
        The data set, named after the folder, with the splits that the folder has.

    Raises:
        DataError: The folder, its train file or a column is missing, or a file has a fault; see
            :func:`~auxlearn.data.tables.read_table`, :func:`~auxlearn.data.rows.rows_of` and
            :func:`~auxlearn.data.rows.assemble`.
    """
    columns = columns or Columns()
    files = data_files(folder)
    if "train" not in files:
        raise DataError(
            f"{folder} has no train file (train.jsonl, .csv, .tsv or .parquet): "
            f"{_contents(folder, files)}"
        )
    everything: dict[str, Rows] = {}
    notes = []
    for name in sorted(files, key=_reading_order):
        table = read_table(files[name])
        if name not in CORE_SPLITS and columns.text not in table.columns:
            notes.append(f"{files[name].name} was left out: it has no column '{columns.text}'")
            continue
        rows = rows_of(table, columns, labelled=name in CORE_SPLITS)
        everything[name] = _with_meta_file(rows, files[name])
    splits, more_notes = assemble(everything)
    return TextDataset(name=folder.resolve().name, splits=splits, notes=(*notes, *more_notes))


def read_evaluation_split(
    folder: Path,
    split: str = "test",
    label_names: tuple[str, ...] | None = None,
    columns: Columns | None = None,
) -> Split:
    """Read one labelled split of a folder, which needs no train file.

    Args:
        folder: The folder.
        split: The split to read.
        label_names: Label names of the classifier to be evaluated. They number the labels if
            the split keeps to them; otherwise, or without them, the split has the label names
            it holds, and mapping one onto the other is the caller's.
        columns: Which column holds what; the default names where left out.

    Raises:
        DataError: The folder, the split or a column is missing, or the file has a fault.
    """
    files = data_files(folder)
    name = split_name(split)
    if name not in files:
        hint = f"; {did_you_mean(name, files)}" if files else ""
        raise DataError(f"{folder} has no split '{split}': {_contents(folder, files)}{hint}")
    rows = _with_meta_file(rows_of(read_table(files[name]), columns or Columns()), files[name])
    own = sort_labels(rows.labels or [])
    if label_names is not None and set(own) <= set(label_names):
        return to_split(rows, name, tuple(label_names))
    return to_split(rows, name, own)


def read_labelled_file(
    path: Path, label_names: tuple[str, ...], columns: Columns | None = None
) -> Split:
    """Read one file of labelled rows that belongs to a data set without being one of its splits.

    Args:
        path: A .jsonl, .csv, .tsv or .parquet file.
        label_names: Label names of the data set.
        columns: Which column holds what; the default names where left out.

    Raises:
        DataError: The file or a column is missing, it has a fault, or a label is not among
            ``label_names``.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}: check the path")
    return to_split(rows_of(read_table(path), columns or Columns()), path.stem, label_names)


def data_files(folder: Path) -> dict[str, Path]:
    """Return the data file of each split in a folder.

    Raises:
        DataError: There is no such folder, or it has two files for one split.
    """
    if folder.is_file():
        raise DataError(f"{folder} is a file: name the folder that holds train, dev and test")
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}: check the path")
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in FORMATS)
    stems = {path.stem for path in found}
    files: dict[str, Path] = {}
    for path in found:
        if path.name.endswith("_meta.tsv") and path.stem.removesuffix("_meta") in stems:
            continue
        name = split_name(path.stem)
        if name in files:
            raise DataError(
                f"{folder} has two files for the split '{name}', {files[name].name} and "
                f"{path.name}: remove one"
            )
        files[name] = path
    return files


def _reading_order(name: str) -> tuple[int, str]:
    order = CORE_SPLITS.index(name) if name in CORE_SPLITS else len(CORE_SPLITS)
    return order, name


def _contents(folder: Path, files: dict[str, Path]) -> str:
    if files:
        return f"its splits are {', '.join(sorted(files, key=_reading_order))}"
    names = sorted(path.name for path in folder.iterdir())
    if not names:
        return "it is empty"
    return f"it holds {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"


def _with_meta_file(rows: Rows, path: Path) -> Rows:
    meta_path = path.with_name(f"{path.stem}_meta.tsv")
    if not meta_path.is_file():
        return rows
    table = read_table(meta_path)
    if len(table) != len(rows.texts):
        raise DataError(
            f"{meta_path} has {len(table)} rows but {path.name} has {len(rows.texts)}: "
            "it needs one line for each"
        )
    columns = dict(table.columns)
    # A column "line" only numbers the rows; it shows whether the two files still fit together.
    numbers = columns.pop("line", None)
    if numbers is not None and numbers != [str(row + 1) for row in range(len(numbers))]:
        raise DataError(f"{meta_path}: its column 'line' does not count 1, 2, 3 ... in order")
    taken = sorted(set(columns) & set(rows.meta))
    if taken:
        raise DataError(f"{meta_path} and {path.name} both have the column '{taken[0]}'")
    return Rows(rows.table, rows.texts, rows.labels, rows.text_pairs, {**rows.meta, **columns})
