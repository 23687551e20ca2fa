"""Table files (.jsonl, .csv, .tsv, .parquet) read into columns, with the line of each row."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from auxlearn.core.errors import DataError, and_more, describe, first_fault, shorten
from auxlearn.core.files import read_file, write_bytes, write_text
from auxlearn.core.table import (
    HALF_A_PAIR,
    LARGEST_FILE,
    Table,
    check_columns,
    is_encodable,
    joined,
)
from auxlearn.data.conll import read_conll, read_conllu
from auxlearn.data.parquet import read_parquet

LONGEST_LINE = 1 << 26  # bytes of a line, or characters of a cell

#: The text of a file, whole lines of it at a time with the number of the first, from its beginning.
Pieces = Callable[[], Iterable[tuple[int, str]]]

#: Reads a format of text, so many characters, or pieces, at a time.
Tables = Callable[[Path, Pieces, float], Iterator[Table]]


def read_table(path: Path) -> Table:
    """Read a file in the format of its suffix: UTF-8, with or without byte order mark, without
    blank lines. CSV follows RFC 4180; a row of a TSV is always one line, see :func:`tsv_tables`.
    """
    return READ_FORMATS[path.suffix.lower()](path)


def read_tables(paths: Sequence[Path]) -> Table:
    """Read the files that one table is divided into."""
    tables = [read_table(path) for path in paths]
    return tables[0] if len(tables) == 1 else joined(str(paths[0].parent), tables)


def write_table(path: Path, table: Table) -> None:
    """Write a table in the format of the suffix, atomically. In CSV and TSV a missing value is an
    empty cell, and what is neither text nor a number is JSON; in Parquet, lists of several types.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise DataError(f"{shorten(str(path), 200)} names no format: end it with {known}")
    if suffix == ".jsonl":
        lines = (
            f"{as_json(dict(zip(table.columns, row, strict=True)), table.place(number))}\n"
            for number, row in enumerate(zip(*table.columns.values(), strict=True))
        )
        write_text(path, "".join(lines))
    elif suffix == ".parquet":
        write_bytes(path, _as_parquet(path, table))
    else:
        file = io.StringIO(newline="")
        delimiter = "\t" if suffix == ".tsv" else ","
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(table.columns)
        for row, values in enumerate(zip(*table.columns.values(), strict=True)):
            cells = [_cell(value, table.place(row)) for value in values]
            if suffix == ".tsv" and any(re.search("[\t\n\r]", cell) for cell in cells):
                raise DataError(f"{table.place(row)} has a cell with a tab or line break{_OF_TSV}")
            alone = any("\r" in cell for cell in cells)  # which before Python 3.13 is not quoted
            (quoting if alone else writer).writerow(cells)
        write_text(path, file.getvalue())


def _cell(value: Any, place: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    text = as_json(value, place)
    return str(json.loads(text)) if text.startswith('"') else text  # such as a date


def as_json(value: Any, place: str) -> str:
    """Return a value as JSON on one line; what JSON has no form for, as text, and null for NaN."""
    try:
        text = json.dumps(_without_nan(value), ensure_ascii=False, default=str)
        text.encode()
    except Exception as error:  # a cycle, a tuple as a key, half a character, a failing __str__
        raise DataError(
            f"{place}: {describe(value)} cannot be written as JSON ({first_fault(error)}): make it "
            "a text or leave the column out"
        ) from None
    return text


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_parquet(path: Path, table: Table) -> bytes:
    import pyarrow
    from pyarrow import parquet

    try:
        made = pyarrow.table({name: _arrow(values) for name, values in table.columns.items()})
        buffer = io.BytesIO()
        parquet.write_table(made, buffer)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = shorten(" ".join(str(error).split()), 150)
        raise DataError(
            f"{path} cannot hold these columns ({reason}): write .jsonl instead"
        ) from None
    return buffer.getvalue()


def _arrow(values: Any) -> Any:
    """Return a column of Parquet; lists of several types, such as trees, as JSON."""
    import pyarrow

    try:
        return pyarrow.array(values)
    except pyarrow.ArrowException:
        if not all(isinstance(value, list | None) for value in values):
            raise
        return pyarrow.array([None if one is None else as_json(one, "a list") for one in values])
    except OverflowError:  # numbers such as hashes, which need all 64 bits
        return pyarrow.array(values, pyarrow.uint64())


def json_tables(path: Path, pieces: Pieces, most: float) -> Iterator[Table]:
    for first, text in pieces():
        yield table_of_lines(text.split("\n"), str(path), first)


def table_of_lines(lines: Sequence[str], where: str, first: int = 1) -> Table:
    """Return the table of lines of JSON objects, which begin at the ``first`` line of a file."""
    records: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=without_repeated_keys)
        except (ValueError, RecursionError) as error:
            reason = shorten(getattr(error, "msg", str(error)), 120)
            raise DataError(
                f"{where}:{number}: bad JSON ({reason}): each line must be one JSON object"
            ) from error
        if not isinstance(row, dict):
            raise DataError(
                f"{where}:{number}: a JSON object is needed, such as "
                f'{{"text": "...", "label": "..."}}, but this is {describe(row)}'
            )
        if "\\ud" in line.lower() and not is_encodable(row):
            raise DataError(f"{where}:{number}: {HALF_A_PAIR}")
        records[number] = row
    names = list(dict.fromkeys(name for record in records.values() for name in record))
    check_columns(where, names)
    if first == len(records) == 1 and _are_columns(list(row.values())):
        raise DataError(
            f"{where}: its one object has columns, not one example: write one object on each line"
        )
    columns = {name: [record.get(name) for record in records.values()] for name in names}
    return Table(where, columns, list(records))


