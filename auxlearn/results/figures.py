"""The one style of all plots, and how figures are written: PNG, PDF, SVG, and SVG within a page."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from auxlearn.core.errors import printable
from auxlearn.core.files import write_bytes
from auxlearn.core.rng import ONE_THREAD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's palette, whose colours can be told apart with any kind of colour vision; black
#: is reserved for the validation objective. https://jfly.uni-koeln.de/color/
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")

#: Width in inches of a figure for the screen, and of one for a column of a paper.
SCREEN_WIDTH, PRINT_WIDTH = 7.2, 3.3
#: Size of the letters in points, likewise.
SCREEN_FONT, PRINT_FONT = 9, 7
#: Dots per inch of the image files, likewise.
SCREEN_DPI, PRINT_DPI = 150, 300


@contextmanager
def figure_style(font: int = SCREEN_FONT) -> Iterator[None]:
    """Draw within the block with letters of a size."""
    import matplotlib

    small = ("xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    style: dict[str, Any] = dict.fromkeys(small, font - 1)
    style |= dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), font)
    style |= {
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.linewidth": 0.6,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.constrained_layout.use": True,
        "grid.color": "0.9",
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "lines.linewidth": (font - 3) / 4,
        "lines.markersize": font / 2,
        "text.usetex": False,
        "text.parse_math": False,  # a name with two dollar signs is no formula
        "pdf.fonttype": 42,  # letters stay letters
        "xtick.major.size": 2,
        "ytick.major.size": 2,
    }
    with ONE_THREAD, matplotlib.rc_context(style):
        yield


def colour(number: int) -> str:
    """Return the colour of a series by its number; beyond the palette, colours repeat."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """Return the marker of a series by its number; with its colour, unique among 36."""
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def line_marker(points: Sequence[object]) -> str | None:
    """Return the marker of a line plot: a dot for a single point, where no line would show."""
    return "." if len(points) == 1 else None


def figure_of(
    width: float, height: float, panels: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of a size in inches, and its panels row by row; options are of subplots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    rows = -(-panels // columns)
    every = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for axes in every[panels:]:
        axes.set_visible(False)
    return figure, list(every[:panels])


def legend_beside(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def legend_below(figure: Figure, panels: Sequence[Axes]) -> None:
    """Put one legend for all panels below the figure, in as many columns as fit."""
    named: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    if named:
        figure.legend(
            named.values(), named.keys(), loc="outside lower center", ncols=_columns(list(named))
        )


def legend_height(names: Sequence[str]) -> float:
    """Return the height in inches of the legend of so many series, with some room to spare."""
    shown = [legend_name(name) for name in names]
    lines = max((name.count("\n") + 1 for name in shown), default=1)
    return 0.1 + 0.12 * lines * -(-len(shown) // _columns(shown))


def _columns(names: Sequence[str]) -> int:
    """Return how many columns of names fit; one of two lines is as wide as the longer one."""
    longest = max((len(line) for name in names for line in name.splitlines()), default=0)
    return max(1, min(len(names), int(62 / (longest + 6))))


def legend_name(name: str) -> str:
    """Return a name for a legend, so short that two stand side by side."""
    shown = short(name, 22)
    return f" {shown}" if shown.startswith("_") else shown  # else matplotlib leaves it out


def short(name: str, width: int = 24) -> str:
    """Return a name for a plot: printable, in lines of bounded length, at most two."""
    lines = textwrap.wrap(printable(name), width) or [""]
    return "\n".join(lines[:2]) + ("..." if len(lines) > 2 else "")


def save_figure(figure: Figure, path: Path, dpi: int = SCREEN_DPI) -> Path:
    """Write a figure as its path ends; equal figures give equal files, without a date."""
    import matplotlib

    options: dict[str, dict[str, Any]] = {
        ".png": {"dpi": dpi},
        ".svg": {"metadata": {"Date": None}},
        ".pdf": {"metadata": {"CreationDate": None}},
    }
    buffer = io.BytesIO()
    with ONE_THREAD, matplotlib.rc_context({"svg.hashsalt": "auxlearn"}):
        figure.savefig(buffer, format=path.suffix[1:], **options[path.suffix])
    write_bytes(path, buffer.getvalue())
    return path


def inline_svg(figure: Figure, label: str, salt: str) -> str:
    """Return a figure as SVG without style attributes; another salt, other identifiers."""
    import matplotlib

    buffer = io.BytesIO()
    with ONE_THREAD, matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    lines = buffer.getvalue().decode().split("\n")
    root = ElementTree.fromstring("".join(map(printable, lines)))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("metadata", "style")):
                parent.remove(child)
    # A page has its own letters and widths; identifiers of groups would stand in every figure.
    unused = {"g": ("id",), "text": ("font-family",), "svg": ("width", "height", "version")}
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.tail = None
        attributes = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        styles = (style.partition(":") for style in attributes.pop("style", "").split(";"))
        attributes |= {name.strip(): value.strip() for name, _, value in styles if value}
        for name in unused.get(element.tag, ()):
            attributes.pop(name, None)
        for name in {"d", "x", "y"} & attributes.keys():
            attributes[name] = re.sub(
                r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", attributes[name]
            )
        element.attrib.clear()
        element.attrib.update(attributes)
    root.attrib |= {"role": "img", "aria-label": label}
    return ElementTree.tostring(root, encoding="unicode")
