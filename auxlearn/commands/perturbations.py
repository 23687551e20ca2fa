"""``auxlearn perturbations``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from auxlearn.evaluation.perturbations import Diversity
    from auxlearn.results.perturbation_log import Perturbed


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--texts", type=click.IntRange(0), default=5, show_default=True, help="Texts to show."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(run: Path, texts: int, as_json: bool) -> None:
    """Show what Mask-tuning put into the training texts of the finished run in folder RUN.

    Figures by epoch stand beside what the untouched encoder puts in for the same masks. Parts of
    speech are compared if spaCy (with en_core_web_sm) or NLTK (with its tagger) is installed.
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
        plain_predictions,
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
    remarks = [
        f"parts of speech by {tagger[1]}"
        if tagger
        else "no part-of-speech figures: neither spaCy with en_core_web_sm nor NLTK with its "
        "tagger is installed"
    ]
    try:
        labels = RunResults.load(run).dataset.label_names
        plain = plain_predictions(load_encoder(config.encoder, labels, config.seed), records)
    except EncoderError as error:
        plain = []
        remarks.append(f"no figures of the untouched encoder: {error}")
    tag = tagger[0] if tagger else None
    figures: list[tuple[int, str, Diversity]] = []
    untouched = by_epoch(plain)
    for epoch, found in by_epoch(records).items():
        figures.append((epoch, "this run", diversity(found, tokenizer, tag)))
        if plain:
            figures.append((epoch, "untouched", diversity(untouched[epoch], tokenizer, tag)))
    shown = _choose(records, texts)
    if as_json:
        content = {
            "figures": [
                {"epoch": epoch, "encoder": encoder, **asdict(one)}
                for epoch, encoder, one in figures
            ],
            "texts": [
                dict(zip(("row", "epoch", "original", "perturbed"), line, strict=True))
                for line in ((one.row, one.epoch, *marked(one, tokenizer)) for one in shown)
            ],
            "remarks": remarks,
        }
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    console = output()
    console.print(_figures_table(figures))
    for line in remarks:
        console.print(line, soft_wrap=True, markup=False)
    last = None
    for one in shown:
        before, after = marked(one, tokenizer)
        if one.row != last:
            console.print(f"\ntext {one.row}", markup=False)
            last = one.row
        console.print(f"  epoch {one.epoch}  {before}", soft_wrap=True, markup=False)
        console.print(f"        ->  {after}", soft_wrap=True, markup=False)


def _choose(records: list[Perturbed], texts: int) -> list[Perturbed]:
    """Return all that happened to the first texts of the sample."""
    rows = sorted({record.row for record in records})[:texts]
    chosen = [record for record in records if record.row in rows]
    return sorted(chosen, key=lambda record: (record.row, record.step))


def _figures_table(figures: list[tuple[int, str, Diversity]]) -> Any:
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
        for epoch, encoder, one in figures
    ]
    return console_table(heads, rows)
