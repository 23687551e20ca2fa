"""Geometry of the charts of a report; the template draws them as SVG.

Nothing here knows HTML: names of objectives and methods are escaped by the template. Colours are
numbers, for which the style sheet has one colour on light and another one on dark ground.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Size of a line chart and its margins, in user units: those of a telephone, so that a chart as
#: wide as the screen has letters of readable size.
WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 10, 40
#: Height of one row of an interval chart.
ROW = 40
#: Colours of the style sheet; beyond, they repeat.
COLOURS = 6
#: Points of a line; of more, every n-th is drawn, and the last.
MOST_POINTS = 150


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis, in user units."""

    place: float
    label: str


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        name: Its name in the legend.
        colour: Number of its colour; ``None`` for the ink.
        points: Places of its points, as the attribute ``points`` of a polyline has them.
        dot: Place of the point, if there is a single one.
        summary: Its first and last value, for those who cannot see the chart.
    """

    name: str
    colour: int | None
    points: str
    dot: tuple[float, float] | None
    summary: str


@dataclass(frozen=True)
class LineChart:
    """A chart of values by step.

    Attributes:
        title: What it shows.
        unit: What the values are measured in.
        lines: The lines.
        x_ticks: Ticks of the steps.
        y_ticks: Ticks of the values.
        mark: Place of a circle, such as that of the best checkpoint.
        notes: Sentences below the legend.
    """

    title: str
    unit: str
    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    mark: tuple[float, float] | None
    notes: list[str]

    @property
    def summary(self) -> str:
        """The chart in words."""
        return f"{self.title}: " + "; ".join(line.summary for line in self.lines)


@dataclass(frozen=True)
class Interval:
    """One row of an interval chart.

    Attributes:
        name: What the score is of.
        text: Score and interval in digits.
        colour: Number of its colour.
        y: Height of the line.
        middle: Place of the score.
        low: Place of the lower end.
        high: Place of the upper end.
    """

    name: str
    text: str
    colour: int
    y: float
    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class IntervalChart:
    """Scores with intervals, one below the other, over one axis.

    Attributes:
        title: What it shows.
        rows: The scores.
        ticks: Ticks of the axis.
        height: Height in user units.
    """

    title: str
    rows: list[Interval]
    ticks: list[Tick]
    height: float

    @property
    def summary(self) -> str:
        """The chart in words."""
        return f"{self.title}: " + "; ".join(f"{row.name} {row.text}" for row in self.rows)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers between two values: multiples of 1, 2 or 5 times a power of ten.

    Examples:
        >>> ticks(0, 1), ticks(13, 94)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [20.0, 40.0, 60.0, 80.0])
    """
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(number * step, digits) for number in range(first, last + 1)]


def line_chart(
    title: str,
    unit: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    top: float | None = None,
    rules: Mapping[str, float] | None = None,
    mark: tuple[float, float] | None = None,
    plain: str | None = None,
    notes: Sequence[str] = (),
) -> LineChart | None:
    """Return a chart of one line for each series, or ``None`` if no series has a value."""
    found = {name: _finite(points) for name, points in series.items()}
    found = {name: points for name, points in found.items() if points}
    if not found:
        return None
    values = [value for points in found.values() for _, value in points]
    values += [*(rules or {}).values(), *([mark[1]] if mark else [])]
    low, high = min(0.0, *values), max(values) if top is not None else 1.05 * max(values)
    high = max(high, top or 0.0)
    last = max(step for points in found.values() for step, _ in points)
    x, y = _Scale(0, last or 1, LEFT, WIDTH - RIGHT), _Scale(low, high, HEIGHT - BOTTOM, TOP)

    lines = []
    for number, (name, points) in enumerate(found.items()):
        places = [(x(step), y(value)) for step, value in points]
        if len(places) > MOST_POINTS:
            every = math.ceil(len(places) / MOST_POINTS)
            places = [*places[:-1:every], places[-1]]
        begin, end = points[0][1], points[-1][1]
        lines.append(
            Line(
                name,
                None if name == plain else number % COLOURS,
                " ".join(f"{a:.1f},{b:.1f}" for a, b in places),
                places[0] if len(places) == 1 else None,
                f"{name} from {begin:.3g} to {end:.3g}",
            )
        )
    for name, value in (rules or {}).items():
        ends = f"{LEFT},{y(value):.1f} {WIDTH - RIGHT},{y(value):.1f}"
        lines.append(Line(name, None, ends, None, f"{name} {value:.3g}"))
    return LineChart(
        title,
        unit,
        lines,
        [Tick(x(step), f"{step:,.0f}") for step in ticks(0, last or 1) if step == int(step)],
        [Tick(y(value), f"{value:g}") for value in ticks(low, high)],
        (x(mark[0]), y(mark[1])) if mark else None,
        list(notes),
    )


def interval_chart(
    title: str,
    rows: Sequence[tuple[str, float, tuple[float, float] | None]],
    percent: bool = False,
) -> IntervalChart | None:
    """Return a chart of scores between 0 and 1 with their intervals, or ``None`` without scores."""

    def written(value: float) -> str:
        return f"{100 * value:z.1f}" if percent else f"{value:z.3f}"

    if not rows:
        return None
    ends = [end for _, score, interval in rows for end in (score, *(interval or ()))]
    low, high = max(0.0, min(ends)), min(1.0, max(ends))
    room = max(0.02, 0.06 * (high - low))
    low, high = max(0.0, low - room), min(1.0, high + room)
    x = _Scale(low, high, RIGHT, WIDTH - RIGHT)
    drawn = []
    for number, (name, score, interval) in enumerate(rows):
        text = written(score) + (f" [{', '.join(map(written, interval))}]" if interval else "")
        begin, end = (min(high, max(low, one)) for one in interval or (score, score))
        y = ROW * number + 28
        drawn.append(Interval(name, text, number % COLOURS, y, x(score), x(begin), x(end)))
    places = [
        Tick(x(value), f"{100 * value if percent else value:g}") for value in ticks(low, high, 4)
    ]
    return IntervalChart(title, drawn, places, ROW * len(rows) + 24)


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(step, value) for step, value in points if math.isfinite(step) and math.isfinite(value)]


@dataclass(frozen=True)
class _Scale:
    """Maps values between two numbers to places between two others."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.begin + share * (self.end - self.begin)
