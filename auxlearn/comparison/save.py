"""All files of a comparison in one folder."""

from __future__ import annotations

from pathlib import Path

from auxlearn.comparison import plots
from auxlearn.comparison.formats import markdown
from auxlearn.comparison.grid import Layout
from auxlearn.comparison.latex import latex
from auxlearn.comparison.result import ComparisonData
from auxlearn.comparison.rows import pair_rows, score_rows, to_csv
from auxlearn.files import write_text
from auxlearn.results.outputs import check_output_folder


def save(comparison: ComparisonData, folder: Path, layout: Layout) -> list[Path]:
    """Write ``table.md``, ``table.tex``, ``scores.csv``, ``pairs.csv`` and the plots.

    Args:
        comparison: What to write.
        folder: Created where it is missing.
        layout: What the tables look like.

    Returns:
        The files written.

    Raises:
        UserError: They cannot be written.
    """
    check_output_folder(folder)
    content = {
        "table.md": markdown(comparison, layout),
        "table.tex": latex(comparison, layout),
        "scores.csv": to_csv(score_rows(comparison)),
        "pairs.csv": to_csv(pair_rows(comparison)),
    }
    for name, text in content.items():
        write_text(folder / name, text)
    return [*(folder / name for name in content), *plots.plot_comparison(comparison, folder)]
