"""``auxlearn predict``: classification of texts by a finished run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, options_of, print_json
from auxlearn.core.errors import DataError, is_blank, printable, shorten
from auxlearn.core.table import Table
from auxlearn.data.examples import PREDICTED_LABEL
from auxlearn.data.tables import table_or_lines
from auxlearn.evaluation.predict import (
    PROBABILITY,
    TextSource,
    classify,
    predict,
    refuse_file,
    table_of,
    texts_table,
)
from auxlearn.results.folder import finished_folder

#: What a text given as an argument is said to stand in.
COMMAND_LINE = "the command line"


@click.command()
@click.argument("run", type=PATH)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option(
    "--file",
    type=PATH,
    metavar="FILE",
    help="File of texts: a table (.jsonl, .csv, .tsv, .parquet) with a column of texts, or one "
    "text per line.",
)
@options_of(predict, "text_column", "text_pair_column", "output")
@click.option(
    "--json", "as_json", is_flag=True, help="Print all class probabilities as JSON lines."
)
def command(
    run: Path,
    texts: tuple[str, ...],
    file: Path | None,
    as_json: bool,
    output: Path | None = None,
    **columns: str,
) -> None:
    """Predict the labels of texts with the finished run in folder RUN.

    Texts are read from the command line, from a file, or from standard input, one per line. The
    output has one line per text: label, probability and text, separated by tabs (a number, several
    labels, joined by |, or the tags of words have no probability); a tab, line break
    or control character in a text is written as an escape such as \\t. With --output, all columns
    of the table are written with the columns predicted_label and probability_CLASS.

    \b
    Examples:
        # Texts on the command line
        auxlearn predict runs/reviews "A warm and funny film." "Not worth the time."
        # A table in, a table out: all columns, the predicted label, and all probabilities
        auxlearn predict runs/reviews --file new.csv --text-column body --output labelled.csv
        # A file with one text per line; all probabilities, as JSON lines
        auxlearn predict runs/reviews --file texts.txt --json
    """
    _check_sources(texts, file)
    finished_folder(run)  # before libraries are loaded and texts are read
    source = _read(texts, file)

    if output is not None and as_json:
        raise DataError("--json prints what --output writes to a file: leave one of them out")
    table, read = classify(run, source, output=output, **columns)
    for note in table.notes:
        click.echo(f"note: {note}", err=True)
    if output is not None:
        click.echo(f"{len(table):,} texts with their predictions: {output}")
        return
    classes = {n: n.removeprefix(PROBABILITY) for n in table.columns if n.startswith(PROBABILITY)}
    single_classes = any(isinstance(label, str) for label in table.columns[PREDICTED_LABEL])
    for row in range(len(table)):
        values = {name: column[row] for name, column in table.columns.items()}
        shown = {key: values[name] for key, name in read.items() if name in values}
        probabilities = {label: values[name] for name, label in classes.items()}
        label = values[PREDICTED_LABEL]
        if as_json:
            further = {"probabilities": probabilities} if probabilities else {}
            print_json({**shown, "label": label, **further}, indent=None)
            continue
        if single_classes:
            cells = ["", ""] if label is None else [label, f"{probabilities[label]:.4f}"]
        elif probabilities:
            cells = ["|".join(label or [])]
        else:
            cells = [f"{label:.4f}" if isinstance(label, float) else _text_of(label)]
        click.echo("\t".join(map(printable, [*cells, *map(_text_of, shown.values())])))


def _text_of(value: Any) -> str:
    """Return a value in a line: tags one after the other, an arc as ``HEAD:RELATION``."""
    if value is None:
        return ""
    if not isinstance(value, list):
        return str(value)
    return " ".join(":".join(map(str, part)) if isinstance(part, list) else part for part in value)


def _check_sources(texts: tuple[str, ...], file: Path | None) -> None:
    """Refuse two sources of texts, none, and texts of the command line that are none."""
    if texts and file is not None:
        raise DataError("texts are given both on the command line and by --file: use one of them")
    if not texts and file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise DataError(
            "no texts: give them after RUN, by --file, or on standard input, one per line"
        )
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            problem = f"{COMMAND_LINE} contains a text that is not UTF-8: {shorten(text)}"
            raise DataError(problem) from None
        if is_blank(text):
            raise DataError(f"{COMMAND_LINE} contains an empty text: remove it")
        if text == "-":
            raise DataError("- is no text: leave it out, and standard input is read")
        refuse_file(text, "--file reads its texts")


def _read(texts: tuple[str, ...], file: Path | None) -> TextSource:
    if file is not None:
        return table_of(file)
    if texts:
        table = Table(COMMAND_LINE, {"text": list(texts)}, places=[COMMAND_LINE] * len(texts))
        is_table = False
    else:  # as bytes: under LC_ALL=C the text stream accepts what is not UTF-8
        where = "standard input"
        table, is_table = texts_table(table_or_lines(sys.stdin.buffer.read(), where), where)
    return TextSource(table, listed=not is_table)
