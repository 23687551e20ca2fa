"""Columns of a table: which one holds the texts or labels, and what is in it."""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import some_of
from auxlearn.core.settings import Columns
from auxlearn.kinds.labels import listed

if TYPE_CHECKING:
    from auxlearn.core.table import Table

_NUMBER = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?\s*")


def named(columns: Collection[str], name: str, usual: tuple[str, ...]) -> str:
    """Return the column that is named, or the first usual one that there is."""
    if name != usual[0] or name in columns:
        return name
    return next((column for column in usual if column in columns), name)


def passed_over(columns: Collection[str], name: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Say which usual columns are there beside the one that :func:`named` finds among several."""
    first, *others = [column for column in usual if column in columns] or [name]
    if name != usual[0] or first == name or not others:
        return ()
    return (f"labels are read from column '{first}', not '{some_of(others)}' (label_column)",)


def find_text(columns: Collection[str], options: Columns, usual: tuple[str, ...]) -> str:
    """Return the column of the text: the one that is named, or the first usual one there is."""
    return options.text_column or next((name for name in usual if name in columns), options.text)


def values_of(table: Table, column: str, usual: tuple[str, ...] = ()) -> list[Any]:
    """Return what is not missing in the column that is named, or the first usual one there is."""
    values = table.columns.get(named(table.columns, column, usual or (column,)), [])
    return [value for value in values if value is not None and value != ""]


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, str) and listed(value) is not None)


def is_number(value: Any) -> bool:
    if isinstance(value, str):
        return bool(_NUMBER.fullmatch(value))
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
