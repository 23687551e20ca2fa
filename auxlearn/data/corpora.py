"""Files of unlabelled texts, of any size: they are read a piece at a time into a column of Arrow,
which is mapped from the cache.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auxlearn.core.cache import TensorCache, content_key
from auxlearn.core.errors import DataError, UserError, shorten
from auxlearn.core.files import opened, refuse_lfs_pointer, replaced_file, user_path
from auxlearn.core.processes import threads_given
from auxlearn.core.progress import ProgressBar, no_progress_bar
from auxlearn.core.table import Table
from auxlearn.data.conll import are_tags
from auxlearn.data.dataset import Split
from auxlearn.data.examples import is_empty, no_column, text_values
from auxlearn.data.parquet import parquet_tables
from auxlearn.data.tables import (
    IN_PIECES,
    LONGEST_LINE,
    READ_FORMATS,
    begins_with_object,
    check_format,
    decoded,
    plain_lines,
    read_table,
    table_of_lines,
)

logger = logging.getLogger(__name__)

FORMAT = 3  # part of the keys of the cache; raise it when other texts are read of a file

PIECE = 1 << 20  # bytes of a file that are read at once, and the rest of the last line

SHOW_PROGRESS = 1 << 26  # bytes of a file from which on progress is shown

AT_ONCE = 2048  # texts in memory, of those that are read one after the other

#: Of the last two, whether there are second texts, and whether lines are words with tags.
_COUNTED = ("texts", "left out", "pairs", "tags")

MAPPED_TEXTS = 1 << 18  # of which all that is made is written before the next are read


class Texts(Sequence[str]):
    """Texts in the file of a ``datasets.Dataset``; ``content_key`` stands for all of them."""

    def __init__(self, path: Path, content_key: str, rows: range | np.ndarray) -> None:
        self.path, self.content_key, self.rows = path, content_key, rows

    @cached_property
    def dataset(self) -> Any:  # its import takes longer than all else where nothing is read
        from datasets import Dataset

        return Dataset.from_file(str(self.path))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        rows = self.rows[index]
        return self.dataset[rows if isinstance(index, slice) else int(rows)]["text"]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), AT_ONCE):
            yield from self[start : start + AT_ONCE]

    def select(self, indices: Sequence[int] | np.ndarray) -> Texts:
        """Return the texts with some indices, in their order."""
        chosen = np.asarray(indices, np.int64)
        rows = chosen if isinstance(self.rows, range) else self.rows[chosen]  # a range is of all
        digest = hashlib.sha256(self.content_key.encode())
        digest.update(np.ascontiguousarray(rows).data)
        return Texts(self.path, digest.hexdigest(), rows)

    def mapped(
        self,
        function: Callable[[Any, int | None], Any],
        rows: slice,
        folder: Path,
        batch_size: int,
    ) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the rows of the tables of lists that a function makes of so many texts, in as many
        processes as ``OMP_NUM_THREADS`` says; ``folder`` holds those that are not yet taken.
        """
        import multiprocess
        from datasets.utils import logging as bars

        processes = threads_given(1)
        shown = bars.is_progress_bar_enabled()
        bars.disable_progress_bar()
        shutil.rmtree(folder, ignore_errors=True)  # left by a kill
        folder.mkdir()
        try:
            part = self.dataset.select(self.rows[rows]).with_format("arrow")
            tables = part.map(
                function,
                with_rank=True,
                batched=True,
                batch_size=batch_size,
                num_proc=processes if processes > 1 else None,
                remove_columns=["text"],
                cache_file_name=f"{folder}/mapped.arrow",
                new_fingerprint=folder.name[:32],
            )
            for row in tables.with_format("arrow").iter(1):
                yield {name: _tensor(row[name]) for name in row.column_names}
        except multiprocess.TimeoutError as error:  # of what an interruption ended
            raise KeyboardInterrupt from error
        except RuntimeError as error:
            if "abruptly died" not in str(error):  # the words of datasets alone tell it
                raise
            raise UserError(
                f"one of the {processes} processes that tokenise was ended, as the system does "
                "where memory is short: run the same command again, with OMP_NUM_THREADS=1"
            ) from None
        finally:
            if shown:
                bars.enable_progress_bar()
            shutil.rmtree(folder, ignore_errors=True)


def _tensor(column: Any) -> torch.Tensor:
    """Return the lists in a column of Arrow as one tensor."""
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return torch.from_numpy(values.copy())  # which of numbers is in memory that is read only


def read_corpus(
    path: Path,
    cache: TensorCache,
    text_column: str | None = None,
    *,
    exact: bool = False,
    progress: ProgressBar = no_progress_bar,
) -> Split:
    """Read a file of texts: one text per line, or a table or lines of JSON with a text column, by
    default "text", also in place of the one that is named, unless that is ``exact``.
    """
    if not user_path(path, DataError).exists():
        raise DataError(f"corpus file {path} does not exist")
    check_format(path)
    suffix, size = path.suffix.lower(), path.stat().st_size
    key = content_key("corpus", FORMAT, _digest(path), suffix, text_column, exact)

    def pieces(counts: dict[str, int]) -> Iterator[list[str]]:
        show = progress if size >= SHOW_PROGRESS else no_progress_bar
        times = 2 if suffix == ".tsv" else 1  # how its cells are quoted is seen by all of them
        with show(f"reading {shorten(path.name, 40)}", times * size) as advance:
            yield from _texts(path, text_column, exact, advance, counts)

    texts, counts = _stored(cache, key, pieces)
    notes = []
    if left_out := counts["left out"]:
        rows = len(texts) + left_out
        notes.append(f"{path}: {left_out:,} of {rows:,} rows have no text and are left out")
    if counts["pairs"]:
        notes.append(f"{path}: the column text_pair is not read, as a corpus has single texts")
    if counts["tags"]:
        notes.append(
            f"{path}: each line is read as a text, though it ends in a tag: a file with a word and "
            "its tag on each line is named .conll"
        )
    return Split(path.stem, texts, labels=None, label_names=(), notes=tuple(notes))


