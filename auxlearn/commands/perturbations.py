"""``auxlearn perturbations``: the training texts as Mask-tuning has perturbed them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from auxlearn.commands.help import Example, ExampleCommand

if TYPE_CHECKING:
    from auxlearn.evaluation.perturbations import Diversity, Outcomes
    from auxlearn.results.perturbation_log import PerturbationRecord


EXAMPLES = (
    Example(
        "Statistics by epoch, and ten texts with what was substituted",
        "auxlearn perturbations runs/mask_tuning --texts 10",
    ),
    Example(
        "The same as tables in a folder: JSON and CSV",
        "auxlearn perturbations runs/mask_tuning --output perturbations",
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
@click.option(
    "--output",
    metavar="FOLDER",
    help="Folder for statistics and texts as JSON, and all substituted tokens as CSV.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def command(run: Path, texts: int, output: str | None, as_json: bool) -> None:
    """Show the tokens that Mask-tuning substituted in the training texts of the finished run RUN.

    Statistics are shown beside those of the pretrained encoder for the same masked tokens: of
    tokens by epoch, and of whole examples over all epochs, as Mask-tuning's section V counts them.
    Parts of speech are compared if spaCy (with en_core_web_sm), NLTK (with its tagger) or TextBlob
    is installed.
    """
    from auxlearn.commands import console
    from auxlearn.encoders.load import load_classifier
    from auxlearn.errors import EncoderError
    from auxlearn.evaluation.classifier import check_finished
    from auxlearn.evaluation.perturbations import (
        by_epoch,
        diversity,
        outcomes,
        predict_replacements,
    )
    from auxlearn.evaluation.taggers import ADVICE, find_tagger
    from auxlearn.files import check_output, write_json, write_text
    from auxlearn.local_files import expand
    from auxlearn.results.folder import RunFolder
    from auxlearn.results.perturbation_log import read_perturbations
    from auxlearn.results.record import RunResults
    from auxlearn.training.continuation import load_initial_encoder

    target = None if output is None else expand(output)
    if target is not None:
        check_output(target)
    check_finished(run)
    records = read_perturbations(run)
    folder = RunFolder(run)
    config = folder.read_config()
    _, tokenizer = load_classifier(folder.model_path)
    tagger = find_tagger()
    notes = [
        f"parts of speech by {tagger[1]}"
        if tagger
        else f"no part-of-speech agreement: there is no tagger; {ADVICE}"
    ]
    try:
        labels = RunResults.load(run).dataset.label_names
        plain = predict_replacements(load_initial_encoder(config, labels), records)
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
    whole = {"this run": outcomes(records, tokenizer, tag)}
    if plain:
        whole["pretrained"] = outcomes(plain, tokenizer, tag)
    shown = _choose(records, texts)
    content = {
        "statistics": [
            {"epoch": epoch, "encoder": encoder, **asdict(one)}
            for epoch, encoder, one in statistics
        ],
        "examples": [{"encoder": encoder, **asdict(one)} for encoder, one in whole.items()],
        "texts": [_text(one, tokenizer) for one in shown],
        "notes": notes,
    }
    if target is not None:
        write_json(target / "perturbations.json", content)
        write_text(target / "substitutions.csv", _csv(records, tokenizer))
    if as_json:
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    console.print_results(_statistics_table(statistics), "", _outcomes_table(whole), *notes)
    last = None
    for one in shown:
        text = _text(one, tokenizer)
        if one.example != last:
            console.print_results(f"\nexample {one.example}: {text['text']}")
            last = one.example
        pairs = ", ".join(f"[{old}] => [{new}]" for old, new in text["substitutions"])
        console.print_results(f"  epoch {one.epoch}: {pairs or 'nothing masked'}")
    if target is not None:
        console.print_results("", f"2 files: {target}")


def _choose(records: list[PerturbationRecord], texts: int) -> list[PerturbationRecord]:
    """Return every perturbation of the first texts of the sample."""
    rows = sorted({record.example for record in records})[:texts]
    chosen = [record for record in records if record.example in rows]
    return sorted(chosen, key=lambda record: (record.example, record.step))


def _text(record: PerturbationRecord, tokenizer: Any) -> dict[str, Any]:
    """Return a perturbed text with what was substituted."""
    from auxlearn.evaluation.perturbations import marked, substitutions

    before, after = marked(record, tokenizer)
    return {
        "example": record.example,
        "epoch": record.epoch,
        "text": tokenizer.decode(record.input_ids, skip_special_tokens=True),
        "original": before,
        "perturbed": after,
        "substitutions": substitutions(record, tokenizer),
    }


def _csv(records: list[PerturbationRecord], tokenizer: Any) -> str:
    """Return one line for each masked token."""
    from auxlearn.evaluation.perturbations import substitutions

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["example", "epoch", "step", "task", "position", "masked", "substituted"])
    for record in sorted(records, key=lambda record: (record.example, record.step)):
        pairs = zip(record.positions, substitutions(record, tokenizer), strict=True)
        for position, (old, new) in pairs:
            place = [record.example, record.epoch, record.step, record.task, position]
            writer.writerow([*place, old, new])
    return text.getvalue()


def _outcomes_table(whole: dict[str, Outcomes]) -> Any:
    from auxlearn.reporting.tables import console_table

    heads = ["examples, all epochs", "examples", "same", "POS kept once", "another", "unknown"]
    rows = [
        [
            encoder,
            str(one.examples),
            f"{one.same:.1%}",
            "-" if one.plausible is None else f"{one.plausible:.1%}",
            f"{one.other:.1%}",
            f"{one.unknown:.1%}",
        ]
        for encoder, one in whole.items()
    ]
    return console_table(heads, rows)


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
