"""``auxlearn data``: an audit of a data set, and the folder of one that its owner ships."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from auxlearn.commands.options import json_option, label_map, options_of, print_json
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, printable, shorten
from auxlearn.core.files import user_path
from auxlearn.core.settings import Columns
from auxlearn.core.validation import validate

if TYPE_CHECKING:
    from auxlearn.data.audit import Audit, Lengths
    from auxlearn.data.dataset import TextDataset


#: Labels that are listed one by one; of more, the most and the least frequent ones of train.
LISTED_LABELS, MOST_FREQUENT, LEAST_FREQUENT = 30, 10, 5


@click.group()
def command() -> None:
    """Audit a data set before training on it, or make the folder of a published one."""


@command.command()
@click.argument("name")
@click.option(
    "--from", "source", required=True, help="File or folder that the owner ships, unpacked."
)
@click.option("--output", required=True, help="Folder to write, data/NAME in the papers' configs.")
def get(name: str, source: str, output: str) -> None:
    """Make the folder of the data set NAME, a card, of what its owner ships.

    It is for sets that the hub has no good copy of; `auxlearn data check NAME` says what to
    download.

    \b
    Examples:
        # HANS, of the file of its authors
        auxlearn data get hans --from heuristics_evaluation_set.txt --output data/hans
    """
    from auxlearn.data.get import make_folder
    from auxlearn.results.console import print_results
    from auxlearn.results.outputs import check_output_folder

    folder = user_path(output)
    check_output_folder(folder)
    print_results(*make_folder(name, user_path(source), folder))


@command.command()
@click.argument("dataset")
@options_of(
    RunConfig,
    *Columns.model_fields,
    "max_length",
    max_length="Tokens that texts are truncated to (with --encoder).",
)
@click.option(
    "--encoder",
    help="Count the lengths of texts in tokens of this encoder, not in words, and the texts that "
    "are truncated.",
)
@json_option("the whole audit")
def check(dataset: str, encoder: str | None, as_json: bool, **options: Any) -> None:
    """Count the labels of DATASET, measure its texts and report what would bias results on it.

    Reported are repeated texts, texts with contradictory labels, and texts of dev and test that
    occur in train. DATASET is a folder, the name of a data-set card, or a Hugging Face hub id.

    \b
    Examples:
        # Audit a folder of train, dev and test files
        auxlearn data check data/reviews
        # Other column names; the whole audit as JSON
        auxlearn data check data/columns --text-column body --json
        # Labels of the files by the classes that they stand for
        auxlearn data check data/renamed --labels method=approach --labels result=finding
        # Lengths in tokens of an encoder, and how many texts are truncated
        auxlearn data check data/reviews --encoder tiny --max-length 64
    """
    from auxlearn.data.audit import audit
    from auxlearn.data.load import load_dataset
    from auxlearn.results.console import print_results
    from auxlearn.results.tables import text_table

    if "labels" in options:
        options["labels"] = label_map(options["labels"])
    settings = validate(RunConfig, options, "command line")
    if encoder is None and "max_length" in options:
        raise ConfigError("--max-length has no effect on lengths in words: name an --encoder")
    loaded = load_dataset(dataset, columns=settings.columns)
    report = audit(loaded)
    lengths = _measure(loaded, encoder, settings.max_length)
    if as_json:
        further = {
            "fingerprint": loaded.fingerprint,
            "metric": loaded.metric or loaded.kind.default_metric(loaded.label_names),
            "notes": list(loaded.notes),
            "lengths": {name: asdict(length) for name, length in lengths.items()},
        }
        print_json(asdict(report) | further)
        return
    print_results(f"{printable(loaded.name)}, fingerprint {loaded.fingerprint}", "")
    for heads, rows in (_labels(report), _texts(report), _length_table(lengths)):
        print_results(text_table(heads, rows), "")
    unknown = [length.unknown for length in lengths.values() if length.unknown]
    how = f"of the texts are longer than the {settings.max_length} of max_length and are cut"
    shares = {name: length.truncated for name, length in lengths.items() if length.truncated}
    cut = [f"{name}: {share:.1%} {how}" for name, share in shares.items()]
    lines = [*loaded.notes, *report.warnings(), *unknown, *cut] or ["no problems found"]
    print_results(*(f"- {line}" for line in lines))


def _labels(report: Audit) -> tuple[list[str], list[list[str]]]:
    """Return the number of examples by label and split, as table cells."""
    splits = report.splits.values()
    labels = list(dict.fromkeys(label for split in splits for label in split.labels))
    many = len(labels) > LISTED_LABELS
    if many:
        first = next(iter(splits)).labels
        labels.sort(key=lambda label: -first.get(label, 0))
    rows = [
        [shorten(label), *(str(split.labels.get(label, "-")) for split in splits)]
        for label in labels
    ]
    if many:
        others = f"({len(labels) - MOST_FREQUENT - LEAST_FREQUENT:,} others)"
        rows[MOST_FREQUENT:-LEAST_FREQUENT] = [[others, *("" for _ in splits)]]
    rows.append(["all examples", *(str(split.examples) for split in splits)])
    return ["label", *report.splits], rows


def _measure(dataset: TextDataset, encoder: str | None, max_length: int) -> dict[str, Lengths]:
    """Return the lengths of the texts of each split, in tokens if an encoder is given."""
    from auxlearn.data.audit import token_lengths, word_lengths

    splits = dataset.everything
    if encoder is None:
        return {name: word_lengths(split) for name, split in splits.items()}
    from auxlearn.encoders.load import check_capacity
    from auxlearn.encoders.tokenizer import load_tokenizer

    check_capacity(encoder, max_length, frozen_layers=0)
    tokenizer = load_tokenizer(encoder)
    return {name: token_lengths(tokenizer, split, max_length) for name, split in splits.items()}


def _length_table(lengths: dict[str, Lengths]) -> tuple[list[str], list[list[str]]]:
    """Return the lengths of the texts by split, as table cells."""
    first = next(iter(lengths.values()))
    heads = [f"{first.unit} per text", "mean", "median", "95%", "longest"]
    heads += [] if first.truncated is None else ["truncated"]
    rows = []
    for name, length in lengths.items():
        row = [name, f"{length.mean:.1f}", f"{length.median:g}", f"{length.percentile_95:.0f}"]
        row.append(f"{length.longest:,}")
        rows.append(row if length.truncated is None else [*row, f"{length.truncated:.1%}"])
    return heads, rows


def _texts(report: Audit) -> tuple[list[str], list[list[str]]]:
    """Return the number of repeated and leaked texts by split, as table cells."""
    rows = []
    for name, split in report.splits.items():
        leaked = [str(split.in_train_exact), str(split.in_train_normalised)]
        rows.append([name, str(split.duplicates), *(["-", "-"] if name == "train" else leaked)])
    return ["split", "repeated", "in train", "in train, letters and digits only"], rows