def _stored(
    cache: TensorCache, key: str, pieces: Callable[[dict[str, int]], Iterator[list[str]]]
) -> tuple[Texts, dict[str, int]]:
    """Return the texts of an entry of the cache, and what was counted when they were read; those
    that are absent or damaged are written.
    """
    path = cache.folder / f"{key}.arrow"

    def write() -> dict[str, torch.Tensor]:
        from datasets import Features, Value
        from datasets.arrow_writer import ArrowWriter

        features, counts = Features({"text": Value("string")}), dict.fromkeys(_COUNTED, 0)
        with (
            replaced_file(path) as temporary,
            ArrowWriter(path=str(temporary), features=features) as writer,
        ):
            for piece in pieces(counts):
                writer.write_batch({"text": piece})
                counts["texts"] += len(piece)
        numbers = {name: torch.tensor(count) for name, count in counts.items()}
        return {"sha256": _digest(path), **numbers}

    while True:
        expected = cache.get(key, write)
        if path.is_file() and torch.equal(_digest(path), expected["sha256"]):
            counts = {name: int(expected[name]) for name in _COUNTED}
            return Texts(path, key, range(counts["texts"])), counts
        logger.warning("cache file %s is damaged: its content is computed again", path)
        cache.delete(key)


def _digest(path: Path) -> torch.Tensor:
    with opened(path, DataError) as file:
        return torch.tensor([*hashlib.file_digest(file, "sha256").digest()])


def _texts(
    path: Path,
    text_column: str | None,
    exact: bool,
    advance: Callable[[int], None],
    counts: dict[str, int],
) -> Iterator[list[str]]:
    """Yield the texts of a file, without blank ones, a piece of it at a time; rows of a table that
    have none are counted.
    """
    is_table = path.suffix.lower() in READ_FORMATS
    wanted = [text_column or "text"] if exact else [text_column or "text", "text"]
    names: dict[str, None] = {}
    for column in dict.fromkeys(wanted):
        begun, counts["left out"] = False, 0
        for table in _tables(path, column, exact and text_column is not None, advance):
            names |= dict.fromkeys(table.columns)
            values = table.columns.get(column, [])
            rows = [row for row, value in enumerate(values) if not is_empty(value)]
            if is_table:
                counts["left out"] += len(table) - len(rows)
            if rows:
                texts = replace(table, columns={column: values}).select(rows)
                lines = text_values(texts, column, begins=not begun)
                if not begun and not is_table:
                    words = (line.split() for line in lines)
                    counts["tags"] = int(are_tags({line[-1] for line in words if len(line) > 1}))
                yield lines
                begun = True
        if column in names:
            counts["pairs"] = int("text_pair" in names)
            break
    else:
        if names:
            # An option would be of the data set as well.
            advice = "" if exact else "rename that of the texts"
            table = Table(str(path), {name: [] for name in names})
            raise no_column(table, wanted[0], "text", advice)
    if not begun:
        raise DataError(f"corpus file {path} contains no text")


def _tables(
    path: Path, column: str, named: bool, advance: Callable[[int], None]
) -> Iterator[Table]:
    """Yield the rows of a file, some at a time, with all columns or with one; lines are a column
    "text", but not one that is ``named``.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from parquet_tables(path, column, PIECE, advance)
    elif suffix in IN_PIECES:
        yield from IN_PIECES[suffix](path, lambda: _pieces(path, advance), PIECE)
    elif suffix in READ_FORMATS:
        yield read_table(path)
    else:
        yield from _lines(path, column if named else None, advance)


def _lines(path: Path, column: str | None, advance: Callable[[int], None]) -> Iterator[Table]:
    is_table = None
    for first, text in _pieces(path, advance):
        lines = text.replace("\r\n", "\n").split("\n")
        if is_table is None and not text.isspace():
            is_table = begins_with_object(lines, str(path))
        if is_table:
            yield table_of_lines(lines, str(path), first)
            continue
        if column is not None:
            raise DataError(
                f"corpus file {path} has a text per line and no column '{shorten(column)}': leave "
                "--text-column out"
            )
        yield Table(str(path), {"text": lines}, list(range(first, first + len(lines))))


def _pieces(path: Path, advance: Callable[[int], None]) -> Iterator[tuple[int, str]]:
    """Yield whole lines, so many at a time, with the number of the first, from 1."""
    first = 1
    with opened(path, DataError) as file:
        while content := file.read(PIECE):
            content += (rest := file.readline(LONGEST_LINE))
            if len(rest) == LONGEST_LINE:
                number = first + content.count(b"\n")
                raise DataError(f"{path}:{number}: more than {LONGEST_LINE:,} bytes in a line")
            if first == 1:
                refuse_lfs_pointer(path, content, DataError)
            text = plain_lines(decoded(content, str(path), first), first)
            yield first, text
            first += text.count("\n")
            advance(len(content))
