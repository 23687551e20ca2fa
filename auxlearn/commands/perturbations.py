"""``auxlearn perturbations``: the training texts as Mask-tuning has perturbed them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from auxlearn.commands.help import Example, ExampleCommand

if TYPE_CHECKING:
    from auxlearn.evaluation.perturbations import Diversity
    from auxlearn.results.perturbation_log import PerturbationRecord


EXAMPLES = (
    Example(
        "Statistics by epoch, and ten texts before and after",
        "auxlearn perturbations runs/mask_tuning --texts 10",
    ),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--texts",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Number of texts to show.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def command(run: Path, texts: int, as_json: bool) -> None:
    """Show the tokens that Mask-tuning substituted in the training texts of the finished run RUN.

    Statistics by epoch are shown beside those of the pretrained encoder for the same masked
    tokens. Parts of speech are compared if spaCy (with en_core_web_sm) or NLTK (with its tagger) is
    installed.
    """
    from auxlearn.commands.console import output
    from auxlearn.encoders.load import load_classifier, load_encoder
    from auxlearn.errors import EncoderError
    from auxlearn.evaluation.classifier import check_finished
    from auxlearn.evaluation.perturbations import (
        by_epoch,
        diversity,
        find_tagger,
        marked,
        predict_replacements,
    )
    from auxlearn.results.folder import RunFolder
    from auxlearn.results.perturbation_log import read_perturbations
    from auxlearn.results.record import RunResults

    check_finished(run)
    records = read_perturbations(run)
    folder = RunFolder(run)
    config = folder.read_config()
    _, tokenizer = load_classifier(folder.model_path)
    tagger = find_tagger()
    notes = [
        f"parts of speech by {tagger[1]}"
        if tagger
        else "no part-of-speech agreement: neither spaCy with en_core_web_sm nor NLTK with its "
        "tagger is installed"
    ]
    try:
        labels = RunResults.load(run).dataset.label_names
        plain = predict_replacements(load_encoder(config.encoder, labels, config.seed), records)
    except EncoderError as error:
        plain = []
        notes.append(f"no statistics of the pretrained encoder: {error}")
    tag = tagger[0] if tagger else None
    statistics: list[tuple[int, str, Diversity]] = []
    pretrained = by_epoch(plain)
    for epoch, found in by_epoch(records).items():
        statistics.append((epoch, "this run", diversity(found, tokenizer, tag)))
        if plain:
            statistics.append((epoch, "pretrained", diversity(pretrained[epoch], tokenizer, tag)))
    shown = _choose(records, texts)
    if as_json:
        content = {
            "statistics": [
                {"epoch": epoch, "encoder": encoder, **asdict(one)}
                for epoch, encoder, one in statistics
            ],
            "texts": [
                dict(zip(("example", "epoch", "original", "perturbed"), line, strict=True))
                for line in ((one.example, one.epoch, *marked(one, tokenizer)) for one in shown)
            ],
            "notes": notes,
        }
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    console = output()
    console.print(_statistics_table(statistics))
    for line in notes:
        console.print(line, soft_wrap=True, markup=False)
    last = None
    for one in shown:
        before, after = marked(one, tokenizer)
        if one.example != last:
            console.print(f"\nexample {one.example}", markup=False)
            last = one.example
        console.print(f"  epoch {one.epoch}  {before}", soft_wrap=True, markup=False)
        console.print(f"        ->  {after}", soft_wrap=True, markup=False)


def _choose(records: list[PerturbationRecord], texts: int) -> list[PerturbationRecord]:
    """Return every perturbation of the first texts of the sample."""
    rows = sorted({record.example for record in records})[:texts]
    chosen = [record for record in records if record.example in rows]
    return sorted(chosen, key=lambda record: (record.example, record.step))


def _statistics_table(statistics: list[tuple[int, str, Diversity]]) -> Any:
    from auxlearn.reporting.tables import console_table

    heads = ["epoch, encoder", "masked", "same", "another", "unknown", "texts changed", "POS kept"]
    rows = [
        [
            f"{epoch}, {encoder}",
            str(one.masked),
            f"{one.same:.1%}",
            f"{one.other:.1%}",
            f"{one.unknown:.1%}",
            f"{one.changed_texts:.1%}",
            "-" if one.pos_agreement is None else f"{one.pos_agreement:.1%}",
        ]
        for epoch, encoder, one in statistics
    ]
    return console_table(heads, rows)