def _are_columns(values: Sequence[Any]) -> bool:
    """Return whether values are lists of one length, of which one holds texts, no words."""
    lists = [value for value in values if isinstance(value, list) and len(value) > 1]
    texts = [sum(isinstance(one, str) and " " in one.strip() for one in value) for value in lists]
    alike = len(lists) == len(values) and len({len(value) for value in lists}) == 1
    return alike and 2 * max(texts) >= len(lists[0])


def without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; a key twice is a ``ValueError``."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in row if names.count(name) > 1)
        raise ValueError(f"the key '{shorten(twice)}' occurs twice")
    return row


def csv_tables(path: Path, pieces: Pieces, most: float) -> Iterator[Table]:
    # newline="" leaves line breaks inside quoted cells as they are in the file.
    lines = (line for _, text in pieces() for line in io.StringIO(text, newline=""))
    for table in _below_header(path, _csv_rows(path, lines), most):
        yield _with_note_on_quotes(table)


def _with_note_on_quotes(table: Table) -> Table:
    """Say which rows hold lines that look like further ones, as where a quotation mark lacks."""
    lines = [
        (row, line.split(","))
        for values in table.columns.values()
        for row, value in enumerate(values)
        if "\n" in value
        for line in value.split("\n")
        if line.count(",") == len(table.columns) - 1 > 0
    ]
    known = [set(values) for values in table.columns.values()] if lines else []
    rows = {
        row
        for row, cells in lines
        if any(cell in values for cell, values in zip(cells, known, strict=True))
    }
    if not rows:
        return table
    note = (
        f"{table.place(min(rows))}: a quoted cell holds lines that look like rows"
        f"{and_more(len(rows) - 1)}: if a quotation mark is missing there, add it"
    )
    return replace(table, notes=(*table.notes, note))


def _csv_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    reader, start = csv.reader(lines, strict=True), 1
    # By default the module refuses cells of more than 131,072 characters, for all its users.
    usual = csv.field_size_limit(LONGEST_LINE)
    header: list[str] = []
    try:
        for cells in reader:
            header = header or cells
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}:{start}: bad CSV ({error}) in the row that starts here: "
            f"{divided_otherwise(header) or 'quote the cell properly or use .jsonl'}"
        ) from error
    finally:
        csv.field_size_limit(usual)


_NO_TEXT = re.compile(r"[-+.0-9eE]*|NA")  # which writers that quote every text do not quote


def tsv_tables(path: Path, pieces: Pieces, most: float) -> Iterator[Table]:
    """Yield the rows of a TSV, one for each line. A quotation mark is an ordinary character (GLUE,
    HANS), unless every cell with one is quoted as a CSV writer does it.
    """

    def rows() -> Iterator[tuple[int, list[str]]]:
        for first, text in pieces():
            for number, line in enumerate(text.split("\n"), start=first):
                line = line.removesuffix("\r")
                if line.strip(" "):
                    yield number, line.split("\t")

    def unquoted(cell: str) -> str:
        return cell[1:-1].replace('""', '"') if '"' in cell else cell

    if _written_as_csv(cells for _, cells in rows()):
        as_csv = ((number, [*map(unquoted, cells)]) for number, cells in rows())
        return _below_header(path, as_csv, most)
    if at := _line_break_in_cell(f"{line}\n" for _, text in pieces() for line in text.split("\n")):
        raise DataError(f"{path}:{at}: a quoted cell has a line break{_OF_TSV}")
    return _below_header(path, rows(), most)


