"""Data in memory: DataFrames, lists, dictionaries and ``datasets`` objects, read as files are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from auxlearn.core.errors import (
    ConfigError,
    DataError,
    describe,
    did_you_mean,
    shorten,
    some_of,
)
from auxlearn.core.files import name_problem, replaced_folder, write_json, write_text
from auxlearn.core.settings import USUAL, Columns
from auxlearn.core.table import HALF_A_PAIR, Table, check_columns, is_encodable
from auxlearn.data.dataset import CORE_SPLITS, SPLIT_COLUMN, TextDataset, as_one_split, split_names
from auxlearn.data.examples import read_dataset
from auxlearn.data.folders import LABEL_NAMES

WHERE = "data in memory"

_TABLES = "a DataFrame, a mapping of columns to lists, a list of mappings, or a datasets.Dataset"


def in_memory(data: Any) -> bool:
    """Return whether this is data, and neither a path nor the name of a data set."""
    return not isinstance(data, str | os.PathLike)


def read_memory(
    data: Any, columns: Columns = USUAL, *, name: str | None = None, split_column: str | None = None
) -> TextDataset:
    """Read a labelled data set in memory."""
    if name is not None and (problem := name_problem(name)):
        raise DataError(f"the name of the data set: {problem}")
    dataset = read_dataset(memory_tables(data, columns, split_column), columns, name or "", WHERE)
    return dataset if name else replace(dataset, name=f"data-{dataset.fingerprint[:8]}")


def refuse_for_files(name: str | None, split_column: str | None) -> None:
    """Refuse arguments of :func:`read_memory` beside a data set that is not in memory."""
    for argument, value in (("dataset_name", name), ("split_column", split_column)):
        if value is not None:
            raise ConfigError(f"{argument} is for a data set in memory: leave it out")


def read_memory_table(data: Any) -> Table:
    """Read a single table, such as the texts to be classified."""
    if not is_table(data):
        raise DataError(f"{of_type(data)} is not a table: give {_TABLES}")
    return _table(data, WHERE, USUAL)


def save_folder(dataset: TextDataset, folder: Path, columns: Columns = USUAL) -> None:
    """Write a data set as a folder that the same settings read back as the same data set."""
    names = (columns.text, columns.text_pair, columns.label)
    with replaced_folder(folder) as temporary:
        for name, split in dataset.splits.items():
            rows = split.rows(*names)
            if found := dataset.found_labels.get(name):
                given = zip(rows, found, strict=True)
                rows = ({**row, columns.label: label} for row, label in given)
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            write_text(temporary / f"{name}.jsonl", "".join(lines))
        if dataset.class_names:
            write_json(temporary / LABEL_NAMES, dataset.class_names)


def memory_tables(
    data: Any, columns: Columns, split_column: str | None = None, only: str = "train"
) -> dict[str, Table]:
    """Return the splits of data in memory; a table that is not divided is the split ``only``."""
    class_names: tuple[str, ...] = ()
    if isinstance(data, TextDataset):
        names = (columns.text, columns.text_pair, columns.label)
        class_names = () if columns.renamed else data.class_names
        data = {name: list(one.rows(*names)) for name, one in data.everything.items()}
    if is_table(data) and not _are_splits(data, columns):
        return divided(_table(data, WHERE, columns), columns, split_column, only)
    if not isinstance(data, Mapping) or not data:
        raise DataError(
            f"{of_type(data)} is not a data set: give {_TABLES}, or a mapping of splits to these, "
            "or a path"
        )
    if split_column is not None:
        raise DataError(
            f"{WHERE} are divided into splits already: leave split_column out, or give one table"
        )
    tables: dict[str, Table] = {}
    if unnamed := [key for key in data if isinstance(key, int | float | None)]:
        raise DataError(f"{WHERE}: {describe(unnamed[0])} names no split: write train, dev or test")
    names_of_splits = split_names(map(str, data))
    for key, part in data.items():
        where = f"split '{shorten(str(key))}' of {WHERE}"
        if not is_table(part):
            raise DataError(f"{where}: {of_type(part)} is not a table: give {_TABLES}")
        table = _table(part, where, columns)
        if class_names and key == "train":
            table = replace(table, class_names={columns.label: class_names})
        table = as_one_split(table, columns, names_of_splits[str(key)])
        _add(tables, str(key), names_of_splits, table)
    return tables


def _add(tables: dict[str, Table], key: str, names: Mapping[str, str], table: Table) -> None:
    if problem := name_problem(key):
        raise DataError(f"{table.where}: the name of a split: {problem}")
    if names[key] in tables:
        both = some_of(repr(one) for one in names if names[one] == names[key])
        raise DataError(f"{table.where}: {both} are one split: rename or remove one")
    tables[names[key]] = table


def divided(
    table: Table, columns: Columns, split_column: str | None = None, only: str = "train"
) -> dict[str, Table]:
    """Divide a table by its column of splits, unless that is named for another purpose."""
    column = split_column or SPLIT_COLUMN
    other = split_column is None and column in (columns.text, columns.text_pair, columns.label)
    if other or column not in table.columns:
        if split_column is not None:
            raise DataError(
                f"{table.where}: there is no column '{shorten(column)}' that names splits "
                f"(split_column): {did_you_mean(column, table.columns)}"
            )
        return {only: as_one_split(table, columns, "train")}
    if len(table) == 0:
        raise DataError(f"{table.where} has no rows")
    rows: dict[str, list[int]] = {}
    for row, value in enumerate(table.columns[column]):
        if not isinstance(value, str) or not value.strip():
            raise DataError(
                f"{table.place(row)}: column '{shorten(column)}' names no split: write train, dev "
                "or test"
            )
        rows.setdefault(value.strip(), []).append(row)
    tables: dict[str, Table] = {}
    kept = {name: values for name, values in table.columns.items() if name != column}
    kept_table = replace(table, columns=kept)
    names = split_names(rows)
    for key in names:
        _add(tables, key, names, kept_table.select(rows[key]))
    return tables


def _table(data: Any, where: str, columns: Columns) -> Table:
    """Return a table with plain Python values."""
    places = None
    if _is_arrow(data):  # rows would keep the last of two columns of one name
        check_columns(where, [getattr(field, "name", field) for field in data.schema])
        data = data.to_dicts() if hasattr(data, "to_dicts") else data.to_pylist()
    if _is_frame(data):
        if data.columns.nlevels > 1:
            fault = f"the columns of the DataFrame have {data.columns.nlevels} levels"
            raise DataError(f"{where}: {fault}: keep one, as by droplevel(0, axis=1)")
        names = [str(name) for name in data.columns]
        values = [_frame_values(data.iloc[:, number]) for number in range(len(names))]
        used = {SPLIT_COLUMN, columns.text, columns.text_pair, columns.label} - {*names}
        if in_index := used.intersection(data.index.names):
            raise DataError(
                f"{where}: '{min(in_index)}' is the index of the DataFrame, which is not read: "
                "make it a column by reset_index()"
            )
        places = [f"{where}, index {shorten(str(index))}" for index in data.index]
    elif _from_datasets(data):
        from auxlearn.data.hub import dataset_table

        if not hasattr(data, "__len__"):
            raise DataError(
                f"{where}: {type(data).__name__} is a stream, without an end that is "
                "known: load it without streaming=True"
            )
        table = dataset_table(data, where, columns)
        check_columns(where, list(table.columns))
        return table
    elif isinstance(data, Mapping):
        names = [str(name) for name in data]
        indices = [column.index for column in data.values() if hasattr(column, "iloc")]
        if not all(index.equals(indices[0]) for index in indices):
            raise DataError(
                f"{where}: its columns are Series with different indices: give a DataFrame or lists"
            )
        values = [list(map(_plain, as_list(column))) for column in data.values()]
    else:
        names = list(dict.fromkeys(name for row in data for name in row))
        values = [[_plain(row.get(name)) for row in data] for name in names]
        names = list(map(str, names))
    check_columns(where, names)
    lengths = {name: len(column) for name, column in zip(names, values, strict=True)}
    if len(set(lengths.values())) > 1:
        shown = some_of(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(f"{where}: its columns differ in length: {shown}")
    table = Table(where, dict(zip(names, values, strict=True)), places=places)
    for name, column in table.columns.items():
        for row, value in enumerate(column):
            if isinstance(value, str) and not is_encodable(value):
                raise DataError(f"{table.place(row)}: column '{shorten(name)}': {HALF_A_PAIR}")
    return table


def is_table(data: Any) -> bool:
    """Return whether data are columns or rows, and not splits of these."""
    if _is_frame(data) or _from_datasets(data) or _is_arrow(data):
        return True
    if isinstance(data, Mapping):
        columns = [as_list(column) for column in data.values()]
        firsts = [next(iter(one), None) for one in columns if isinstance(one, list | tuple)]
        are_rows = [isinstance(first, Mapping) for first in firsts if first is not None]
        return bool(data) and len(firsts) == len(columns) and not (are_rows and all(are_rows))
    return isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data)


def _are_splits(data: Any, columns: Columns) -> bool:
    """Return whether a mapping has splits, of whatever, and not columns."""
    if not isinstance(data, Mapping) or not data or columns.text in data:
        return False
    return {*split_names(map(str, data)).values()} <= {*CORE_SPLITS}


def as_list(values: Any) -> Any:
    """Return an array, a Series or a column of ``datasets`` as a list; anything else as it is."""
    if hasattr(values, "tolist") and getattr(values, "ndim", 0) > 0:  # which a DataFrame lacks
        return values.tolist()
    if hasattr(values, "to_arrow") and hasattr(values, "dtype"):
        return values.to_list()
    plain = isinstance(values, str | bytes | bytearray | list | tuple)
    return list(values) if isinstance(values, Sequence) and not plain else values


def _is_frame(data: Any) -> bool:
    # Without importing pandas, which takes long: whoever has a DataFrame has imported it.
    return hasattr(data, "iloc") and hasattr(data, "columns") and not isinstance(data, type)


def _is_arrow(data: Any) -> bool:
    """Return whether this is a DataFrame of polars or a table of pyarrow."""
    return (hasattr(data, "to_dicts") or hasattr(data, "to_pylist")) and hasattr(data, "schema")


def _from_datasets(data: Any) -> bool:
    return hasattr(data, "features") and hasattr(data, "select_columns") and hasattr(data, "shard")


def _frame_values(series: Any) -> list[Any]:
    return [
        _plain(value) if there else None
        for value, there in zip(series.tolist(), series.notna().tolist(), strict=True)
    ]


def _plain(value: Any) -> Any:
    """Return a value of numpy or pandas as Python has it; ``None`` for pandas' missing value."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):  # numpy's text is a subclass, and so are members of some Enums
        return str.__str__(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.tolist() if hasattr(value, "tolist") else value


def of_type(data: Any) -> str:
    """Return how data that are of no use are named in a message."""
    return f"{describe(data)} ({type(data).__name__})"
