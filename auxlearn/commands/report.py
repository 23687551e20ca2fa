"""``auxlearn report``: runs and sweeps as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from auxlearn.commands.options import PATH, Example, ExampleCommand

EXAMPLES = (
    Example("A finished run; writes runs/reviews/report.html", "auxlearn report runs/reviews"),
    Example(
        "A sweep, without the texts of the data set",
        "auxlearn report sweeps/reviews --no-texts --output reviews.html",
    ),
    Example(
        "Several runs beside each other",
        "auxlearn report runs/reviews runs/mask_tuning --output both.html",
    ),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES, options_metavar="[OPTIONS]")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=PATH)
@click.option(
    "--output",
    metavar="FILE",
    help="The file; by default report.html, in FOLDER if there is a single one.",
)
@click.option(
    "--no-texts", is_flag=True, help="Leave the texts of the data set out, and do not read it."
)
@click.option(
    "--restarts",
    is_flag=False,
    flag_value=3,
    type=int,
    metavar="K",
    help="Add the best by dev of K seeds to the methods of sweeps, as `auxlearn compare` does.",
)
def command(
    folders: tuple[Path, ...], output: str | None, no_texts: bool, restarts: int | None
) -> None:
    """Write a report on runs and sweeps as one HTML file, which needs no network.

    FOLDER is a finished run or a sweep. The page has data, results with intervals, weights, dev
    curves, confusion matrices, misclassified examples, costs, and the commands that repeat it all.
    """
    from auxlearn.commands.console import ConsoleReporter, print_results
    from auxlearn.reports.page import report

    with ConsoleReporter().waiting("writing the report"):
        written = report(*folders, output=output, texts=not no_texts, restarts=restarts)
    print_results(f"report: {written}")
