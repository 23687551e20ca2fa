"""Columns of equal length that do not know what they mean, with a name of each row for messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from auxlearn.core.errors import DataError, shorten

#: Bytes of a data file.
LARGEST_FILE = 4 * 1024**3

MOST_COLUMNS = 2_000  # columns of a table

#: What is wrong with a text that UTF-8 cannot write.
HALF_A_PAIR = (
    "half of a surrogate pair (\\ud800 to \\udfff) stands alone: write the whole character"
)


@dataclass(frozen=True)
class Table:
    """Columns of equal length, with the line of each row."""

    where: str  # source of the table for messages: a path, or a split of a hub data set
    columns: dict[str, list[Any]]  # values by column name; ``None`` for a missing value
    #: Line of the file on which each row starts, from 1, if it has lines.
    lines: list[int] | None = None
    #: Location of each row for messages, where it is neither a line nor its number.
    places: list[str] | None = None
    notes: tuple[str, ...] = ()  # what was changed on reading, a sentence each
    #: Names of the classes, in order, of columns whose source says them; ``None`` if the table does
    #: not come from ``datasets``, which marks a hidden label as -1 and a missing value as null.
    class_names: dict[str, tuple[str, ...]] | None = None
    unread: tuple[str, ...] = ()  # further columns of the source, whose values are not plain

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def place(self, row: int) -> str:
        """Return the location of a row: ``file:line``, or ``file, row n`` without lines."""
        if self.places is not None:
            return self.places[row]
        if self.lines is None:
            return f"{self.where}, row {row + 1}"
        return f"{self.where}:{self.lines[row]}"

    def select(self, rows: Sequence[int]) -> Table:
        """Return a table of some rows, whose places stay what they are."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return replace(self, columns=columns, lines=None, places=[self.place(row) for row in rows])


def joined(where: str, tables: Sequence[Table]) -> Table:
    """Return the rows of several tables of the same columns."""
    first = tables[0]
    for table in tables:
        for fuller, poorer in ((first, table), (table, first)):
            for name in fuller.columns:
                if name not in poorer.columns:
                    raise DataError(
                        f"{poorer.where} has no column '{shorten(name)}', which {fuller.where} "
                        "has: parts of one split need the same columns"
                    )
    columns = {
        name: [value for table in tables for value in table.columns[name]] for name in first.columns
    }
    places = [table.place(row) for table in tables for row in range(len(table))]
    notes = tuple(dict.fromkeys(note for table in tables for note in table.notes))
    return replace(first, where=where, columns=columns, lines=None, places=places, notes=notes)


def check_columns(where: str | Path, names: Sequence[str]) -> None:
    """Check that there are not too many columns, and that each has a name of its own, in UTF-8."""
    if not all(map(is_encodable, names)):
        raise DataError(f"{where}: the name of a column: {HALF_A_PAIR}")
    if len(names) > MOST_COLUMNS:
        raise DataError(
            f"{where}: {len(names):,} columns, of which at most {MOST_COLUMNS:,} are read: "
            "remove those that are not needed"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{where}: two columns are called '{shorten(twice)}': rename one")


def is_encodable(value: Any) -> bool:
    """Return whether texts in a value of JSON have no half of a surrogate pair alone."""
    if isinstance(value, str) and value.isascii():
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
