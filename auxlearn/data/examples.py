"""Examples from the columns of a table: checked texts, label names, integer labels."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from auxlearn.data.dataset import Split
from auxlearn.data.table_files import HALF_A_PAIR, Table, is_encodable
from auxlearn.errors import DataError, did_you_mean
from auxlearn.wording import describe, printable, shorten, some_of

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")

LONGEST_TEXT = 1_000_000
"""Characters of a text: tokenising one takes some 200 bytes per character."""

LONGEST_LABEL = 200
"""Characters of the name of a class."""

NULL_LABELS = {
    *("nan", "NaN", "NAN", "None", "null", "Null", "NULL", "<null>"),
    *("NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaT"),
}
"""What programs write for a missing value. "none" is not among them: it is a usual class."""

#: Distinct whole numbers from which on a column is no longer taken for classes, unless they number
#: the classes one by one or each occurs :data:`_FEW` times or more on average.
_MANY_NUMBERS, _FEW = 50, 3

_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|[+-]?\d+[eE][+-]?\d+")
_LIST = re.compile(r"[\[({].*[\])}]", re.DOTALL)
_SEPARATORS = "|;,"


@dataclass(frozen=True)
class ColumnNames:
    """Names of the columns with texts and labels, and what a label may be.

    Attributes:
        text: Column with the text.
        text_pair: Column with the second text of a pair. The default name is optional; a column of
            any other name must exist.
        label: Column with the label: text, a whole number, or true and false.
        keep_null_labels: Whether names such as "nan" and "None" (:data:`NULL_LABELS`) are classes
            like any other; otherwise they are taken for missing values, which are errors.
    """

    text: str = "text"
    text_pair: str = "text_pair"
    label: str = "label"
    keep_null_labels: bool = False

    @property
    def are_default(self) -> bool:
        """Whether every column has its default name."""
        return self == ColumnNames(keep_null_labels=self.keep_null_labels)


def column_names(
    names: Mapping[str, str | None], keep_null_labels: bool = False
) -> ColumnNames | None:
    """Return the names of columns, as far as they are given.

    Args:
        names: Name by role (``text``, ``text_pair``, ``label``); ``None`` for the default.
        keep_null_labels: See :class:`ColumnNames`.

    Returns:
        ``None`` if nothing is given, so that those of a data-set card count.
    """
    given: dict[str, Any] = {role: name for role, name in names.items() if name is not None}
    if keep_null_labels:
        given["keep_null_labels"] = True
    return ColumnNames(**given) if given else None


class NamedColumns(Protocol):
    """Settings that name columns, such as those of a run or of a further data set."""

    @property
    def text_column(self) -> str | None:
        """Column of the text."""

    @property
    def text_pair_column(self) -> str | None:
        """Column of the second text of a pair."""

    @property
    def label_column(self) -> str | None:
        """Column of the label."""

    @property
    def keep_null_labels(self) -> bool:
        """Whether labels such as "nan" are names of classes."""


def columns_of(settings: NamedColumns) -> ColumnNames | None:
    """Return the columns that settings name; ``None`` if they name none."""
    names = {
        "text": settings.text_column,
        "text_pair": settings.text_pair_column,
        "label": settings.label_column,
    }
    return column_names(names, settings.keep_null_labels)


@dataclass(frozen=True)
class RawExamples:
    """Checked examples whose labels are names, not yet class indices.

    Attributes:
        table: The table they were read from.
        texts: One text per example.
        labels: One label name per example; ``None`` if the table has no label column.
        text_pairs: Second texts of a sentence-pair task.
        meta: Every other column, as text.
    """

    table: Table
    texts: list[str]
    labels: list[str] | None
    text_pairs: list[str] | None = None
    meta: dict[str, list[str]] = field(default_factory=dict)


def parse_examples(table: Table, columns: ColumnNames, *, labelled: bool = True) -> RawExamples:
    """Check the rows of a table and return them as examples.

    Args:
        table: The table.
        columns: Names of its columns.
        labelled: Whether the label column must exist.

    Raises:
        DataError: A column is missing; a text is missing, empty, too long or not a string; a label
            is missing, stands for a missing value or cannot name a class; the labels look like
            numbers to predict or like several labels in one. The message names the file and line.
    """
    if len(table) == 0:
        raise DataError(f"{table.where} has no rows")
    for role in ("text", "text_pair", "label"):
        name = getattr(columns, role)
        optional = (role == "text_pair" and name == ColumnNames.text_pair) or (
            role == "label" and not labelled
        )
        if name not in table.columns and not optional:
            raise DataError(_no_column(table, name, role))
    has_pairs = columns.text_pair in table.columns
    has_labels = columns.label in table.columns
    used = {columns.text, columns.text_pair, columns.label}
    return RawExamples(
        table=table,
        texts=text_values(table, columns.text),
        labels=_labels(table, columns.label, columns.keep_null_labels) if has_labels else None,
        text_pairs=text_values(table, columns.text_pair) if has_pairs else None,
        meta={
            name: [_as_text(value) for value in values]
            for name, values in table.columns.items()
            if name not in used
        },
    )


def label_name(value: Any) -> str | None:
    """Return the label name for a value of a file; ``None`` if the value is missing.

    Whole numbers are named by their digits, even if the file stores them as 1.0; booleans are named
    "true" and "false"; strings are stripped of surrounding white space.

    Raises:
        ValueError: The value is of a type that cannot name a class.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    if isinstance(value, str):
        return value.strip() or None
    raise ValueError(f"{value!r} cannot name a class")


