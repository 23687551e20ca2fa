"""Parquet files, with the names of classes that ``datasets`` writes into their metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import DataError, describe, first_line, shorten
from auxlearn.core.files import opened, read_file, refuse_lfs_pointer
from auxlearn.core.table import LARGEST_FILE, Table, check_columns

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

BUFFER = 1 << 20  # bytes of a column that are read at once

MOST_ROWS = 4096  # of a file that is read some rows at a time

#: A name that is not UTF-8 is a ValueError, a damaged size a MemoryError, a time after the year
#: 9999 an OverflowError.
_FAULTS = (OSError, ValueError, LookupError, MemoryError, OverflowError)


@contextmanager
def _opened(path: Path, source: Any) -> Iterator[ParquetFile]:
    """Open what a path holds within the block, and say in one line what is wrong with it."""
    import pyarrow
    from pyarrow import parquet

    try:
        # ParquetFile reads this one file; read_table would take folder names for columns.
        with parquet.ParquetFile(source, pre_buffer=False, buffer_size=BUFFER) as file:
            check_columns(path, file.schema_arrow.names)
            yield file
    except (pyarrow.ArrowException, *_FAULTS) as error:
        reason = shorten(first_line(error), 150)
        raise DataError(f"{path} cannot be read as a Parquet file: {reason}") from error


def read_parquet(path: Path) -> Table:
    import pyarrow

    content = pyarrow.py_buffer(read_file(path, LARGEST_FILE, DataError))
    with _opened(path, content) as file:
        # A file of a few bytes can stand for any number of equal values.
        if 8 * file.metadata.num_rows * file.metadata.num_columns > LARGEST_FILE:
            raise DataError(
                f"{path} has more than {LARGEST_FILE:,} bytes when it is uncompressed: divide "
                "it or leave columns out"
            )
        table, features = file.read(), _features(file.schema_arrow.metadata or {})
        columns = {name: table[name].to_pylist() for name in table.column_names}
        class_names = class_names_of(features or {})
        for name, names in class_names.items():
            if name in columns:
                columns[name] = by_name(columns[name], names, str(path))
        return Table(str(path), columns, class_names=None if features is None else class_names)


def parquet_tables(
    path: Path, column: str, most: int, advance: Callable[[int], None]
) -> Iterator[Table]:
    """Yield a table of all columns without rows, then one column, so many bytes of it at a time."""
    with opened(path, DataError) as content:
        refuse_lfs_pointer(path, content.read(BUFFER), DataError)
        with _opened(path, content) as file:
            names, metadata = file.schema_arrow.names, file.metadata
            yield Table(str(path), {name: [] for name in names})
            if column not in names:
                return
            classes = class_names_of(_features(file.schema_arrow.metadata or {}) or {}).get(column)
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            of_rows = sum(group.total_byte_size for group in groups) / max(metadata.num_rows, 1)
            at_once = max(1, min(MOST_ROWS, int(most / max(of_rows, 1))))
            if classes:  # whether texts are names of them is seen by all
                at_once = metadata.num_rows
            end = 0
            for batch in file.iter_batches(at_once, columns=[column], use_threads=False):
                start, end = end, end + len(batch)
                values = batch[column].to_pylist()
                if classes:
                    values = by_name(values, classes, str(path))
                places = [f"{path}, row {row + 1}" for row in range(start, end)]
                yield Table(str(path), {column: values}, places=places)
                advance(path.stat().st_size * len(batch) // metadata.num_rows)


def _features(metadata: Mapping[bytes, bytes]) -> Mapping[str, Any] | None:
    """Return the features of ``datasets`` in the metadata of a schema; none if others wrote it."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
    except (LookupError, ValueError, TypeError):
        return None
    return features if isinstance(features, Mapping) else None


def class_names_of(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of the features that have any."""
    known = {name: _names_of(feature) for name, feature in features.items()}
    return {name: names for name, names in known.items() if names}


def _names_of(feature: Any) -> tuple[str, ...]:
    """Return the class names of a feature of ``datasets``, an object or JSON, also in lists."""
    if isinstance(feature, list) and len(feature) == 1:  # a sequence, in earlier versions
        return _names_of(feature[0])
    as_json = feature if isinstance(feature, Mapping) else getattr(feature, "__dict__", {})
    names = as_json.get("names")
    if isinstance(names, list) and names:
        if other := [name for name in names if not isinstance(name, str)]:
            raise DataError(f"class names of a README: {describe(other[0])} is no text: quote it")
        return tuple(names)
    inner = as_json.get("feature")
    return _names_of(inner) if inner is not None else ()


def by_name(values: Sequence[Any], names: Sequence[str], where: str) -> list[Any]:
    """Return the names of class numbers, also in lists and as text unless all texts are names; -1
    is a hidden label, as in GLUE. Whatever is no whole number stays as it is.
    """
    all_names = texts_in(values) <= {*names, "-1"}

    def name(value: Any) -> Any:
        if isinstance(value, list):
            return [name(item) for item in value]
        is_name = all_names and value in names
        if isinstance(value, str) and not is_name and value.lstrip("-").isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        if value == -1:
            return None
        if value == -100:
            raise DataError(
                f"{where}: class -100, which losses leave out: name another one, such as that of O"
            )
        if not 0 <= value < len(names):
            raise DataError(f"{where}: class {value}, but only {len(names)} names are known")
        return names[value]

    return [name(value) for value in values]


def check_one_meaning(values: Sequence[Any], names: Sequence[str], where: str) -> None:
    """Refuse a column of numbers in text that may be names of classes as well as their places."""
    texts = texts_in(values) - {"-1"}
    named = {
        text: names[int(text)] for text in texts if text.isdecimal() and int(text) < len(names)
    }
    if texts and texts <= named.keys() & {*names} and any(text != named[text] for text in texts):
        first = min(text for text in texts if named[text] != text)
        raise DataError(
            f"{where}: {first} may be the name of a class, or the number of that of "
            f"'{named[first]}': use names that are no numbers, in the README or in the file"
        )


def texts_in(values: Sequence[Any]) -> set[str]:
    """Return the texts in a column, also in its lists."""
    cells = (value if isinstance(value, list) else [value] for value in values)
    return {item for cell in cells for item in cell if isinstance(item, str)}
