"""``auxlearn perturbations``: the training texts as Mask-tuning has perturbed them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from auxlearn.commands.options import PATH, ExampleCommand, json_option, print_json

if TYPE_CHECKING:
    from auxlearn.mask_analysis.perturbations import Diversity, Outcomes


@click.command(cls=ExampleCommand)
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

    Examples:
        # Statistics by epoch, and ten texts with what was substituted
        auxlearn perturbations runs/mask_tuning --texts 10
        # The same as tables in a folder: JSON and CSV
        auxlearn perturbations runs/mask_tuning --output perturbations
    """
    from auxlearn.mask_analysis.perturbations import perturbations
    from auxlearn.results import console

    report = perturbations(run, texts=texts, output=output)
    if as_json:
        print_json(report.to_dict())
        return
    console.print_results(
        _statistics_table(report.statistics), "", _outcomes_table(report.examples), *report.notes
    )
    last = None
    for text in report.texts:
        if text["example"] != last:
            console.print_results(f"\nexample {text['example']}: {text['text']}")
            last = text["example"]
        pairs = ", ".join(f"[{old}] => [{new}]" for old, new in text["substitutions"])
        console.print_results(f"  epoch {text['epoch']}: {pairs or 'nothing masked'}")
    if output is not None:
        console.print_results("", f"2 files: {output}")


def _outcomes_table(whole: dict[str, Outcomes]) -> Any:
    from auxlearn.results.tables import Grid

    heads = ["examples, all epochs", "examples", "same", "POS kept once", "another", "unknown"]
    rows = [
        [encoder, str(one.examples), *_percent(one.same, one.plausible, one.other, one.unknown)]
        for encoder, one in whole.items()
    ]
    return Grid.of(heads, rows)


def _statistics_table(statistics: Sequence[tuple[int, str, Diversity]]) -> Any:
    from auxlearn.results.tables import Grid

    heads = ["epoch, encoder", "masked", "same", "another", "unknown", "texts changed", "POS kept"]
    rows = [
        [
            *(f"{epoch}, {encoder}", str(one.masked)),
            *_percent(one.same, one.other, one.unknown, one.changed_texts, one.pos_agreement),
        ]
        for epoch, encoder, one in statistics
    ]
    return Grid.of(heads, rows)


def _percent(*shares: float | None) -> list[str]:
    return ["-" if share is None else f"{share:.1%}" for share in shares]