def _line_break_in_cell(lines: Iterator[str]) -> int:
    """Return the line where a cell ends that a CSV writer has written over several lines; 0 if
    there is none, or the quotation marks are not those of a CSV writer.
    """

    def marked_at_ends() -> Iterator[str]:
        for line in lines:
            if re.search(r'[^\t]"[^\t\n]', line.replace('""', "")):
                raise csv.Error("an ordinary quotation mark within a cell")
            yield line

    reader = csv.reader(marked_at_ends(), delimiter="\t", strict=True)
    found = 0
    with suppress(csv.Error):
        width = len(next(reader, []))
        for cells in reader:
            if cells and len(cells) != width:
                return 0
            if not found and any("\n" in cell for cell in cells):
                found = reader.line_num
        return found
    return 0


def _written_as_csv(rows: Iterator[list[str]]) -> bool:
    """Return whether the quotation marks of a TSV are those of a CSV writer: around cells that have
    some, around all texts of a column, or, as spreadsheets set them, around all with a comma.
    """
    next(rows, None)  # the header may be written otherwise
    bare: set[int] = set()  # columns with a text that is not quoted
    needless: set[int] = set()  # with a quoted one that no writer had to quote
    commas: set[int] = set()  # or only for its comma
    bare_comma = False
    for cells in rows:
        for column, cell in enumerate(cells):
            if '"' not in cell:
                bare_comma |= "," in cell
                if column not in bare and not _NO_TEXT.fullmatch(cell):
                    bare.add(column)
            elif not _is_quoted(cell):
                return False
            elif not re.search('["\r]', inner := cell[1:-1]) and inner:
                (commas if "," in inner else needless).add(column)
    return bare.isdisjoint(needless | (commas if bare_comma else set()))


def _is_quoted(cell: str) -> bool:
    return len(cell) >= 2 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")


def _below_header(
    path: Path, rows: Iterator[tuple[int, list[str]]], most: float
) -> Iterator[Table]:
    """Yield the rows below a header, so many characters of them at a time; none in the last."""
    names = [name.strip() for name in next(rows, (1, []))[1]]
    nameless = names.count("")  # one is an index; more are what a spreadsheet writes beside a table
    left_out = nameless if 1 < nameless < len(names) else 0
    places = {at: name for at, name in enumerate(names) if name or not left_out}
    check_columns(path, list(places.values()))
    kept: list[tuple[int, list[str]]] = []
    empty = filled = size = 0

    def table() -> Table:
        columns = {name: [cells[at] for _, cells in kept] for at, name in places.items()}
        counts = {"rows of empty cells": empty, "columns without a name": left_out}
        counts["cells with text in columns without a name"] = filled
        notes = [f"{what} that were left out: {count:,}" for what, count in counts.items() if count]
        return Table(str(path), columns, [number for number, _ in kept], notes=tuple(notes))

    for number, cells in rows:
        if len(cells) > 1 and not any(map(str.strip, cells)):  # as spreadsheets write below a table
            empty += 1
            continue
        if len(cells) != len(names):
            fix = f"fix the row{_OF_TSV if path.suffix.lower() == '.tsv' else ''}"
            raise DataError(
                f"{path}:{number}: {len(cells)} cells, but the header names {len(names)} columns: "
                f"{divided_otherwise(names, cells) or fix}"
            )
        kept.append((number, cells))
        filled += sum(bool(cell.strip()) for at, cell in enumerate(cells) if at not in places)
        size += sum(map(len, cells))
        if size >= most:
            yield table()
            kept, size = [], 0
    yield table()


def divided_otherwise(header: Collection[str], row: Collection[str] = ()) -> str:
    """Return what a header of one name says, or one that has as many of another character as a row
    of other length: that it divides cells.
    """
    head, below = ",".join(header), ",".join(row)
    same = [mark for mark in ";|\t" if 0 < head.count(mark) == below.count(mark)]
    mark = next(iter(re.findall(r"[;,|\t]", head) if len(header) == 1 else same), "")
    return f"cells are divided by {mark!r}, but .csv needs commas, and .tsv tabs" if mark else ""


_OF_TSV = (
    " (a cell of a .tsv cannot contain tabs or line breaks: use .csv or .jsonl for those, and "
    ".conll for a word on each line)"
)


