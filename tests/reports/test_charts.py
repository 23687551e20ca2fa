"""Geometry of the charts."""

from __future__ import annotations

import math

import pytest

from auxlearn.reports.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    interval_chart,
    line_chart,
    ticks,
)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 7, [0, 2, 4, 6]),
        (0, 0.03, [0, 0.01, 0.02, 0.03]),
        (-1.5, 1, [-1.5, -1, -0.5, 0, 0.5, 1]),
        (0, 4321, [0, 1000, 2000, 3000, 4000]),
        (2, 2, [2]),
    ],
)
def test_ticks_are_round_and_inside(low, high, expected):
    assert ticks(low, high) == expected


def places(line):
    return [tuple(map(float, pair.split(","))) for pair in line.points.split()]


def test_a_line_goes_from_corner_to_corner():
    chart = line_chart("t", "u", {"a": [(0, 0.0), (10, 1.0)]}, top=1.0, mark=(10, 1.0))
    assert places(chart.lines[0]) == [(LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, TOP)]
    assert chart.mark == (WIDTH - RIGHT, TOP)
    assert chart.summary == "t: a from 0 to 1"


def test_values_that_are_no_numbers_are_left_out():
    chart = line_chart("t", "u", {"a": [(1, math.nan), (2, 3.0)], "b": [(1, math.inf)]})
    assert [line.name for line in chart.lines] == ["a"]
    assert chart.lines[0].dot is not None
    assert line_chart("t", "u", {"b": [(1, math.inf)]}) is None
    assert line_chart("t", "u", {}) is None


def test_long_lines_keep_their_ends():
    points = [(float(step), float(step)) for step in range(1001)]
    found = places(line_chart("t", "u", {"a": points}, top=1000).lines[0])
    assert len(found) <= MOST_POINTS + 1
    assert found[0] == (LEFT, HEIGHT - BOTTOM)
    assert found[-1] == (WIDTH - RIGHT, TOP)


def test_intervals_contain_their_scores_and_stay_on_the_page():
    chart = interval_chart("t", [("a", 0.5, (-0.4, 1.4)), ("b", 0.6, None)])
    for row in chart.rows:
        assert RIGHT <= row.low <= row.middle <= row.high <= WIDTH - RIGHT
    assert chart.rows[0].text == "0.500 [-0.400, 1.400]"
    assert chart.rows[1].low == chart.rows[1].middle == chart.rows[1].high
    assert chart.rows[0].middle < chart.rows[1].middle
    assert interval_chart("t", []) is None
