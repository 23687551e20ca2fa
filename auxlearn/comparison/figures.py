"""Figures in print size: a column of 3.3 inches, as PDF for papers and as PNG for the screen."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import printable
from auxlearn.core.files import write_bytes

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
    height: float, panels: int = 1, beside: float = 0.0, across: int = 2, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of one column width, and its panels row by row."""
    from matplotlib.figure import Figure

    columns = min(across, panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(WIDTH, beside + rows * height), layout="constrained")
    found = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for axes in found[panels:]:
        axes.set_visible(False)
    return figure, list(found[:panels])


def tidy(axes: Axes, grid: str = "both") -> None:
    """Add a light grid and remove the frame above and on the right."""
    axes.grid(color="0.9", linewidth=0.5, axis=grid)  # type: ignore[arg-type,unused-ignore]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(width=0.6, length=2)


def legend_below(figure: Figure, panels: Sequence[Axes]) -> None:
    """Put one legend for all panels below the figure, in as many columns as fit."""
    named: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            named.setdefault(label, handle)
    if not named:
        return
    # A label of two lines is as wide as the longer one.
    longest = max(len(line) for label in named for line in label.splitlines())
    columns = max(1, min(len(named), int(62 / (longest + 6))))
    figure.legend(
        named.values(), named.keys(), loc="outside lower center", ncols=columns, frameon=False
    )


def legend_height(names: Sequence[str]) -> float:
    """Return the height in inches of the legend of so many series, with some room to spare."""
    found = [legend_name(name) for name in names]
    longest = max((len(line) for name in found for line in name.splitlines()), default=0)
    columns = max(1, min(len(found), int(62 / (longest + 6))))
    lines = max((name.count("\n") + 1 for name in found), default=1)
    return 0.1 + 0.12 * lines * -(-len(found) // columns)


def label_columns(panels: Sequence[Axes], label: str) -> None:
    """Give the lowest panel of each column a label of its x axis.

    A label of the whole figure would overlap the legend below.
    """
    for number, axes in enumerate(panels):
        spec = axes.get_subplotspec()
        if spec is None or number + spec.get_gridspec().ncols >= len(panels):
            axes.set_xlabel(label)
            axes.tick_params(labelbottom=True)


def short(name: str, width: int = 24) -> str:
    """Return a name for a plot: printable, in lines of bounded length, at most two."""
    lines = textwrap.wrap(printable(name), width) or [""]
    return "\n".join(lines[:2]) + ("..." if len(lines) > 2 else "")


def legend_name(name: str) -> str:
    """Return a name for a legend, so short that two stand side by side."""
    return short(name, 22)


def save_print(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PDF and PNG."""
    written = []
    # Without dates, equal figures are equal files.
    for suffix, options in (("pdf", {"metadata": {"CreationDate": None}}), ("png", {"dpi": DPI})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix, **options)
        written.append(path.with_name(f"{path.name}.{suffix}"))
        write_bytes(written[-1], buffer.getvalue())
    return written
