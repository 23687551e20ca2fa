"""Plot of mean mask probabilities by part of speech and by frequency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from auxlearn.inspection.breakdown import FEWEST, Group
from auxlearn.inspection.report import MaskReport
from auxlearn.reporting.style import WIDTH, colour, marker, save_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Height of the row of a group, in inches.
ROW_HEIGHT = 0.16


def plot_groups(report: MaskReport, folder: Path) -> list[Path]:
    """Write ``groups.png`` and ``groups.svg``: groups of tokens beside random masking.

    One marker for each task: how many times as often it masks the tokens of a group as random
    masking at the same mean does. Groups of fewer than
    :data:`~auxlearn.inspection.breakdown.FEWEST` tokens are left out.

    Args:
        report: What was inspected.
        folder: Where they are written; created where it is missing.

    Returns:
        The files written; none if all groups are smaller.

    Raises:
        UserError: They cannot be written.
    """
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
