"""``auxlearn compare``: tables and plots of the methods of sweeps and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import PATH, options_of
from auxlearn.comparison.compare import compare


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=PATH)
@options_of(compare)
@click.option(
    "--show",
    multiple=True,
    metavar="WHAT",
    help="Add seeds, epochs, minutes or pairs (every two methods); repeatable.",
)
@click.option("--decimals", type=int, default=1, show_default=True, help="Decimals of percentages.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["terminal", "markdown", "latex", "csv"]),
    default="terminal",
    show_default=True,
    help="Format of what is printed.",
)
@click.option(
    "--output",
    type=PATH,
    metavar="FOLDER",
    help="Folder for the tables in Markdown, LaTeX and CSV and for the plots (PDF, PNG).",
)
def command(
    folders: tuple[Path, ...],
    show: tuple[str, ...],
    decimals: int,
    format_: str,
    output: Path | None,
    **what: Any,
) -> None:
    """Compare the methods of sweeps and runs.

    FOLDER is the folder of a sweep, finished or not, or of a run. Runs that differ in the seed only
    are one method. Methods on the same data with the same encoder are compared with each other;
    data sets are the columns of a table.

    \b
    Examples:
        # Tables of one sweep; also as Markdown, LaTeX and CSV, with plots
        auxlearn compare sweeps/reviews --output tables
        # In LaTeX, every method compared with the single task only
        auxlearn compare sweeps/reviews --against "single task" --format latex
        # Two metrics on test and dev, and every two methods with intervals and p-values
        auxlearn compare sweeps/reviews --metric macro_f1 --metric mcc --set test --set dev \\
            --show pairs
        # A sweep beside the results that the paper reports
        auxlearn compare sweeps/reviews --published l3masking_table3
    """
    from auxlearn.comparison.tables import Layout
    from auxlearn.results import console
    from auxlearn.results.outputs import check_output_folder

    Layout(decimals, show)  # what it refuses, before any work
    if output is not None:
        check_output_folder(output)
    comparison = compare(*folders, **what)
    # before anything is printed, which a reader such as `head` may not take to its end
    written = [] if output is None else comparison.save(output, decimals, show)
    if format_ == "terminal":
        console.print_results(*comparison.to_terminal(decimals, show))
    else:
        click.echo(comparison.to_text(format_, decimals, show), nl=False)
    if format_ == "csv":  # which has no room for what is said of the methods
        of_parts = (note for shown in comparison.parts() for part in shown for note in part.notes)
        for note in (*of_parts, *comparison.notes):
            click.echo(note, err=True)
    if output is not None:
        tables = sum(path.suffix in (".md", ".tex", ".csv") for path in written)
        plots = sum(path.suffix == ".pdf" for path in written)
        click.echo(f"{tables} tables and {plots} plots: {output}", err=True)
