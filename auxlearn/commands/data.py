"""``auxlearn data check``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from auxlearn.data.audit import Audit


@click.group()
def command() -> None:
    """Look through a data set before training on it."""


@command.command()
@click.argument("dataset")
@click.option("--text-column", help="Column with the text; by default text.")
@click.option("--text-pair-column", help="Column with the second text; by default text_pair.")
@click.option("--label-column", help="Column with the label; by default label.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def check(
    dataset: str,
    text_column: str | None,
    text_pair_column: str | None,
    label_column: str | None,
    as_json: bool,
) -> None:
    """Say what DATASET holds, and what makes figures on it doubtful.

    DATASET is a folder, the name of a data-set card, or a hub id.
    """
    from auxlearn.commands.console import print_results
    from auxlearn.data.audit import audit
    from auxlearn.data.examples import ColumnNames
    from auxlearn.data.load import load_dataset
    from auxlearn.reporting.tables import console_table

    names = {"text": text_column, "text_pair": text_pair_column, "label": label_column}
    given = {role: name for role, name in names.items() if name is not None}
    found = load_dataset(dataset, columns=ColumnNames(**given) if given else None)
    report = audit(found)
    if as_json:
        content = report.to_dict() | {
            "fingerprint": found.fingerprint,
            "metric": found.metric,
            "notes": list(found.notes),
        }
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    complaints = report.warnings() or ["nothing to complain about"]
    print_results(
        f"{found.name}, fingerprint {found.fingerprint}",
        "",
        console_table(*_labels(report)),
        "",
        console_table(*_texts(report)),
        "",
        *(f"- {line}" for line in (*found.notes, *complaints)),
    )


def _labels(report: Audit) -> tuple[list[str], list[list[str]]]:
    """Rows by label and split."""
    labels = dict.fromkeys(label for split in report.splits.values() for label in split.labels)
    rows = [
        [label, *(str(split.labels.get(label, "-")) for split in report.splits.values())]
        for label in labels
    ]
    rows.append(["all rows", *(str(split.examples) for split in report.splits.values())])
    return ["label", *report.splits], rows


def _texts(report: Audit) -> tuple[list[str], list[list[str]]]:
    """What is wrong with the texts, by split."""
    heads = ["split", "empty", "repeated", "in train", "in train, letters and digits only"]
    rows = []
    for name, split in report.splits.items():
        leaked = (split.in_train_exact, split.in_train_normalised)
        shown = ["-", "-"] if name == "train" else [str(count) for count in leaked]
        rows.append([name, str(split.empty_texts), str(split.duplicates), *shown])
    return heads, rows
