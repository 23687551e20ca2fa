"""``auxlearn evaluate``: metrics of a finished run on data sets."""

from __future__ import annotations

import json
from pathlib import Path

import click

from auxlearn.commands.options import (
    LABELLED_COLUMNS,
    PATH,
    Example,
    ExampleCommand,
    label_map,
    setting_options,
)

EXAMPLES = (
    Example(
        "Metrics on the test splits of other data sets; all results as a JSON file too",
        "auxlearn evaluate runs/reviews --dataset data/reviews --dataset data/other_reviews "
        "--output scores.json",
    ),
    Example(
        "A set whose labels have other names",
        "auxlearn evaluate runs/reviews --dataset data/renamed --labels method=approach "
        "--labels result=finding",
    ),
    Example(
        "Another split and other column names, as JSON",
        "auxlearn evaluate runs/reviews --dataset data/columns --split dev --text-column body "
        "--json",
    ),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("run", type=PATH)
@click.option(
    "--dataset",
    "datasets",
    required=True,
    multiple=True,
    help="Data set: folder, name of a data-set card, or Hugging Face hub id; repeatable.",
)
@click.option("--split", default="test", show_default=True, help="Split to evaluate on.")
@setting_options(
    "labels",
    labels="Label of the data sets that a class of the run stands for; repeatable, also for one "
    "class. By default those of the run.",
)
@click.option(
    "--decision",
    type=click.Choice(["sum", "argmax"]),
    default="sum",
    show_default=True,
    help="How classes that stand for the same label are combined: their probabilities are added, "
    "or the most likely class counts.",
)
@setting_options(
    "unknown_labels",
    *LABELLED_COLUMNS,
    default="that of the run",
    unknown_labels="Labels of a set that the run does not know: they are an error, or their "
    "examples count as wrong; by default as in the run.",
)
@click.option("--output", type=PATH, help="JSON file for all results.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def command(
    run: Path,
    datasets: tuple[str, ...],
    labels: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    **options: object,
) -> None:
    """Evaluate the finished run in folder RUN on a split of one or several data sets.

    A data set needs no train split. If it has one, metrics are also given on the unseen examples,
    those whose text does not occur in train. Labels are matched by name, by --labels, or as the
    data-set card of the run's training data maps them: the three classes of MultiNLI to the two of
    HANS, for example. The results carry the names of the sets.
    """
    from auxlearn import api
    from auxlearn.commands.console import print_results
    from auxlearn.results.tables import example_sentences, metrics_table

    names = api.load_run(run).dataset.label_names if labels else []
    found = api.evaluate(
        run,
        list(datasets),
        labels=label_map(labels, names) if labels else None,
        output=output,
        **options,  # type: ignore[arg-type]
    )
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
        return
    lines = example_sentences(found)
    lines += [f"{name} has no train split to look for these texts in" for name in found.no_train]
    if output is not None:
        lines.append(f"results: {output}")
    print_results(f"{run} on split {options['split']}", "", metrics_table(found), "", *lines)
