"""``auxlearn score``: how likely a masked language model finds tokens, words and texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import (
    PATH,
    Example,
    ExampleCommand,
    setting_options,
)

EXAMPLES = (
    Example(
        "Every token of a file of texts: log-probability and entropy",
        "auxlearn score --encoder tiny --file texts.txt --output scores.csv",
    ),
    Example(
        "Which of two sentences a model prefers",
        'auxlearn score --encoder tiny --level text "The keys are here." "The keys is here."',
    ),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option(
    "--encoder",
    required=True,
    help="Encoder with a masked-language-model head: short name, folder, or hub id.",
)
@click.option(
    "--file",
    type=PATH,
    help="File of texts: a table (.jsonl, .csv, ...) or one text per line.",
)
@click.option("--text-column", default="text", show_default=True, help="Column of the text.")
@click.option(
    "--level",
    type=click.Choice(["token", "word", "text"]),
    default="token",
    show_default=True,
    help="What a row of the output is.",
)
@click.option(
    "--passes",
    type=int,
    help="Masked copies of each text; by default one per token, which is exact.",
)
@setting_options(
    "max_length",
    max_length="Maximum number of tokens per text, special tokens included; the rest is not "
    "scored.",
)
@click.option(
    "--output",
    type=PATH,
    help="File for the scores: .csv, .tsv, .jsonl or .parquet; by default JSON lines are printed.",
)
def command(
    texts: tuple[str, ...],
    encoder: str,
    file: Path | None,
    output: Path | None,
    **options: Any,
) -> None:
    """Score TEXTs by the pseudo-log-likelihood of a masked language model.

    The probability of a token is read where the token and the later tokens of its word are masked
    (PLL-word-l2r). Words and texts are sums over their tokens. Everything is in nats.
    """
    from auxlearn.commands.console import ConsoleReporter
    from auxlearn.core.errors import DataError

    if bool(texts) == (file is not None):
        problem = "texts are given twice" if texts else "score needs texts"
        raise DataError(f"{problem}: give them either on the command line or by --file")

    from auxlearn import api

    frame = api.score(
        encoder, file or list(texts), output=output, reporter=ConsoleReporter(), **options
    )
    if output is not None:
        click.echo(f"{len(frame)} rows: {output}")
        return
    for row in frame.to_dict("records"):
        click.echo(json.dumps(row, ensure_ascii=False))
