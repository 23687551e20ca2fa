"""The tables of the space of objectives, from records that are written down."""

from __future__ import annotations

import math

import pytest

from benchmarks.space import VARIANTS, factors, gains


def record(draw, variant, test, **more):
    return {"draw": draw, "variant": variant, "dev": 0.5, "test": test, **more}


def test_gains_are_those_of_the_same_draw_with_their_standard_error():
    name = "`space`, n = 3, `aang`"
    records = [
        *(record(draw, "single 0", test) for draw, test in ((0, 0.50), (1, 0.60), (2, 0.40))),
        *(record(draw, name, test) for draw, test in ((0, 0.51), (1, 0.63), (5, 0.99))),
    ]
    (row,) = [line for line in gains(records, [0, 1, 2, 5]).splitlines() if name in line]
    error = math.sqrt(((1 - 2) ** 2 + (3 - 2) ** 2) / 1 / 2)  # of the gains 1 and 3
    assert error == pytest.approx(1.0)
    assert row == f"| {name} | 2 | 57.0 | +2.0 ± 1.0 |"


def test_factors_stand_beside_their_weights_at_first():
    name = next(iter(one for one in VARIANTS if "aang" in one))
    data = ({"task": 0.2, "corpus": 0.8}, {"task": 0.4, "corpus": 0.6})
    axes = {
        "transform": dict.fromkeys(("none", "mask", "replace", "bert"), 0.25),
        "representation": dict.fromkeys(
            ("bidirectional", "left_to_right", "right_to_left", "random"), 0.25
        ),
        "output": {"denoise": 1.0, "label": 0.0},
    }
    records = [
        record(draw, name, 0.5, factors={"space": {"data": one, **axes}})
        for draw, one in enumerate(data)
    ]
    lines = factors(records).splitlines()
    assert lines[2] == "| data `task` | 0.60 | 0.30 ± 0.14 |"  # 24 of 40 objectives
    assert lines[-1] == "| output `label` | 0.20 | 0.00 ± 0.00 |"