def _whole(tables: Tables, path: Path) -> Table:
    piece = (1, plain_lines(_text_of(path)))
    return next(tables(path, lambda: [piece], math.inf))


def _text_of(path: Path) -> str:
    return decoded(read_file(path, LARGEST_FILE, DataError), str(path))


def decoded(content: bytes, where: str, first: int = 1) -> str:
    """Return the text of a file from its ``first`` line on."""
    try:
        text = content.decode().lstrip("\ufeff")  # some programs write several marks
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + first
        raise DataError(f"{where}:{line}: not UTF-8: save the file as UTF-8") from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + first
        raise DataError(f"{where}:{line}: a null character (\\x00): save the file as text in UTF-8")
    return text


def plain_lines(text: str, first: int = 1) -> str:
    """Return lines without the byte order marks of joined files, and with LF for CR in a file that
    has CR alone, which is one piece from its ``first`` line on.
    """
    text = text if "\n" in text or first > 1 else text.replace("\r", "\n")
    return re.sub("\n\ufeff+", "\n", text)


#: What is wrong with files that hold no lines of text, by their suffix.
_NO_LINES = {
    ".json": "a table in JSON has one object on each line and the suffix .jsonl: save it so",
    ".arrow": (
        "an Arrow file cannot be read: save it as .parquet, or give the folder of save_to_disk"
    ),
    **dict.fromkeys(
        (".xlsx", ".xls", ".xlsm", ".ods"), "a spreadsheet cannot be read: save it as .csv"
    ),
    **dict.fromkeys(
        (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".tgz"),
        "a packed file cannot be read: unpack it",
    ),
}


def check_format(path: Path) -> None:
    """Refuse a file whose name says that it holds no table and no lines."""
    if fault := _NO_LINES.get(path.suffix.lower()):
        raise DataError(f"{path}: {fault}")


def read_table_or_lines(path: Path) -> Table | list[str]:
    """Read a table file, or one line by line, if its name speaks of lines."""
    if path.suffix.lower() in READ_FORMATS:
        return read_table(path)
    check_format(path)
    return table_or_lines(read_file(path, LARGEST_FILE, DataError), str(path))


def table_or_lines(content: bytes, where: str) -> Table | list[str]:
    """Return the table of lines that are objects of JSON, if the first that is not blank is one;
    else the lines, which end at a line feed, with or without a carriage return: other characters
    that some programs break lines at, such as U+2028, are part of a line.
    """
    lines = plain_lines(decoded(content, where)).replace("\r\n", "\n").split("\n")
    return table_of_lines(lines, where) if begins_with_object(lines, where) else lines


#: What a table of texts begins with, and no text does: names with "text" and another usual one.
_HEADER = re.compile(
    r"""(?=.*\btext\b)(?=.*\b(id|idx|index|labels?|class|category|target|split)\b)"""
    r"""["']?\w+["']?([,;|\t] ?["']?\w+["']?)+""",
    re.IGNORECASE,
)


def begins_with_object(lines: Sequence[str], where: str) -> bool:
    """Return whether the first line is an object of JSON; refuse the lines of a table."""
    first = next(filter(str.strip, lines), "").strip()
    if _HEADER.fullmatch(first):
        raise DataError(
            f"{where} begins with the header of a table, {shorten(first)}: end its name with .csv "
            "or .tsv, or delete that line"
        )
    if first == "[" or first.startswith('[{"'):
        raise DataError(
            f"{where} is an array of JSON: save it with an object in each line, as .jsonl"
        )
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(first), dict):
            return True
    tabs = [line.count("\t") for line in lines if line.strip()]
    if len(tabs) > 1 and tabs[0] and len({*tabs}) == 1:
        raise DataError(
            f"{where} has {tabs[0] + 1} cells in each line, divided by tabs: end its name with "
            ".tsv (.conll for a word and its tag in each line), or write spaces for the tabs"
        )
    return False


IN_PIECES: dict[str, Tables] = {
    ".jsonl": json_tables,
    ".csv": csv_tables,
    ".tsv": tsv_tables,
}

#: Formats that tables are read from and written to.
FORMATS: dict[str, Callable[[Path], Table]] = {
    **{suffix: partial(_whole, tables) for suffix, tables in IN_PIECES.items()},
    ".parquet": read_parquet,
}

#: Formats that words with tags are read from as well.
READ_FORMATS = FORMATS | {
    ".conll": lambda path: read_conll(path, _text_of(path)),
    ".conllu": lambda path: read_conllu(path, _text_of(path)),
}
