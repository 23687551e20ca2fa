"""One style for all plots and tables: titles of the metrics, colours, sizes, file format."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from auxlearn.config import Metric
from auxlearn.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Each metric as tables, plots and the console name it.
METRIC_TITLES: dict[Metric, str] = {"accuracy": "accuracy", "macro_f1": "macro-F1"}

#: Okabe and Ito's palette, whose colours can be told apart with any kind of colour vision; black
#: is reserved for the validation objective. https://jfly.uni-koeln.de/color/
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")

#: Dots per inch of the image files.
DPI = 150
#: Width of a figure, height of one panel, and height of the title, in inches.
WIDTH, PANEL_HEIGHT, TITLE_HEIGHT = 7.2, 2.7, 0.6
#: Height of a panel of a figure with many panels, in inches.
LOW_PANEL = 1.8


def colour(number: int) -> str:
    """Return the colour of a series by its number; beyond the palette, colours repeat."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """Return the marker of a series by its number; with its colour, unique among 36."""
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def line_marker(points: Sequence[object]) -> str | None:
    """Return the marker of a line plot: a dot for a single point, where no line would show."""
    return "." if len(points) == 1 else None


def new_figure(
    title: str, panels: int, share_x: bool = False, height: float = PANEL_HEIGHT
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels one below the other, independent of matplotlib's global state.

    Args:
        title: Title of the figure.
        panels: Number of panels.
        share_x: Whether the panels have one x axis.
        height: Height of a panel in inches.
    """
    from matplotlib.figure import Figure

    size = (WIDTH, TITLE_HEIGHT + height * panels)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.subplots(panels, 1, sharex=share_x, squeeze=False)[:, 0]
    return figure, list(axes)


def style_axes(axes: Axes) -> None:
    """Add a light grid and a legend beside the panel; call it once everything is drawn."""
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, or as SVG if the path ends in .svg, and return its path.

    The folder is created where it is missing. The same figure gives the same file.

    Raises:
        UserError: The file cannot be written.
    """
    import matplotlib

    buffer = io.BytesIO()
    if path.suffix == ".svg":
        with matplotlib.rc_context({"svg.hashsalt": "auxlearn"}):
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    else:
        figure.savefig(buffer, format="png", dpi=DPI)
    write_bytes(path, buffer.getvalue())
    return path
