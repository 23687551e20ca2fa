"""``auxlearn report``: runs and sweeps as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, options_of
from auxlearn.reports.page import report


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=PATH)
@options_of(
    report,
    "output",
    "restarts",
    restarts="Add the best by dev of K seeds to the methods of sweeps, as `auxlearn compare` does.",
)
@click.option(
    "--no-texts", is_flag=True, help="Leave the texts of the data set out, and do not read it."
)
def command(folders: tuple[Path, ...], no_texts: bool, **options: Any) -> None:
    """Write a report on runs and sweeps as one HTML file, which needs no network.

    FOLDER is a finished run or a sweep. The page has data, results with intervals, weights, dev
    curves, confusion matrices, misclassified examples, costs, and the commands that repeat it all.

    \b
    Examples:
        # A finished run; writes runs/reviews/report.html
        auxlearn report runs/reviews
        # A sweep, without the texts of the data set
        auxlearn report sweeps/reviews --no-texts --output reviews.html
        # Several runs beside each other
        auxlearn report runs/reviews runs/mask_tuning --output both.html
    """
    from auxlearn.results.console import ConsoleReporter, print_results

    with ConsoleReporter().waiting("writing the report"):
        written = report(*folders, texts=not no_texts, **options)
    print_results(f"report: {written}")
