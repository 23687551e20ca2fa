"""Class probabilities of the training examples, read from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from auxlearn.data.dataset import Split
from auxlearn.data.table_files import FORMATS, Table, read_table
from auxlearn.errors import DataError

#: How much the probabilities of an example may differ from 1 in sum.
TOLERANCE = 1e-3


def read_probabilities(path: Path, split: Split) -> np.ndarray:
    """Read a probability of each class for each training example.

    Args:
        path: A table with one row per training example, in their order, and one column per class,
            named after it. A column ``text`` is compared with the training texts; other columns
            are ignored.
        split: The training examples.

    Returns:
        Probabilities, ``(examples, classes)``, float64, that sum to 1 exactly.

    Raises:
        DataError: The file cannot be read, a class has no column, the number of rows is not that of
            the examples, a text differs, or a row holds no probabilities.
    """
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"{path} is not a table: use one of {', '.join(FORMATS)}")
    table = read_table(path)
    missing = [name for name in split.label_names if name not in table.columns]
    if missing:
        raise DataError(
            f"{path} has no column '{missing[0]}': one column per class is needed, "
            f"{', '.join(split.label_names)}"
        )
    if len(table) != len(split):
        raise DataError(
            f"{path} has {len(table)} rows, but there are {len(split)} training examples: one row "
            "per example is needed, in their order"
        )
    texts = table.columns.get("text", []) if "text" not in split.label_names else []
    for row, (found, expected) in enumerate(zip(texts, split.texts, strict=False)):
        if found != expected:
            raise DataError(
                f"{table.place(row)}: the text is not that of training example {row + 1}: bring "
                "the rows into the order of the training examples"
            )
    return np.array([_row(table, row, split.label_names) for row in range(len(table))])


def _row(table: Table, row: int, names: tuple[str, ...]) -> np.ndarray:
    try:
        values = np.array([float(table.columns[name][row]) for name in names])
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise DataError(
            f"{table.place(row)}: a number from 0 to 1 is needed for each of {', '.join(names)}"
        )
    total = values.sum()
    if abs(total - 1) > TOLERANCE:
        raise DataError(
            f"{table.place(row)}: the probabilities sum to {total:.6g}: they must sum to 1"
        )
    return values / total
