"""``auxlearn evaluate``: metrics of a finished run on data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, json_option, label_map, options_of, print_json
from auxlearn.evaluation.finished import evaluate
from auxlearn.results.folder import load_run


@click.command()
@click.argument("run", type=PATH)
@click.option(
    "--dataset",
    "datasets",
    required=True,
    multiple=True,
    help="Data set: folder, name of a data-set card, or Hugging Face hub id; repeatable.",
)
@options_of(
    evaluate,
    labels="Label of the data sets that a class of the run stands for; repeatable, also for one "
    "class. By default those of the run.",
)
@json_option("all results")
def command(run: Path, datasets: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Evaluate the finished run in folder RUN on a split of one or several data sets.

    A data set needs no train split. If it has one, metrics are also given on the unseen examples,
    those whose text does not occur in train. Labels are matched by name, by --labels, or as the
    data-set card of the run's training data maps them: the three classes of MultiNLI to the two of
    HANS, for example. The results carry the names of the sets.

    \b
    Examples:
        # Metrics on the test splits of other data sets; all results as a JSON file too
        auxlearn evaluate runs/reviews --dataset data/reviews --dataset data/other_reviews \\
            --output scores.json
        # A set whose labels have other names
        auxlearn evaluate runs/reviews --dataset data/renamed --labels method=approach --labels \\
            result=finding
        # Another split and other column names, as JSON
        auxlearn evaluate runs/reviews --dataset data/columns --split dev --text-column body \\
            --json
    """
    from auxlearn.results.console import print_results
    from auxlearn.results.tables import example_sentences, metrics_table

    if "labels" in options:
        options["labels"] = label_map(options["labels"], load_run(run).dataset.label_names)
    evaluations = evaluate(run, list(datasets), **options)
    if as_json:
        print_json(evaluations.to_dict())
        return
    lines = example_sentences(evaluations)
    lines += [
        f"{name} has no train split to look for these texts in" for name in evaluations.no_train
    ]
    if "output" in options:
        lines.append(f"results: {options['output']}")
    split = options.get("split", "test")
    print_results(f"{run} on split {split}", "", metrics_table(evaluations), "", *lines)
