"""The comparison as it is used from Python: tables, frames and files of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from auxlearn.comparison.formats import html, markdown
from auxlearn.comparison.grid import Layout
from auxlearn.comparison.latex import latex
from auxlearn.comparison.result import ComparisonData
from auxlearn.comparison.rows import pair_rows, score_rows
from auxlearn.comparison.scores import metric_title

if TYPE_CHECKING:
    import pandas as pd


class Comparison(ComparisonData):
    """Comparison of the methods of sweeps and runs; see :class:`ComparisonData` for its content."""

    def __repr__(self) -> str:
        methods = {name for block in self.blocks for name in block.methods}
        sets = {one.name for block in self.blocks for one in block.datasets}
        parts = [f"{len(methods)} methods", f"{len(sets)} data set{'s' * (len(sets) != 1)}"]
        for block in self.blocks[:3]:
            column = block.columns[-1]
            value = f"{100 * column.means[column.best]:z.1f}"
            title = metric_title(column.metric)
            parts.append(f"best {title} on {column.dataset} {column.set}: {column.best} {value}")
        return f"<Comparison of {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return html(self)

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each method, data set, evaluation set and metric (0 to 1)."""
        import pandas as pd

        return pd.DataFrame(score_rows(self))

    def pairs_frame(self) -> pd.DataFrame:
        """Return one row for every two methods, with their difference, interval and p-values."""
        import pandas as pd

        return pd.DataFrame(pair_rows(self))

    def to_markdown(self, decimals: int = 1, show: Sequence[str] = ()) -> str:
        """Return the whole comparison in Markdown.

        Args:
            decimals: Of scores in percent.
            show: What to add: ``seeds``, ``epochs``, ``minutes``, ``detectable``, ``pairs``.
        """
        return markdown(self, Layout(decimals, tuple(show)))

    def to_latex(self, decimals: int = 1, show: Sequence[str] = ()) -> str:
        """Return the tables in LaTeX, for booktabs; for Args see :meth:`to_markdown`."""
        return latex(self, Layout(decimals, tuple(show)))

    def save(self, folder: str | Path, decimals: int = 1, show: Sequence[str] = ()) -> list[Path]:
        """Write tables and plots into a folder.

        Args:
            folder: Created where it is missing.
            decimals: Of scores in percent.
            show: What to add to the tables; see :meth:`to_markdown`.

        Returns:
            The files written.

        Raises:
            UserError: They cannot be written.
        """
        from auxlearn.comparison.save import save  # draws plots

        return save(self, Path(folder), Layout(decimals, tuple(show)))
