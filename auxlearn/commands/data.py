"""``auxlearn data check``: an audit of a data set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from auxlearn.commands.help import Example, ExampleCommand

if TYPE_CHECKING:
    from auxlearn.data.audit import Audit


EXAMPLES = (
    Example("Audit a folder of train, dev and test files", "auxlearn data check data/reviews"),
    Example(
        "Other column names; the whole audit as JSON",
        "auxlearn data check data/columns --text-column body --json",
    ),
)


@click.group()
def command() -> None:
    """Audit a data set before training on it."""


@command.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("dataset")
@click.option("--text-column", help="Column of the text; by default 'text'.")
@click.option(
    "--text-pair-column", help="Column of the second text of a pair; by default 'text_pair'."
)
@click.option("--label-column", help="Column of the label; by default 'label'.")
@click.option(
    "--keep-null-labels",
    is_flag=True,
    help="Accept labels such as nan, None, null and NA as names of classes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole audit as JSON.")
def check(
    dataset: str,
    text_column: str | None,
    text_pair_column: str | None,
    label_column: str | None,
    keep_null_labels: bool,
    as_json: bool,
) -> None:
    """Count the labels of DATASET and report what would bias results on it.

    Reported are empty and repeated texts, texts with contradictory labels, and texts of dev and
    test that occur in train. DATASET is a folder, the name of a data-set card, or a Hugging Face
    hub id.
    """
    from auxlearn.commands.console import print_results
    from auxlearn.data.audit import audit
    from auxlearn.data.examples import column_names
    from auxlearn.data.load import load_dataset
    from auxlearn.reporting.tables import console_table

    names = {"text": text_column, "text_pair": text_pair_column, "label": label_column}
    found = load_dataset(dataset, columns=column_names(names, keep_null_labels))
    report = audit(found)
    if as_json:
        content = report.to_dict() | {
            "fingerprint": found.fingerprint,
            "metric": found.metric,
            "notes": list(found.notes),
        }
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    warnings = report.warnings() or ["no problems found"]
    print_results(
        f"{found.name}, fingerprint {found.fingerprint}",
        "",
        console_table(*_labels(report)),
        "",
        console_table(*_texts(report)),
        "",
        *(f"- {line}" for line in (*found.notes, *warnings)),
    )


def _labels(report: Audit) -> tuple[list[str], list[list[str]]]:
    """Return the number of examples by label and split, as table cells."""
    labels = dict.fromkeys(label for split in report.splits.values() for label in split.labels)
    rows = [
        [label, *(str(split.labels.get(label, "-")) for split in report.splits.values())]
        for label in labels
    ]
    rows.append(["all examples", *(str(split.examples) for split in report.splits.values())])
    return ["label", *report.splits], rows


def _texts(report: Audit) -> tuple[list[str], list[list[str]]]:
    """Return the number of empty, repeated and leaked texts by split, as table cells."""
    heads = ["split", "empty", "repeated", "in train", "in train, letters and digits only"]
    rows = []
    for name, split in report.splits.items():
        leaked = (split.in_train_exact, split.in_train_normalised)
        shown = ["-", "-"] if name == "train" else [str(count) for count in leaked]
        rows.append([name, str(split.empty_texts), str(split.duplicates), *shown])
    return heads, rows
