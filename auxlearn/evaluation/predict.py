"""Classification of a table of texts by a finished run: all its columns, and the predictions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auxlearn.core.arguments import Column, UserPath, checked
from auxlearn.core.errors import DataError, did_you_mean, is_blank, shorten, some_of
from auxlearn.core.files import expand, user_path
from auxlearn.core.settings import USUAL, Columns
from auxlearn.core.table import Table
from auxlearn.data.audit import SECOND_TEXT, doubtful_texts
from auxlearn.data.dataset import Split
from auxlearn.data.examples import PREDICTED_LABEL, check_distinct, is_empty, no_column, text_values
from auxlearn.data.memory import as_list, of_type, read_memory_table
from auxlearn.data.tables import FORMATS, READ_FORMATS, read_table_or_lines, write_table
from auxlearn.kinds.base import Kind
from auxlearn.kinds.columns import find_text
from auxlearn.kinds.predictions import Arrays
from auxlearn.results.folder import RunFolder, finished_folder, model_of
from auxlearn.results.outputs import check_output_file
from auxlearn.results.record import RunResults

if TYPE_CHECKING:
    import pandas


#: Columns that the probabilities of classes are written to.
PROBABILITY = "probability_"


@dataclass(frozen=True)
class TextSource:
    """Texts to classify."""

    table: Table
    path: Path | None = None  # the file that they come from, if it is a table
    frame: Any = None  # the DataFrame that they come from
    index: Any = None  # of the Series that they come from
    listed: bool = False  # whether it has no columns of its own: "text" and "text_pair" are ours

    def column(self, of_run: str | None, usual: str) -> str | None:
        """Return the column of the run if the source has it; new texts may have other columns."""
        return usual if self.listed else of_run if of_run in self.table.columns else None

    def to_frame(self, table: Table) -> pandas.DataFrame:
        """Return a table with predictions as a DataFrame, with the index of the source."""
        import pandas

        if self.frame is None:
            numbers = pandas.RangeIndex(len(table), name="example")
            columns = {name: _exact(values) for name, values in table.columns.items()}
            return pandas.DataFrame(columns, numbers if self.index is None else self.index)
        index, columns = self.frame.index, table.columns
        added = [name for name in columns if name not in self.table.columns]
        return self.frame.assign(**{n: pandas.Series(columns[n], index=index) for n in added})


def _exact(values: Sequence[Any]) -> Any:
    """Return whole numbers beside missing values so that pandas does not make them floats."""
    import pandas

    whole = {type(value) for value in values} == {int, type(None)}
    fits = whole and all(abs(value or 0) < 1 << 63 for value in values)
    return pandas.array(values, dtype="Int64" if fits else object) if whole else values


def table_of(texts: Any, text_pairs: Any = None) -> TextSource:
    if isinstance(texts, Path):
        if text_pairs is not None:
            raise DataError(f"second texts are a column of {texts}: leave text_pairs out")
        table, is_table = read_texts_file(texts)
        return TextSource(table, texts if is_table else None, listed=not is_table)
    if isinstance(texts, str):
        refuse_file(texts, "give a pathlib.Path to read its texts, or a list of one text")
        texts = [texts]
        text_pairs = [text_pairs] if isinstance(text_pairs, str) else text_pairs
    columns = {"text": texts} if text_pairs is None else {"text": texts, "text_pair": text_pairs}
    index = texts.index if hasattr(texts, "iloc") else None
    texts, text_pairs = as_list(texts), as_list(text_pairs)
    if isinstance(texts, list | tuple) and not any(isinstance(text, Mapping) for text in texts):
        if not isinstance(text_pairs, list | tuple | None):
            raise DataError(f"text_pairs: give a list of texts in place of {of_type(text_pairs)}")
        table = replace(read_memory_table(columns), where="the texts")
        return TextSource(table, listed=True, index=index)
    source = TextSource(read_memory_table(texts), frame=texts if hasattr(texts, "iloc") else None)
    if text_pairs is not None:
        raise DataError("second texts are a column of the table: leave text_pairs out")
    return source


def refuse_file(text: str, advice: str) -> None:
    """Refuse the name of a file in place of a text."""
    if Path(text).suffix.lower() in (".txt", *READ_FORMATS) and len(text.split()) == 1:
        raise DataError(f"'{shorten(text, 200)}' looks like a file: {advice}")


def texts_of(texts: Any, text_column: str | None = None) -> tuple[Split, tuple[str, ...]]:
    """Return texts, of a file or in memory, as an unlabelled split, and notes on their reading."""
    source = table_of(texts)
    if source.listed and text_column not in (None, "text"):
        where = f"{source.table.where} has a text per line and" if isinstance(texts, Path) else ""
        raise DataError(
            f"{where or 'texts have'} no column '{shorten(str(text_column))}': leave "
            f"{'--text-column' if where else 'it'} out"
        )
    column = text_column or "text"
    if not len(source.table):
        raise DataError("there is no text")
    if column not in source.table.columns:
        hint = did_you_mean(column, source.table.columns)
        where = source.table.where
        raise DataError(f"there is no column '{shorten(column)}' of texts in {where}: {hint}")
    split = Split("texts", tuple(text_values(source.table, column)), None, ())
    return split, source.table.notes


def read_texts_file(path: Path) -> tuple[Table, bool]:
    """Read a table file or one with a JSON object per line, or a file with one text per line."""
    path = user_path(path, DataError)
    return texts_table(read_table_or_lines(path), str(path))


def texts_table(lines: Table | list[str], where: str) -> tuple[Table, bool]:
    """Return what was read as a table, without blank lines, and whether it was one."""
    if isinstance(lines, Table):
        return lines, True
    rows = {number: line.strip() for number, line in enumerate(lines, 1) if not is_blank(line)}
    if not rows:
        raise DataError(f"{where} contains no text")
    blank = [number for number in range(1, max(rows)) if number not in rows]
    plural = "" if len(blank) == 1 else "s"
    note = f"blank lines are left out: line{plural} {some_of(blank)} of {where}"
    notes = (note,) if blank else ()
    return Table(where, {"text": list(rows.values())}, list(rows), notes=notes), False


@checked
def predict(
    run: UserPath,
    texts: Any,
    text_pairs: Any = None,
    *,
    text_column: Column | None = None,
    text_pair_column: Column | None = None,
    output: UserPath | None = None,
) -> pandas.DataFrame:
    """Predict the labels of texts with a finished run.

    Args:
        run: The run folder, or the results that :func:`train` or :func:`load_run` returned.
        texts: A text, a list or Series of texts, or a table: a :class:`~pathlib.Path` of a file
            (.csv, .tsv, .jsonl, .parquet, or one text per line), a DataFrame, a mapping of columns
            to lists, a list of mappings, or a ``datasets.Dataset``.
        text_pairs: Second texts, if the run was trained on pairs and ``texts`` is a list.
        text_column: Column of the text in a table; by default that of the run, else ``text``.
        text_pair_column: Column of the second text of a pair in a table; by default that of the
            run.
        output: File for the table with its predictions: .csv, .tsv, .jsonl or .parquet.

    Returns:
        The table with all its columns, and further ones: ``predicted_label``, whose classes are
        texts (of a label 1 it is ``"1"``), and ``probability_CLASS`` for each class. A DataFrame or
        Series keeps its index; other texts are numbered from 0, by the index ``example``. A row
        without a text has no prediction; a warning names it, cut texts, and what is not read.

    Raises:
        UserError: The run is not finished, a column is missing, every text is empty, or the run was
            trained on pairs of texts and there are none.
    """
    folder = finished_folder(run)
    source = table_of(texts, text_pairs)
    if text_pairs is not None and RunResults.load(folder).dataset.pairs is False:
        raise DataError("the run was trained on single texts: leave text_pairs out")
    place = None if output is None else expand(output)
    from auxlearn.encoders.device import usual_torch

    with usual_torch():
        table, _ = classify(folder, source, text_column, text_pair_column, place)
    for note in table.notes:
        warnings.warn(note, stacklevel=3)  # of the caller of what ``checked`` returns
    return source.to_frame(table)


def classify(
    run: Path,
    source: TextSource,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    output: Path | None = None,
) -> tuple[Table, dict[str, str]]:
    """Return a table with predictions, written if asked for, and what its texts are read as."""
    if output is not None:
        check_output_file(output, FORMATS, [] if source.path is None else [source.path])
    model_of(run)
    config, results = RunFolder(run).read_config(), RunResults.load(run)
    columns = Columns(
        text_column=text_column or source.column(config.text_column, "text"),
        text_pair_column=text_pair_column or source.column(config.text_pair_column, "text_pair"),
    )
    roles = ("text",) if results.dataset.pairs is False else ("text", "text_pair")
    check_distinct(columns, roles)
    kind, table = results.kind, source.table
    text = find_text(table.columns, columns, kind.text_columns)
    reading = columns.model_copy(update={"text_column": text})
    names = [getattr(reading, role) for role in roles]
    read = [table.columns[name] for name in names if name in table.columns]
    rows = [row for row in range(len(table)) if not any(is_empty(column[row]) for column in read)]
    part = table.select(rows) if 0 < len(rows) < len(table) else table
    readable = kind.texts(part, text) if text in table.columns else part
    texts, pairs = _texts(readable, reading, results.dataset.pairs)

    from auxlearn.evaluation.evaluator import Classifier

    classifier = Classifier.of_run(run)
    written = [PREDICTED_LABEL, *(f"{PROBABILITY}{label}" for label in classifier.label_names)]
    if taken := [name for name in written if name in table.columns]:
        raise DataError(
            f"{table.where} has a column '{shorten(taken[0])}' already, which predictions are "
            "written to: rename it or leave it out"
        )
    outputs = classifier.outputs(texts, pairs)
    added = prediction_columns(kind, outputs, classifier.label_names, classifier.thresholds)
    if len(part) < len(table):
        first = table.place(min({*range(len(table))} - {*rows}))
        count = len(table) - len(part)
        note = f"rows without a text, and so without a prediction: {count:,}, the first is {first}"
        table = replace(table, notes=(*table.notes, note))
        for name, column in added.items():
            by_row = dict(zip(rows, column, strict=True))
            added[name] = [by_row.get(row) for row in range(len(table))]
    predicted = Split("texts", texts, None, (), None if pairs is None else tuple(pairs))
    notes = [*classifier.notes, *doubtful_texts(predicted)]
    table = replace(table, columns=table.columns | added, notes=(*table.notes, *notes))
    if output is not None:
        write_table(output, table)
    if pairs is not None:
        return table, {"text": text, "text_pair": columns.text_pair}
    others = [name for name in source.table.columns if name != text]
    if unread := list(filter(SECOND_TEXT.fullmatch, others)):
        note = f"column '{shorten(unread[0])}' is not read: the run was trained on single texts"
        table = replace(table, notes=(*table.notes, note))
    return table, {"text": text}


def prediction_columns(
    kind: Kind, outputs: Arrays, label_names: Sequence[str], thresholds: np.ndarray | None
) -> dict[str, Any]:
    """Return the predicted label, and the probability of each label where the kind has any."""
    labels = [kind.written(kind.decode(output, thresholds), label_names) for output in outputs]
    probabilities = np.array([kind.shown(output) for output in outputs])
    columns = probabilities.T.tolist() if probabilities.size else []
    names = [f"{PROBABILITY}{name}" for name in label_names]
    return {PREDICTED_LABEL: labels, **dict(zip(names, columns, strict=bool(columns)))}


def _texts(
    table: Table, columns: Columns, trained_on_pairs: bool | None
) -> tuple[list[str], list[str] | None]:
    if len(table) == 0:
        raise DataError(f"{table.where} contains no text")
    has_pairs = columns.text_pair in table.columns
    asked = columns.text_pair != USUAL.text_pair
    needed = {"text": columns.text} | ({"text-pair": columns.text_pair} if asked else {})
    for role, name in needed.items():
        if name not in table.columns:
            raise no_column(table, name, role)
    if trained_on_pairs and not has_pairs:
        raise DataError(
            f"the run was trained on pairs of texts, but these are single texts ({table.where}): "
            "give a table with a column 'text_pair' (in Python also text_pairs=), or name the "
            "column with --text-pair-column"
        )
    if trained_on_pairs is False and asked:
        raise DataError("the run was trained on single texts alone: leave --text-pair-column out")
    has_pairs = has_pairs and trained_on_pairs is not False
    pairs = text_values(table, columns.text_pair) if has_pairs else None
    return text_values(table, columns.text), pairs
