"""``auxlearn compare``: tables and plots of finished sweeps."""

from __future__ import annotations

from pathlib import Path

import click

from auxlearn.commands.help import Example, ExampleCommand

EXAMPLES = (
    Example(
        "Tables of one sweep; also as Markdown, LaTeX and CSV, with plots",
        "auxlearn compare sweeps/reviews --output tables",
    ),
    Example(
        "A sweep beside the results that the paper reports",
        "auxlearn compare sweeps/reviews --published l3masking_table3",
    ),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES, options_metavar="[OPTIONS]")
@click.argument(
    "sweeps", nargs=-1, required=True, metavar="SWEEP...", type=click.Path(path_type=Path)
)
@click.option(
    "--output",
    metavar="FOLDER",
    help="Folder for the tables in Markdown, LaTeX and CSV and for the plots.",
)
@click.option(
    "--published", metavar="NAME", help="Published results to show beside those of the sweeps."
)
def command(sweeps: tuple[Path, ...], output: str | None, published: str | None) -> None:
    """Compare the methods of finished sweeps.

    SWEEP is a sweep folder. With several, the methods on the same data with the same encoder are
    compared with each other.
    """
    from auxlearn.commands import console
    from auxlearn.comparison.compare import compare_sweeps
    from auxlearn.comparison.tables import console_tables, latex, markdown, metrics_csv, pairs_csv
    from auxlearn.files import check_output, write_text
    from auxlearn.local_files import expand
    from auxlearn.sweeps.folder import SweepFolder

    folder = None if output is None else expand(output)
    if folder is not None:
        check_output(folder)
    comparison = compare_sweeps([SweepFolder(expand(path)) for path in sweeps], published)
    out = console.output()
    for item in console_tables(comparison):
        if isinstance(item, str):
            out.print(item, soft_wrap=True, markup=False)
        else:
            out.print(item)
    if folder is None:
        return

    from auxlearn.comparison.plots import plot_comparison

    for name, content in {
        "table.md": markdown(comparison),
        "table.tex": latex(comparison),
        "metrics.csv": metrics_csv(comparison),
        "pairs.csv": pairs_csv(comparison),
    }.items():
        write_text(folder / name, content)
    plots = plot_comparison(comparison, folder)
    out.print(f"4 tables and {len(plots)} plots: {folder}", soft_wrap=True, markup=False)
