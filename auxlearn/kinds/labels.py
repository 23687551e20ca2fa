"""Labels: the values of a column as names of classes, checked, renamed and in order."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import DataError, describe, did_you_mean, is_blank, printable, shorten
from auxlearn.core.settings import LONGEST_LABEL, label_text

if TYPE_CHECKING:
    from auxlearn.core.table import Table

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")

NULL_LABELS = {
    *("nan", "NaN", "NAN", "None", "null", "Null", "NULL", "<null>"),
    *("NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaT"),
}
"""What programs write for a missing value. "none" is not among them: it is a usual class."""

#: Distinct whole numbers from which on a column is no longer taken for classes, unless they number
#: the classes one by one or each occurs :data:`_FEW` times or more on average.
_MANY_NUMBERS, _FEW = 50, 3

_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|[+-]?\d+[eE][+-]?\d+")
#: A whole number as programs write a column of floats, in CSV for example.
_WHOLE_DECIMAL = re.compile(r"(0|-?[1-9][0-9]{0,17})\.0+")
_LIST = re.compile(r"[\[({].*[\])}]", re.DOTALL)
_SEPARATORS = "|;,"


def read_labels(table: Table, column: str, keep_null: bool) -> list[str]:
    """Return the label of each row of a table, as the table has it."""
    values = table.columns[column]
    # A data set has few classes and many examples: each class is checked once.
    known: dict[tuple[type, Any], str] = {}
    labels = []
    for row, value in enumerate(values):
        key = (type(value), value) if isinstance(value, str | int | float) else None
        name = known.get(key) if key is not None else None
        if name is None:
            name = checked_label(value, f"{table.place(row)}: ", shorten(column), keep_null)
            if key is not None:
                known[key] = name
        labels.append(name)
    _check_labels_together(table, column, labels)
    return labels


def checked_label(value: Any, place: str, column: str, keep_null: bool) -> str:
    """Return the name of a class; errors as for :func:`read_labels`."""
    if isinstance(value, list | tuple | dict):
        raise DataError(
            f"{place}column '{column}' holds {describe(value)}: an example has one label; "
            "several at once are read by runs with --kind multi_label"
        )
    if isinstance(value, float) and math.isnan(value):
        name = None
    else:
        try:
            name = label_name(value)
        except ValueError:  # also of a number of too many digits
            raise DataError(
                f"{place}a label is text, a whole number or true/false, but column '{column}' "
                f"holds {describe(value)}; numbers are predicted by runs with --kind regression"
            ) from None
    if name is None or (is_blank(name) and printable(name) == name):
        raise DataError(f"{place}missing label in column '{column}': fill it in or delete the row")
    if isinstance(value, str):
        if name in NULL_LABELS and not keep_null:
            raise DataError(
                f"{place}the label '{name}' in column '{column}' usually stands for a missing "
                "value: fill it in, delete the row, or accept it as a class by --keep-null-labels"
            )
        if _DECIMAL.fullmatch(name) and not float(name).is_integer():
            raise DataError(
                f"{place}the label {shorten(name)} in column '{column}' looks like a number to "
                "predict (by runs with --kind regression); classes have whole numbers or names"
            )
        if _LIST.fullmatch(name):
            raise DataError(
                f"{place}the label {describe(name)} in column '{column}' looks like a list: an "
                "example has one label; several at once are read by runs with --kind multi_label"
            )
    if len(name) > LONGEST_LABEL:
        raise DataError(
            f"{place}a label of {len(name):,} characters in column '{column}' ({shorten(name)}): "
            "is it the column of the text? (another column is named with --label-column)"
        )
    if printable(name) != name:
        raise DataError(
            f"{place}the label '{shorten(name)}' in column '{column}' holds a control character: "
            "remove it"
        )
    return name


def _check_labels_together(table: Table, column: str, labels: list[str]) -> None:
    """Check that the labels of a table look like classes."""
    names = set(labels)
    numbers = [int(name) for name in names if _WHOLE_NUMBER.fullmatch(name)]
    if len(numbers) == len(names) >= _MANY_NUMBERS and len(labels) < _FEW * len(names):
        gapless = max(numbers) - min(numbers) < len(numbers)
        if not gapless:
            raise DataError(
                f"{table.where}: column '{shorten(column)}' holds {len(names):,} different numbers "
                f"in {len(labels):,} rows, which look like numbers to predict (--kind regression), "
                "not like classes; if they are classes, number them 0, 1, 2 ..."
            )
    for name in names:
        for separator in _SEPARATORS:
            parts = [part.strip() for part in name.split(separator)]
            if len(parts) > 1 and all(part in names for part in parts):
                row = labels.index(name)
                raise DataError(
                    f"{table.place(row)}: the label '{shorten(name)}' in column "
                    f"'{shorten(column)}' joins other labels: an example has one label; several at "
                    "once, joined by |, are read by runs with --kind multi_label"
                )


def check_renamed(renamed: Mapping[str, str], found: Iterable[str]) -> None:
    """Check that every label that is to be renamed is in the data."""
    known = set(found)
    for label, name in renamed.items():
        if label not in known:
            shown = shorten(label)
            raise DataError(
                f"labels: the data have no label '{shown}' that '{shorten(name)}' could stand for: "
                f"{did_you_mean(shown, map(shorten, known))}"
            )


def label_name(value: Any) -> str | None:
    """Return the label name for a value of a file; ``None`` if the value is missing.

    Whole numbers are named by their digits, even if the file stores them as 1.0, as a number or as
    text; booleans are named "true" and "false"; strings are stripped of surrounding white space.
    """
    if value is None:
        return None
    name = label_text(value)
    if not isinstance(name, str):
        raise ValueError(f"{describe(value)} cannot name a class")
    return (name.partition(".")[0] if _WHOLE_DECIMAL.fullmatch(name) else name) or None


def sort_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return distinct label names sorted by value if all are whole numbers, else alphabetically."""
    distinct = set(names)
    if all(_WHOLE_NUMBER.fullmatch(name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct))


def as_list(cell: str) -> list[Any]:
    """Return the labels in a cell of text: a list of JSON, or labels joined by ``|``.

    >>> as_list('["a", "b"]'), as_list("a|b"), as_list("")
    (['a', 'b'], ['a', 'b'], [])
    """
    if cell.lstrip().startswith("["):
        try:
            found = json.loads(cell)
        except ValueError:
            found = None
        if isinstance(found, list):
            return found
    return [part.strip() for part in cell.split("|")] if cell.strip() else []