def sort_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return distinct label names sorted by value if all are whole numbers, else alphabetically."""
    distinct = set(names)
    if all(_WHOLE_NUMBER.fullmatch(name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct))


def to_split(examples: RawExamples, name: str, label_names: tuple[str, ...]) -> Split:
    """Return a split whose labels are indices into ``label_names``.

    Args:
        examples: The examples.
        name: Name of the split.
        label_names: Names of the classes.

    Raises:
        DataError: An example has a label that is not in ``label_names``. The message names all of
            these labels, and the file and line of the first.
    """
    index = {label: number for number, label in enumerate(label_names)}
    labels = None
    if examples.labels is not None:
        unknown = dict.fromkeys(label for label in examples.labels if label not in index)
        if unknown:
            first = next(row for row, label in enumerate(examples.labels) if label in unknown)
            raise DataError(
                f"{examples.table.place(first)}: {name} has labels that train lacks: "
                f"{some_of(map(repr, unknown))}; train has {some_of(list(map(repr, label_names)))}"
            )
        labels = tuple(index[label] for label in examples.labels)
    return Split(
        name=name,
        texts=tuple(examples.texts),
        labels=labels,
        label_names=label_names,
        text_pairs=None if examples.text_pairs is None else tuple(examples.text_pairs),
        meta={key: tuple(values) for key, values in examples.meta.items()},
    )


def assemble(
    raw_splits: dict[str, RawExamples], label_names: tuple[str, ...] | None = None
) -> tuple[dict[str, Split], list[str]]:
    """Make the splits of a data set, with the same class indices in all of them.

    The classes are ``label_names``, or by default the labels of train. Dev and test may have no
    others. A further split with other labels keeps them, and a note says so.

    Args:
        raw_splits: Examples by split name; "train" is required.
        label_names: The label names in order, if they are known beforehand.

    Returns:
        The splits by name, and notes for the user.

    Raises:
        DataError: Train has a single class, a label is unknown, or only some splits are pairs.
    """
    train = raw_splits["train"]
    present = sort_labels(train.labels or [])
    if len(present) < 2:
        raise DataError(
            f"{train.table.where} has a single class, '{present[0]}': a classifier needs two"
        )
    names = label_names or present
    splits, notes = {}, []
    for name, examples in raw_splits.items():
        if (examples.text_pairs is None) != (train.text_pairs is None):
            both = (examples, train) if examples.text_pairs is None else (train, examples)
            raise DataError(
                f"{both[0].table.where} has no second texts but {both[1].table.where} has: "
                "name the column with --text-pair-column or take it out of every split"
            )
        own = sort_labels(examples.labels or [])
        if name in ("train", "dev", "test") or set(own) <= set(names):
            splits[name] = to_split(examples, name, names)
        else:
            splits[name] = to_split(examples, name, own)
            notes.append(f"split '{name}' keeps its own labels: {some_of(own)}")
    return splits, notes


def is_blank(text: str) -> bool:
    """Return whether a text has no visible character, as a zero-width space alone has none."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def text_values(table: Table, column: str) -> list[str]:
    """Return the texts of a column.

    Raises:
        DataError: One is empty, too long, or not a text; the message names its place.
    """
    values = table.columns[column]
    for row, value in enumerate(values):
        if isinstance(value, str) and not is_encodable(value):
            raise DataError(f"{table.place(row)}: {HALF_A_PAIR}")
        if value is None or (isinstance(value, str) and is_blank(value)):
            raise DataError(
                f"{table.place(row)}: empty text in column '{shorten(column)}': fill it in or "
                "delete the row"
            )
        if not isinstance(value, str):
            raise DataError(
                f"{table.place(row)}: column '{shorten(column)}' must hold text, "
                f"but this is {describe(value)} ({type(value).__name__})"
            )
        if len(value) > LONGEST_TEXT:
            raise DataError(
                f"{table.place(row)}: a text of {len(value):,} characters in column "
                f"'{shorten(column)}', of which at most {LONGEST_TEXT:,} are read: divide it"
            )
    return values


