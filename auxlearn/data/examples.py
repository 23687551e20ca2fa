"""Examples from the columns of a table: checked texts, label names, integer labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from auxlearn.data.dataset import Split
from auxlearn.data.table_files import Table
from auxlearn.errors import DataError, did_you_mean

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True)
class ColumnNames:
    """Names of the columns with texts and labels.

    Attributes:
        text: Column with the text.
        text_pair: Column with the second text of a pair. The default name is optional; a column of
            any other name must exist.
        label: Column with the label: text, a whole number, or true and false.
    """

    text: str = "text"
    text_pair: str = "text_pair"
    label: str = "label"


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
        DataError: A column is missing; a text is missing, empty or not a string; a label is missing
            or of a type that cannot name a class. The message names the file and line.
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
        texts=_texts(table, columns.text),
        labels=_labels(table, columns.label) if has_labels else None,
        text_pairs=_texts(table, columns.text_pair) if has_pairs else None,
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
                f"{', '.join(map(repr, unknown))}; train has {', '.join(map(repr, label_names))}"
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
            notes.append(f"split '{name}' keeps its own labels: {', '.join(own)}")
    return splits, notes


def _texts(table: Table, column: str) -> list[str]:
    values = table.columns[column]
    for row, value in enumerate(values):
        if value is None or (isinstance(value, str) and not value.strip()):
            raise DataError(
                f"{table.place(row)}: empty text in column '{column}': fill it in or delete the row"
            )
        if not isinstance(value, str):
            raise DataError(
                f"{table.place(row)}: column '{column}' must hold text, "
                f"but this is {_shorten(repr(value))} ({type(value).__name__})"
            )
    return values


def _labels(table: Table, column: str) -> list[str]:
    labels = []
    for row, value in enumerate(table.columns[column]):
        try:
            name = label_name(value)
        except ValueError:
            raise DataError(
                f"{table.place(row)}: a label is text, a whole number or true/false, "
                f"but column '{column}' holds {_shorten(repr(value))}"
            ) from None
        if name is None:
            raise DataError(
                f"{table.place(row)}: missing label in column '{column}': "
                "fill it in or delete the row"
            )
        labels.append(name)
    return labels


def _no_column(table: Table, name: str, role: str) -> str:
    option = f"--{role.replace('_', '-')}-column"
    hint = did_you_mean(name, table.columns)
    suggestion = f"; {hint}" if hint.startswith("did you mean") else ""
    return (
        f"{table.where} has no {role.replace('_', ' ')} column '{name}': its columns are "
        f"{', '.join(table.columns)}{suggestion} (another column is named with {option})"
    )


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str)


def _shorten(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[:limit] + "..."
