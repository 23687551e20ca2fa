"""Unlabelled text for masked language modelling."""

from __future__ import annotations

from pathlib import Path

from auxlearn.data.dataset import Split
from auxlearn.data.examples import LONGEST_TEXT, is_blank
from auxlearn.data.table_files import FORMATS, LARGEST_FILE, read_table, text_lines
from auxlearn.errors import DataError
from auxlearn.local_files import read_file, user_path
from auxlearn.wording import some_of


def read_corpus(path: Path, text_column: str = "text") -> Split:
    """Read a file of texts: plain text with one text per line, or a table with a text column.

    Args:
        path: A .txt file, or a table file in one of the formats of data sets.
        text_column: Column with the text of a table. If the table does not have it, the column
            ``text`` is read: the data set of a run and its corpora may have different columns.

    Returns:
        An unlabelled split named after the file, without blank lines.

    Raises:
        DataError: The file is missing, is not UTF-8, or contains no text, or a table has neither
            column.
    """
    if not user_path(path, DataError).exists():
        raise DataError(f"corpus file {path} does not exist")
    if path.suffix.lower() in FORMATS:
        table = read_table(path)
        wanted = list(dict.fromkeys((text_column, "text")))
        column = next((name for name in wanted if name in table.columns), None)
        if column is None:
            raise DataError(
                f"corpus file {path} has no column {' or '.join(map(repr, wanted))} (it has "
                f"{some_of(table.columns)}): name the column with --text-column"
            )
        lines = [value for value in table.columns[column] if isinstance(value, str)]
    else:
        lines = text_lines(read_file(path, LARGEST_FILE, DataError), str(path))
    texts = tuple(line for line in lines if not is_blank(line))
    if not texts:
        raise DataError(f"corpus file {path} contains no text")
    longest = max(map(len, texts))
    if longest > LONGEST_TEXT:
        raise DataError(
            f"corpus file {path} has a text of {longest:,} characters, of which at most "
            f"{LONGEST_TEXT:,} are read: divide it into lines"
        )
    return Split(name=path.stem, texts=texts, labels=None, label_names=())
