"""Columns of equal length that do not know what they mean, with a name of each row for messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def place(self, row: int) -> str:
        """Return the location of a row: ``file:line``, or ``file, row n`` without lines."""
        if self.places is not None:
            return self.places[row]
        if self.lines is None:
            return f"{self.where}, row {row + 1}"
        return f"{self.where}:{self.lines[row]}"
