"""``auxlearn compare``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(options_metavar="[OPTIONS]")
@click.argument(
    "sweeps", nargs=-1, required=True, metavar="SWEEP...", type=click.Path(path_type=Path)
)
@click.option(
    "--output", metavar="FOLDER", help="Also write Markdown, LaTeX, CSV and pictures there."
)
@click.option("--published", metavar="NAME", help="Published figures to show beside the new ones.")
def command(sweeps: tuple[Path, ...], output: str | None, published: str | None) -> None:
    """Compare the methods of finished sweeps.

    SWEEP is the folder of a sweep. Of several, methods on the same data with the same encoder
    compete.
    """
    from auxlearn.commands import console
    from auxlearn.comparison.collect import compare_sweeps
    from auxlearn.comparison.tables import console_tables, figures_csv, latex, markdown, pairs_csv
    from auxlearn.files import write_text
    from auxlearn.sweeps.folder import SweepFolder

    comparison = compare_sweeps([SweepFolder(path) for path in sweeps], published)
    out = console.output()
    for item in console_tables(comparison):
        if isinstance(item, str):
            out.print(item, soft_wrap=True, markup=False)
        else:
            out.print(item)
    if output is None:
        return

    from auxlearn.comparison.plots import plot_comparison

    folder = Path(output)
    for name, content in {
        "table.md": markdown(comparison),
        "table.tex": latex(comparison),
        "figures.csv": figures_csv(comparison),
        "pairs.csv": pairs_csv(comparison),
    }.items():
        write_text(folder / name, content)
    pictures = plot_comparison(comparison, folder)
    out.print(f"4 tables and {len(pictures)} pictures: {folder}", soft_wrap=True, markup=False)
