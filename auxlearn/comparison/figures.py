"""Figures in print size: a column of 3.3 inches, as PDF for papers and as PNG for the screen."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.files import write_bytes
from auxlearn.wording import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width of a figure in inches, dots per inch of the image, and size of the letters in points.
WIDTH, DPI, FONT = 3.3, 300, 7

_STYLE = {
    "font.size": FONT,
    "axes.labelsize": FONT,
    "axes.titlesize": FONT,
    "xtick.labelsize": FONT - 1,
    "ytick.labelsize": FONT - 1,
    "legend.fontsize": FONT - 1,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
    "text.usetex": False,
    "text.parse_math": False,  # a name with two dollar signs is no formula
    "pdf.fonttype": 42,  # letters stay letters
}


@contextmanager
def print_style() -> Iterator[None]:
    """Apply the style of figures in print within the block."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


def print_figure(
    height: float, rows: int = 1, columns: int = 1, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of one column width, and its panels row by row.

    Args:
        height: In inches.
        rows: Rows of panels.
        columns: Columns of panels.
        shared: Arguments of ``subplots``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **shared)
    return figure, list(panels.ravel())


def tidy(axes: Axes, grid: str = "both") -> None:
    """Add a light grid and remove the frame above and on the right."""
    axes.grid(color="0.9", linewidth=0.5, axis=grid)  # type: ignore[arg-type,unused-ignore]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(width=0.6, length=2)


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of a panel below the figure, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    longest = max(map(len, labels))
    columns = max(1, min(len(labels), int(62 / (longest + 6))))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def short(name: str, width: int = 24) -> str:
    """Return a name for a plot: printable, in lines of bounded length, at most two."""
    lines = textwrap.wrap(printable(name), width) or [""]
    return "\n".join(lines[:2]) + ("..." if len(lines) > 2 else "")


def save_print(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PDF and PNG.

    Args:
        figure: The figure.
        path: Path without a suffix; its folder is created where it is missing.

    Returns:
        The files written.

    Raises:
        UserError: They cannot be written.
    """
    written = []
    # Without dates, equal figures are equal files.
    for suffix, options in (("pdf", {"metadata": {"CreationDate": None}}), ("png", {"dpi": DPI})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix, **options)
        written.append(path.with_name(f"{path.name}.{suffix}"))
        write_bytes(written[-1], buffer.getvalue())
    return written


def common_title(parts: Sequence[str]) -> str:
    """Return parts of a title in one short line."""
    return short(", ".join(filter(None, parts)), 70)
