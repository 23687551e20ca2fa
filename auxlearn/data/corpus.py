"""Unlabelled text for masked language modelling."""

from __future__ import annotations

from pathlib import Path

from auxlearn.data.dataset import Split
from auxlearn.data.tables import FORMATS, read_table
from auxlearn.errors import DataError


def read_corpus(path: Path, text_column: str = "text") -> Split:
    """Read a file of texts: plain text with one text per line, or a table with a text column.

    Args:
        path: A .txt file, or one of the formats that data sets are read from.
        text_column: Column with the text of a table.

    Returns:
        An unlabelled split named after the file; blank lines are left out.

    Raises:
        DataError: The file is missing, is not UTF-8, or holds no text.
    """
    if not path.is_file():
        raise DataError(f"corpus file {path} does not exist")
    if path.suffix.lower() in FORMATS:
        table = read_table(path)
        if text_column not in table.columns:
            raise DataError(
                f"{path} has no column '{text_column}' (it has {', '.join(table.columns)}): "
                "name the column with --text-column"
            )
        lines = [value for value in table.columns[text_column] if isinstance(value, str)]
    else:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 at byte {error.start}: convert it") from None
    texts = tuple(line for line in lines if line.strip())
    if not texts:
        raise DataError(f"corpus file {path} holds no text")
    return Split(name=path.stem, texts=texts, labels=None, label_names=())
