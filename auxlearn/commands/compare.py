"""``auxlearn compare``: tables and plots of the methods of sweeps and runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from auxlearn.commands.options import (
    PATH,
    Example,
    ExampleCommand,
    SettingOption,
)

EXAMPLES = (
    Example(
        "Tables of one sweep; also as Markdown, LaTeX and CSV, with plots",
        "auxlearn compare sweeps/reviews --output tables",
    ),
    Example(
        "In LaTeX, every method compared with the single task only",
        'auxlearn compare sweeps/reviews --against "single task" --format latex',
    ),
    Example(
        "Two metrics on test and dev, and every two methods with intervals and p-values",
        "auxlearn compare sweeps/reviews --metric macro_f1 --metric mcc --set test --set dev "
        "--show pairs",
    ),
    Example(
        "A sweep beside the results that the paper reports",
        "auxlearn compare sweeps/reviews --published l3masking_table3",
    ),
)


#: What adds an option to a command.
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Command(ExampleCommand):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options under their sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                section = getattr(parameter, "section", "Options")
                sections.setdefault(section, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _what(*names: str, **attributes: Any) -> Decorator:
    return click.option(*names, cls=SettingOption, section="What is compared", **attributes)


def _look(*names: str, **attributes: Any) -> Decorator:
    return click.option(*names, cls=SettingOption, section="How it is shown", **attributes)


@click.command(cls=_Command, examples=EXAMPLES, options_metavar="[OPTIONS]")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=PATH)
@_what(
    "--metric",
    "metrics",
    multiple=True,
    metavar="METRIC",
    help="accuracy, macro_f1, weighted_f1, mcc, or f1:LABEL, precision:LABEL, recall:LABEL of a "
    "class; repeatable. By default the metric that checkpoints were selected by.",
)
@_what(
    "--set",
    "sets",
    multiple=True,
    metavar="SET",
    help="Evaluation set; repeatable. By default test and every out-of-distribution set.",
)
@_what(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Method to show; repeatable, in this order. By default all.",
)
@_what("--without", multiple=True, metavar="NAME", help="Method to leave out; repeatable.")
@_what(
    "--against",
    metavar="NAME",
    help="Compare every method with this one only; the correction is for these comparisons.",
)
@_what(
    "--restarts",
    is_flag=False,
    flag_value=3,
    type=int,
    metavar="K",
    help="Control of equal cost: what the best by dev of K seeds of every method without auxiliary "
    "tasks scores on average. K may be left out for 3; there must be more seeds.",
)
@_what(
    "--power",
    is_flag=True,
    help="Add the minimum detectable difference: how much better than the others a method must be "
    "to be found out with probability 0.8. It is simulated, which takes seconds.",
)
@_what("--published", metavar="NAME", help="Published results to show beside these.")
@_look(
    "--name",
    "names",
    multiple=True,
    metavar="OLD=NEW",
    help="New name of a method, data set or encoder, used by all other options; repeatable.",
)
@_look(
    "--show",
    multiple=True,
    metavar="WHAT",
    help="Add seeds, epochs, minutes or pairs (every two methods); repeatable.",
)
@_look("--decimals", type=int, default=1, show_default=True, help="Decimals of percentages.")
@_look(
    "--format",
    "format_",
    type=click.Choice(["terminal", "markdown", "latex", "csv"]),
    default="terminal",
    show_default=True,
    help="Format of what is printed.",
)
@_look(
    "--output",
    type=PATH,
    metavar="FOLDER",
    help="Folder for the tables in Markdown, LaTeX and CSV and for the plots (PDF, PNG).",
)
def command(
    folders: tuple[Path, ...],
    names: tuple[str, ...],
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
    """
    from auxlearn.commands import console
    from auxlearn.comparison.compare import compare
    from auxlearn.comparison.formats import render, save, terminal
    from auxlearn.comparison.tables import Layout
    from auxlearn.core.files import expand
    from auxlearn.results.outputs import check_output_folder

    layout = Layout(decimals, show)
    folder = None if output is None else expand(output)
    if folder is not None:
        check_output_folder(folder)
    comparison = compare(*folders, names=names, **what)
    if format_ == "terminal":
        console.print_results(*terminal(comparison, layout))
    else:
        click.echo(render(comparison, format_, layout), nl=False)
    if folder is not None:
        written = save(comparison, folder, layout)
        tables = sum(path.suffix in (".md", ".tex", ".csv") for path in written)
        plots = sum(path.suffix == ".pdf" for path in written)
        click.echo(f"{tables} tables and {plots} plots: {folder}", err=True)
