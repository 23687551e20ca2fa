"""The table of the example: its verdicts, its resumption, and its Markdown."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from auxlearn.core.errors import UserError
from auxlearn.core.registry import TASKS

PATH = Path(__file__).parent.parent / "examples" / "clean_vs_shuffled.py"


@pytest.fixture(scope="module")
def example():
    """The names that the script defines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TASKS, "_registered", {})  # the script may be a plug-in of another test
        return runpy.run_path(str(PATH))


def record(*weights):
    """Rows of a run's record, ten steps apart, from weights of primary, clean and shuffled."""
    names = ("weight/primary", "weight/clean_labels", "weight/shuffled_labels")
    return [
        {"step": 10 * number, **dict(zip(names, row, strict=True)), "loss/primary": 1.0}
        for number, row in enumerate(weights, start=1)
    ]


def test_gaps_are_in_shares_of_all_weights(example):
    rows = record((1, 1, 1), (2, 3, 1), (0.0, 0.5, -0.5))
    assert example["gaps"](rows) == [(10, 0.0), (20, 2 / 6), (30, 1.0)]
    late = [{**row, "step": row["step"] + 200} for row in rows]
    assert example["gaps"](rows + late) == example["gaps"](rows)


def test_verdicts(example):
    verdict = example["verdict"]
    steps = range(10, 201, 10)
    stays = [(step, 0.4 if step >= 120 else 0.1) for step in steps]
    assert verdict(stays) == {"first": 120, "lasting": 120, "end": pytest.approx(0.4)}
    falls = [(step, 0.4 if step in (50, 170, 180, 190, 200) else 0.1) for step in steps]
    assert verdict(falls)["first"] == 50
    assert verdict(falls)["lasting"] == 170
    assert verdict(falls)["end"] == pytest.approx((4 * 0.4 + 0.1) / 5)
    by_chance = [(step, 0.4 if step == 90 else 0.1) for step in steps]
    assert verdict(by_chance) == {"first": 90, "lasting": None, "end": pytest.approx(0.1)}
    for start, lasting in ((180, 180), (190, None)):  # ten steps are too few to stay
        ends = [(step, 0.4 if step >= start else 0.1) for step in steps]
        assert (verdict(ends)["first"], verdict(ends)["lasting"]) == (start, lasting)
    never = [(step, 0.3) for step in steps]  # not above
    assert verdict(never) == {"first": None, "lasting": None, "end": pytest.approx(0.3)}


def test_a_stopped_table_trains_only_what_is_missing(example, tmp_path, monkeypatch):
    measure, trained = example["measure"], []

    def weights_by_step(rule, options, folder, seed):
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append((rule, seed, options))
        return record(*[(1, 2, 0)] * 20)

    monkeypatch.setitem(measure.__globals__, "weights_by_step", weights_by_step)
    path, rules = tmp_path / "found.json", ["equal", "meta", "random"]
    with pytest.raises(KeyboardInterrupt):
        measure(rules, 2, path)
    first, trained[:] = list(trained), []
    runs = measure(rules, 2, path)
    assert [(rule, seed) for rule, seed, _ in first + trained] == [
        ("meta", 0),
        ("random", 0),
        ("meta", 1),
        ("random", 1),
    ]
    assert first[0][2] == example["RULES"]["meta"]
    assert {rule: sorted(runs[rule]) for rule in rules} == {rule: ["0", "1"] for rule in rules}
    assert json.loads(path.read_text())["runs"] == runs

    lines = example["table"](runs).splitlines()
    assert (
        lines[2]
        == "| `meta` | 10 (10 to 10), 2 of 2 seeds | 10 (10 to 10), 2 of 2 seeds | 0.67 ± 0.00 |"
    )
    assert lines[4] == "| `equal` | never | never | 0.00 ± 0.00 |"


def test_a_file_of_other_settings_is_refused(example, tmp_path):
    path = tmp_path / "found.json"
    path.write_text('{"settings": {"steps": 1}, "runs": {}}')
    with pytest.raises(UserError, match="was written with other settings"):
        example["measure"](["equal"], 1, path)
