"""``auxlearn predict``: classification of texts by a finished run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from auxlearn.commands.help import Example, ExampleCommand
from auxlearn.errors import DataError

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
    output has one line per text: label, probability and text, separated by tabs.
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
            shown = text if pair is None else f"{text}\t{pair}"
            click.echo(f"{names[best]}\t{probabilities[best]:.4f}\t{shown}")


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
    elif file is not None:
        rows, where = _read_file(file), str(file)
    else:
        if sys.stdin.isatty():
            raise DataError(
                "no texts: give them after RUN, by --file, or on standard input, one per line"
            )
        rows, where = _read_lines(sys.stdin, "standard input"), "standard input"
    if not rows:
        raise DataError(f"{where} contains no text")
    if any(not text.strip() for text, _ in rows):
        raise DataError(f"{where} contains an empty text: remove it")
    return rows


def _read_file(file: Path) -> list[tuple[str, str | None]]:
    from auxlearn.data.tables import FORMATS, read_table

    if not file.is_file():
        raise DataError(f"there is no file {file}: check the path")
    if file.suffix.lower() not in FORMATS:
        with file.open(encoding="utf-8") as lines:
            return _read_lines(lines, str(file))
    table = read_table(file)
    if "text" not in table.columns:
        raise DataError(f"{file} has no column 'text': its columns are {', '.join(table.columns)}")
    texts = table.columns["text"]
    pairs = table.columns.get("text_pair", [None] * len(texts))
    return [
        _checked(text, pair, "text_pair" in table.columns, table.place(row))
        for row, (text, pair) in enumerate(zip(texts, pairs, strict=True))
    ]


def _read_lines(lines: Iterable[str], where: str) -> list[tuple[str, str | None]]:
    """Return one text per line without blank lines; JSON if the first line is a JSON object."""
    try:
        numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    except UnicodeDecodeError:
        raise DataError(f"{where} is not UTF-8 text: save it as UTF-8") from None
    if not numbered or not isinstance(_json(numbered[0][1]), dict):
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
    except ValueError:
        return None


def _checked(text: object, pair: object, paired: bool, place: str) -> tuple[str, str | None]:
    for key, value in (("text", text), *([("text_pair", pair)] if paired else [])):
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{place}: '{key}' is empty or not a text")
    return text, pair  # type: ignore[return-value]
