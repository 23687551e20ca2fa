"""``auxlearn predict``: classification of texts by a finished run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from auxlearn.commands.help import Example, ExampleCommand
from auxlearn.errors import DataError
from auxlearn.local_files import read_file, user_path
from auxlearn.wording import printable, shorten, some_of

EXAMPLES = (
    Example(
        "Texts on the command line",
        'auxlearn predict runs/reviews "A warm and funny film." "Not worth the time."',
    ),
    Example(
        "A file with one text per line; all probabilities, as JSON lines",
        "auxlearn predict runs/reviews --file texts.txt --json",
    ),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="File of texts: a table (.jsonl, .csv, ...) with a column text and optionally text_pair, "
    "or one text per line.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print all class probabilities as JSON lines."
)
def command(run: Path, texts: tuple[str, ...], file: Path | None, as_json: bool) -> None:
    """Classify texts with the finished run in folder RUN.

    Texts are read from the command line, from a file, or from standard input, one per line. The
    output has one line per text: label, probability and text, separated by tabs; a tab, line break
    or control character in a text is written as an escape such as \\t.
    """
    rows = _read(texts, file)

    from auxlearn.evaluation.classifier import Classifier

    classifier = Classifier.of_run(run)
    names = classifier.label_names
    pairs = [pair for _, pair in rows if pair is not None]
    found = classifier.probabilities([text for text, _ in rows], pairs or None)
    for (text, pair), probabilities in zip(rows, found, strict=True):
        best = int(probabilities.argmax())
        if as_json:
            record: dict[str, object] = {"text": text}
            if pair is not None:
                record["text_pair"] = pair
            record["label"] = names[best]
            record["probabilities"] = dict(zip(names, probabilities.tolist(), strict=True))
            click.echo(json.dumps(record, ensure_ascii=False))
        else:
            shown = "\t".join(printable(part) for part in (text, pair) if part is not None)
            click.echo(f"{printable(names[best])}\t{probabilities[best]:.4f}\t{shown}")


def _read(texts: tuple[str, ...], file: Path | None) -> list[tuple[str, str | None]]:
    """Return the texts, each with the second text of its pair or ``None``.

    Raises:
        DataError: There are no texts, they come from two sources, or a line is invalid.
    """
    if texts and file is not None:
        raise DataError("texts are given both on the command line and by --file: use one of them")
    if texts:
        rows: list[tuple[str, str | None]] = [(text, None) for text in texts]
        where = "the command line"
        for text in texts:
            _check_text(text, where)
    elif file is not None:
        rows, where = _read_file(file), str(file)
    else:
        if sys.stdin.isatty():
            raise DataError(
                "no texts: give them after RUN, by --file, or on standard input, one per line"
            )
        where = "standard input"
        # As bytes: under LC_ALL=C the text stream accepts what is not UTF-8.
        rows = _read_lines(sys.stdin.buffer.read(), where)
    if not rows:
        raise DataError(f"{where} contains no text")
    return rows


def _read_file(file: Path) -> list[tuple[str, str | None]]:
    from auxlearn.data.table_files import FORMATS, LARGEST_FILE, read_table

    file = user_path(file, DataError)
    if file.suffix.lower() not in FORMATS:
        return _read_lines(read_file(file, LARGEST_FILE, DataError), str(file))
    table = read_table(file)
    if "text" not in table.columns:
        raise DataError(f"{file} has no column 'text': its columns are {some_of(table.columns)}")
    texts = table.columns["text"]
    pairs = table.columns.get("text_pair", [None] * len(texts))
    return [
        _checked(text, pair, "text_pair" in table.columns, table.place(row))
        for row, (text, pair) in enumerate(zip(texts, pairs, strict=True))
    ]


def _read_lines(content: bytes, where: str) -> list[tuple[str, str | None]]:
    """Return one text per line without blank lines; JSON if the first line is a JSON object."""
    try:
        lines = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        wrong = content[: error.start].count(b"\n") + 1
        raise DataError(f"{where}:{wrong}: not UTF-8: save the texts as UTF-8") from None
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered or not isinstance(_json(numbered[0][1]), dict):
        for number, line in numbered:
            _check_text(line, f"{where}:{number}")
        return [(line, None) for _, line in numbered]
    rows = []
    for number, line in numbered:
        record = _json(line)
        if not isinstance(record, dict):
            raise DataError(f"{where}:{number}: not a JSON object, but the first line is one")
        pair = record.get("text_pair")
        rows.append(_checked(record.get("text"), pair, "text_pair" in record, f"{where}:{number}"))
    if len({pair is None for _, pair in rows}) > 1:
        raise DataError(
            f"{where}: only some lines have a 'text_pair': give it in all lines or in none"
        )
    return rows


def _json(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _checked(text: object, pair: object, paired: bool, place: str) -> tuple[str, str | None]:
    for key, value in (("text", text), *([("text_pair", pair)] if paired else [])):
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{place}: '{key}' is empty or not a text")
        _check_text(value, place)
    return text, pair  # type: ignore[return-value]


def _check_text(text: str, place: str) -> None:
    """Check that a text can be classified.

    Raises:
        DataError: It is empty, too long, or was not UTF-8.
    """
    from auxlearn.data.examples import LONGEST_TEXT, is_blank

    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{place} contains a text that is not UTF-8: {shorten(text)}") from None
    if is_blank(text):
        raise DataError(f"{place} contains an empty text: remove it")
    if len(text) > LONGEST_TEXT:
        raise DataError(
            f"{place}: a text of {len(text):,} characters, of which at most {LONGEST_TEXT:,} are "
            "read: divide it"
        )