def _labels(table: Table, column: str, keep_null: bool) -> list[str]:
    values = table.columns[column]
    # A data set has few classes and many examples: each class is checked once.
    known: dict[tuple[type, Any], str] = {}
    labels = []
    for row, value in enumerate(values):
        key = (type(value), value) if isinstance(value, str | int | float) else None
        name = known.get(key) if key is not None else None
        if name is None:
            name = _checked_label(value, f"{table.place(row)}: ", shorten(column), keep_null)
            if key is not None:
                known[key] = name
        labels.append(name)
    _check_labels_together(table, column, labels)
    return labels


def _checked_label(value: Any, place: str, column: str, keep_null: bool) -> str:
    """Return the name of a class; errors as for :func:`parse_examples`."""
    if isinstance(value, list | tuple | dict):
        raise DataError(
            f"{place}column '{column}' holds {describe(value)}: an example has one label, and "
            "several at once are not supported"
        )
    if isinstance(value, float) and not math.isfinite(value):
        name = None
    else:
        try:
            name = label_name(value)
        except ValueError:
            raise DataError(
                f"{place}a label is text, a whole number or true/false, but column '{column}' "
                f"holds {describe(value)}; numbers to predict (regression) are not supported"
            ) from None
    if name is None:
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
                "predict (regression), which is not supported; classes have whole numbers or names"
            )
        if _LIST.fullmatch(name):
            raise DataError(
                f"{place}the label {describe(name)} in column '{column}' looks like a list: an "
                "example has one label, and several at once are not supported"
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
    """Check that the labels of a table look like classes.

    Raises:
        DataError: They look like numbers to predict, or like several labels in one.
    """
    names = set(labels)
    numbers = [int(name) for name in names if _WHOLE_NUMBER.fullmatch(name)]
    if len(numbers) == len(names) >= _MANY_NUMBERS and len(labels) < _FEW * len(names):
        gapless = max(numbers) - min(numbers) < len(numbers)
        if not gapless:
            raise DataError(
                f"{table.where}: column '{shorten(column)}' holds {len(names):,} different numbers "
                f"in {len(labels):,} rows, which look like numbers to predict (regression), not "
                "like classes; if they are classes, number them 0, 1, 2 ..."
            )
    for name in names:
        for separator in _SEPARATORS:
            parts = [part.strip() for part in name.split(separator)]
            if len(parts) > 1 and all(part in names for part in parts):
                row = labels.index(name)
                raise DataError(
                    f"{table.place(row)}: the label '{shorten(name)}' in column "
                    f"'{shorten(column)}' joins other labels: an example has one label, and "
                    "several at once are not supported"
                )


def _no_column(table: Table, name: str, role: str) -> str:
    option = f"--{role.replace('_', '-')}-column"
    hint = did_you_mean(shorten(name), map(shorten, table.columns))
    suggestion = f"; {hint}" if hint.startswith("did you mean") else ""
    return (
        f"{table.where} has no {role.replace('_', ' ')} column '{shorten(name)}': its columns are "
        f"{some_of(table.columns)}{suggestion} (another column is named with {option})"
    )


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str)
