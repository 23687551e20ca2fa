"""Mask probabilities as plots and as coloured texts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auxlearn.core.errors import shorten
from auxlearn.mask_analysis.masks import MaskReport
from auxlearn.mask_analysis.shown_text import ShownText
from auxlearn.mask_analysis.statistics import FEWEST, Group
from auxlearn.results.plots import WIDTH, colour, marker, save_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.text import Text


#: Height of the row of a group, in inches.
ROW_HEIGHT = 0.16


def plot_groups(report: MaskReport, folder: Path) -> list[Path]:
    """Write ``groups.png`` and ``groups.svg``: how often tasks mask groups of tokens."""
    from matplotlib.figure import Figure

    kinds = {
        "by part of speech": report.parts_of_speech,
        "by how often the token occurs": report.frequencies,
    }
    panels = {kind: [g for g in groups if g.tokens >= FEWEST] for kind, groups in kinds.items()}
    panels = {kind: groups for kind, groups in panels.items() if groups}
    if not panels:
        return []
    rows = [len(groups) for groups in panels.values()]
    height = 0.9 + sum(0.4 + ROW_HEIGHT * count for count in rows)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.suptitle(f"{report.dataset}, {Path(report.encoder).name}", fontsize=10, parse_math=False)
    every = figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=rows)[:, 0]
    for axes, (kind, groups) in zip(every, panels.items(), strict=True):
        _draw(axes, groups, kind)
        if axes is not every[0]:  # the same tasks in the same colours
            axes.legend_ = None
    every[-1].set_xlabel("mean probability to be masked, times that of random masking")
    return [save_figure(figure, folder / f"groups.{kind}") for kind in ("png", "svg")]


def _draw(axes: Axes, groups: Sequence[Group], title: str) -> None:
    places = range(len(groups))
    axes.axvline(1, color="black", linewidth=1)
    for number, task in enumerate(groups[0].rates):
        axes.plot(
            [group.ratio(task) for group in groups],
            places,
            marker(number),
            color=colour(number),
            markersize=4.5,
            label=task,
        )
    names = [f"{group.name}  {group.description}".strip() for group in groups]
    axes.set_yticks(places, names, fontsize=7, parse_math=False)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_title(title, fontsize=9, loc="left")
    style_axes(axes)


#: Characters of a line of the figure, lines of one text, and height of a line in inches.
COLUMNS, LINES, LINE_HEIGHT = 92, 4, 0.19

#: Colours of tokens that are masked never, as often as by random masking, and twice as often or
#: more, as red, green and blue.
NEVER, RANDOM, TWICE = (33, 102, 172), (247, 247, 247), (178, 24, 43)

#: Characters of a token that are shown.
LONGEST = 24


def plot_heat_map(report: MaskReport, folder: Path) -> list[Path]:
    """Write ``heat_map.png`` and ``heat_map.svg``: each shown text once for each task."""
    lines = []
    for text in report.texts:
        example = str(text.example)
        for task in text.rates:
            label = task
            for line in _lines(text, task, report.draws[task]):
                lines.append((label, example, line))
                label = example = ""  # they stand before the first line of a task, of a text
    if not lines:
        return []
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(WIDTH, 0.95 + LINE_HEIGHT * len(lines)), layout="constrained")
    figure.suptitle(
        f"masks in {shorten(report.dataset)}, {shorten(Path(report.encoder).name)}",
        fontsize=9,
        parse_math=False,
    )
    axes = figure.subplots()
    margin = max(len(task) for task, _, _ in lines) + 6
    axes.set_xlim(-margin, COLUMNS + 1)
    axes.set_ylim(len(lines), 0)
    axes.axis("off")
    plain: dict[str, Any] = {"va": "center", "fontfamily": "monospace", "fontsize": 6.2}
    plain["parse_math"] = False
    for y, (task, example, line) in enumerate(lines):
        if example:
            axes.axhline(y, color="0.8", linewidth=0.5)
            axes.text(-margin, y + 0.5, example, color="0.45", **plain)
        axes.text(5 - margin, y + 0.5, task, color="0.3", **plain)
        for x, token, times in line:
            axes.add_patch(
                Rectangle(
                    (x, y + 0.06), len(token) + 0.6, 0.88, facecolor=_unit(times), linewidth=0
                )
            )
            axes.text(x + 0.3, y + 0.5, token, color=_ink(times), **plain)
    colours = LinearSegmentedColormap.from_list("masks", [_unit(n / 20) for n in range(41)])
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 2), colours),
        ax=axes,
        location="bottom",
        fraction=0.35 / (0.95 + LINE_HEIGHT * len(lines)),
        pad=0.01,
        aspect=60,
        extend="max",
    )
    bar.set_label("probability to be masked, times that of random masking", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    with warnings.catch_warnings():  # characters that the font lacks are drawn as boxes
        warnings.simplefilter("ignore", UserWarning)
        return [save_figure(figure, folder / f"heat_map.{kind}") for kind in ("png", "svg")]


def console_heat_map(report: MaskReport, coloured: bool) -> Iterator[Text]:
    """Yield the shown texts for the console, each once for each task."""
    from rich.text import Text

    for text in report.texts:
        for task, rates in text.rates.items():
            line = Text(f"{text.example} {task}: ")
            for token, rate, times in zip(
                text.tokens, rates, text.times(task, report.draws[task]), strict=True
            ):
                shown = shorten(token, LONGEST)
                if coloured:
                    red, green, blue = _colour(times)
                    line.append(shown, style=f"{_ink(times)} on #{red:02x}{green:02x}{blue:02x}")
                    line.append(" ")
                else:
                    line.append(f"{shown}({100 * rate:.0f}) ")
            yield line


def _lines(text: ShownText, task: str, draws: int | None) -> list[list[tuple[int, str, float]]]:
    """Return the lines of a text in the figure: position, token, times random masking."""
    lines: list[list[tuple[int, str, float]]] = [[]]
    x = 0
    for token, times in zip(text.tokens, text.times(task, draws), strict=True):
        shown = shorten(token, LONGEST)
        if x + len(shown) > COLUMNS:
            if len(lines) == LINES:
                break
            lines.append([])
            x = 0
        lines[-1].append((x, shown, times))
        x += len(shown) + 1
    return lines


def _colour(times: float) -> tuple[int, int, int]:
    """Return the colour of a token that is masked so many times as often as by random masking."""
    share = min(1.0, abs(times - 1))
    far = TWICE if times > 1 else NEVER
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(RANDOM, far, strict=True))
    return red, green, blue


def _unit(times: float) -> tuple[float, float, float]:
    red, green, blue = _colour(times)
    return red / 255, green / 255, blue / 255


def _ink(times: float) -> str:
    """Return the colour of the letters on it."""
    return "white" if abs(times - 1) > 0.6 else "black"
