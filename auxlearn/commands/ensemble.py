"""``auxlearn ensemble``: the mean of the predictions of several finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, json_option, options_of, print_json
from auxlearn.comparison.ensemble import ensemble


@click.command()
@click.argument("runs", nargs=-1, required=True, type=PATH, metavar="RUN...")
@options_of(ensemble)
@json_option("all scores")
def command(runs: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Average the predictions of the finished runs in the folders RUN.

    The runs must be of the same data, labels and splits, such as the seeds of a method. Their
    stored predictions are averaged, without loading a model. The table has the scores of each run,
    their mean, and those of the ensemble. With --output, the examples are written with the columns
    predicted_label and probability_CLASS, as `auxlearn predict` writes them.

    \b
    Examples:
        # Two runs, on their test split
        auxlearn ensemble runs/reviews runs/mask_tuning
        # All finished runs of a method of a sweep; the predictions as a table
        auxlearn ensemble sweeps/reviews --method MLM --output ensemble.csv
        # On dev, as JSON
        auxlearn ensemble runs/reviews runs/mask_tuning --split dev --json
    """
    averaged = ensemble(*runs, **options)
    if as_json:
        print_json(averaged.to_dict())
        return

    from auxlearn.kinds.metrics import metric_title
    from auxlearn.results.console import print_results
    from auxlearn.results.tables import text_table

    rows = averaged.to_frame()
    heads = ["run", *(metric_title(metric) for metric in averaged.scores.metrics)]
    lines = [[name, *(f"{value:.3f}" for value in row)] for name, *row in rows.itertuples()]
    where = f"{averaged.set}, {len(averaged.labels):,} examples"
    last = ["", f"predictions: {options['output']}"] if "output" in options else []
    print_results(where, "", text_table(heads, lines), *last)
