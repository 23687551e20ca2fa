"""``auxlearn perturbations``: the training texts as Mask-tuning has perturbed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, json_option, print_json

#: Shares of a table of tokens and of one of examples, in the order of its columns.
TOKEN_SHARES = ("same", "other", "unknown", "changed_texts", "pos_agreement")
EXAMPLE_SHARES = ("same", "plausible", "other", "unknown")


@click.command()
@click.argument("run", type=PATH)
@click.option(
    "--texts", type=click.IntRange(0), default=5, show_default=True, help="Number of texts to show."
)
@click.option(
    "--output",
    metavar="FOLDER",
    help="Folder for statistics and texts as JSON, and all substituted tokens as CSV.",
)
@json_option("all results")
def command(run: Path, texts: int, output: str | None, as_json: bool) -> None:
    """Show the tokens that Mask-tuning substituted in the training texts of the finished run RUN.

    Statistics are shown beside those of the pretrained encoder for the same masked tokens: of
    tokens by epoch, and of whole examples over all epochs, as Mask-tuning's section V counts them.
    Parts of speech are compared if spaCy (with en_core_web_sm), NLTK (with its tagger) or TextBlob
    is installed.

    \b
    Examples:
        # Statistics by epoch, and ten texts with what was substituted
        auxlearn perturbations runs/mask_tuning --texts 10
        # The same as tables in a folder: JSON and CSV
        auxlearn perturbations runs/mask_tuning --output perturbations
    """
    from auxlearn.mask_analysis.perturbations import perturbations
    from auxlearn.results.console import print_results
    from auxlearn.results.tables import text_table

    report = perturbations(run, texts=texts, output=output)
    if as_json:
        print_json(report.to_dict())
        return
    heads = ["epoch, encoder", "masked", "same", "another", "unknown", "texts changed", "POS kept"]
    by_epoch = [
        [f"{row['epoch']}, {row['encoder']}", str(row["masked"]), *_percent(row, TOKEN_SHARES)]
        for row in report.statistics
    ]
    print_results(text_table(heads, by_epoch), "")
    heads = ["examples, all epochs", "examples", "same", "POS kept once", "another", "unknown"]
    whole = [
        [row["encoder"], str(row["examples"]), *_percent(row, EXAMPLE_SHARES)]
        for row in report.examples
    ]
    print_results(text_table(heads, whole), *report.notes)
    last = None
    for text in report.texts:
        if text["example"] != last:
            print_results(f"\nexample {text['example']}: {text['text']}")
            last = text["example"]
        pairs = ", ".join(f"[{old}] => [{new}]" for old, new in text["substitutions"])
        print_results(f"  epoch {text['epoch']}: {pairs or 'nothing masked'}")
    if output is not None:
        print_results("", f"2 files: {output}")


def _percent(row: Mapping[str, Any], shares: Sequence[str]) -> list[str]:
    return ["-" if row[share] is None else f"{row[share]:.1%}" for share in shares]
