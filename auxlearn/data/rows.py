"""From the columns of a table to the rows of a split: texts, labels by name, further columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from auxlearn.data.dataset import Split
from auxlearn.data.tables import Table
from auxlearn.errors import DataError, did_you_mean

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True)
class Columns:
    """Which column holds what.

    Attributes:
        text: The text.
        text_pair: The second text of a pair. Under its default name it is used where it exists;
            under any other name it must exist.
        label: The label: text, a whole number, or true and false.
    """

    text: str = "text"
    text_pair: str = "text_pair"
    label: str = "label"


@dataclass(frozen=True)
class Rows:
    """Checked rows whose labels are still names.

    Attributes:
        table: Where they were read.
        texts: One text per row.
        labels: One label name per row; ``None`` if the table has no label column.
        text_pairs: Second texts, if there are any.
        meta: Every other column, as text.
    """

    table: Table
    texts: list[str]
    labels: list[str] | None
    text_pairs: list[str] | None = None
    meta: dict[str, list[str]] = field(default_factory=dict)


def rows_of(table: Table, columns: Columns, *, labelled: bool = True) -> Rows:
    """Check a table and take it apart.

    Args:
        table: What was read.
        columns: Which column holds what.
        labelled: Whether the label column must be there.

    Raises:
        DataError: A column is missing; a text is missing, empty or no text; a label is missing
            or of a kind that cannot be a class. The message names the place.
    """
    if len(table) == 0:
        raise DataError(f"{table.where} has no rows")
    for role in ("text", "text_pair", "label"):
        name = getattr(columns, role)
        optional = (role == "text_pair" and name == Columns.text_pair) or (
            role == "label" and not labelled
        )
        if name not in table.columns and not optional:
            raise DataError(_no_column(table, name, role))
    has_pairs = columns.text_pair in table.columns
    has_labels = columns.label in table.columns
    used = {columns.text, columns.text_pair, columns.label}
    return Rows(
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
    """Return the name of a label as a file holds it; ``None`` if there is none.

    Whole numbers are named by their digits, also where a file stores them as 1.0; booleans are
    named "true" and "false"; text loses the white space around it.

    Raises:
        ValueError: The value is of no kind that can name a class.
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
    """Return label names in a fixed order: by value if all are whole numbers, else by alphabet."""
    distinct = set(names)
    if all(_WHOLE_NUMBER.fullmatch(name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct))


def to_split(rows: Rows, name: str, label_names: tuple[str, ...]) -> Split:
    """Number the labels of the rows by their place in ``label_names``.

    Raises:
        DataError: The rows have a label that ``label_names`` lacks; all of these are named, with
            the place of the first.
    """
    index = {label: number for number, label in enumerate(label_names)}
    labels = None
    if rows.labels is not None:
        unknown = dict.fromkeys(label for label in rows.labels if label not in index)
        if unknown:
            first = next(row for row, label in enumerate(rows.labels) if label in unknown)
            raise DataError(
                f"{rows.table.place(first)}: {name} has labels that train lacks: "
                f"{', '.join(map(repr, unknown))}; train has {', '.join(map(repr, label_names))}"
            )
        labels = tuple(index[label] for label in rows.labels)
    return Split(
        name=name,
        texts=tuple(rows.texts),
        labels=labels,
        label_names=label_names,
        text_pairs=None if rows.text_pairs is None else tuple(rows.text_pairs),
        meta={key: tuple(values) for key, values in rows.meta.items()},
    )


def assemble(
    everything: dict[str, Rows], label_names: tuple[str, ...] | None = None
) -> tuple[dict[str, Split], list[str]]:
    """Make splits with one numbering of labels from the rows of each split.

    Train defines the labels, unless they are given. Dev and test must keep to them; a further
    split with labels of its own keeps its own, and a note says so.

    Args:
        everything: Rows by split name; "train" among them.
        label_names: The label names in order, where they are known beforehand.

    Returns:
        The splits by name, and notes for the user.

    Raises:
        DataError: Train has a single class, a label is unknown, or only some splits are pairs.
    """
    train = everything["train"]
    present = sort_labels(train.labels or [])
    if len(present) < 2:
        raise DataError(
            f"{train.table.where} has a single class, '{present[0]}': a classifier needs two"
        )
    names = label_names or present
    splits, notes = {}, []
    for name, rows in everything.items():
        if (rows.text_pairs is None) != (train.text_pairs is None):
            both = (rows, train) if rows.text_pairs is None else (train, rows)
            raise DataError(
                f"{both[0].table.where} has no second texts but {both[1].table.where} has: "
                "name the column with --text-pair-column or take it out of every split"
            )
        own = sort_labels(rows.labels or [])
        if name in ("train", "dev", "test") or set(own) <= set(names):
            splits[name] = to_split(rows, name, names)
        else:
            splits[name] = to_split(rows, name, own)
            notes.append(f"split '{name}' keeps labels of its own: {', '.join(own)}")
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
