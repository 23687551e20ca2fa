"""``auxlearn score``: how likely a masked language model finds tokens, words and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, options_of, print_json
from auxlearn.core.errors import DataError
from auxlearn.evaluation.predict import refuse_file
from auxlearn.evaluation.score import score


@click.command()
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option(
    "--file",
    type=PATH,
    metavar="FILE",
    help="File of texts: a table (.jsonl, .csv, ...) or one text per line.",
)
@options_of(score, "encoder", "text_column", "level", "passes", "max_length", "output")
def command(
    texts: tuple[str, ...], file: Path | None, output: Path | None = None, **options: Any
) -> None:
    """Score TEXTs by the pseudo-log-likelihood of a masked language model.

    The probability of a token is read where the token and the later tokens of its word are masked
    (PLL-word-l2r). The log-probability of a word or text is the sum over its tokens, the entropy
    their mean; both are in nats.

    \b
    Examples:
        # Every token of a file of texts: log-probability and entropy
        auxlearn score --encoder tiny --file texts.txt --output scores.csv
        # Which of two sentences a model prefers
        auxlearn score --encoder tiny --level text "The keys are here." "The keys is here."
    """
    if bool(texts) == (file is not None):
        problem = "texts are given twice" if texts else "score needs texts"
        raise DataError(f"{problem}: give them either on the command line or by --file")
    for text in texts:
        refuse_file(text, "--file reads its texts")

    from auxlearn.results.console import ConsoleReporter

    frame = score(texts=file or list(texts), output=output, reporter=ConsoleReporter(), **options)
    if output is not None:
        click.echo(f"{len(frame)} rows: {output}")
        return
    for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
        print_json(row, indent=None)
