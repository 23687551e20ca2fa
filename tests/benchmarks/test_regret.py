"""Regret and harm of learned weights, by hand from small records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from benchmarks.regret.analysis import best_alpha, differences, outcomes, paired, summaries
from benchmarks.regret.plan import (
    ALPHAS,
)
from benchmarks.regret.plots import draw_alpha
from benchmarks.regret.records import course_of, settled
from benchmarks.regret.report import grouped, markdown, write_report
from tests.benchmarks.regret_records import DEV, TEST, grid, record


def outcome_of(found, method):
    return next(outcome for outcome in found if outcome.method == method)


def test_regret_is_against_the_alpha_that_dev_chooses():
    found = outcomes([*grid(DEV, TEST), record("meta", 0, 0.9, 0.60), record("meta", 1, 0.9, 0.64)])
    meta = outcome_of(found, "meta")
    assert (meta.alpha, meta.best) == (0.3, 0.66)  # not 0.5, which is better on test alone
    assert meta.test == pytest.approx(0.62)
    assert meta.regret == pytest.approx(0.04)
    assert meta.difference == pytest.approx(0.10)
    assert (meta.grid, meta.grid_seeds) == (pytest.approx(TEST), 2)
    assert outcome_of(found, "fixed 0.3").regret == pytest.approx(0.0)
    assert outcome_of(found, "single").regret == pytest.approx(0.14)
    assert outcome_of(found, "single").difference == 0.0


def test_the_single_task_may_be_the_best_alpha():
    dev = DEV | {0.0: 0.99}
    meta = outcome_of(outcomes([*grid(dev, TEST), record("meta", 0, 0, 0.5)]), "meta")
    assert (meta.alpha, meta.best) == (0.0, 0.52)
    assert meta.regret == pytest.approx(0.02)  # over the seed that meta has


def test_a_grid_with_gaps_gives_no_regret_but_a_difference():
    some = [r for r in grid(DEV, TEST) if r.method != "fixed 0.9"]
    meta = outcome_of(outcomes([*some, record("meta", 0, 0.9, 0.60)]), "meta")
    assert (meta.regret, meta.alpha, meta.grid_seeds) == (None, None, 0)
    assert meta.difference == pytest.approx(0.08)


def test_only_seeds_that_every_alpha_has_choose():
    by_alpha = {
        alpha: {seed: record(f"fixed {alpha}", seed, DEV[alpha], 0) for seed in (0, 1)}
        for alpha in (0.0, *ALPHAS)
    }
    assert best_alpha(by_alpha) == (0.3, [0, 1])
    by_alpha[0.9] = {1: by_alpha[0.9][1]}
    by_alpha[0.7][0] = replace(by_alpha[0.7][0], dev=1.0)  # a seed that 0.9 lacks
    assert best_alpha(by_alpha) == (0.3, [1])
    by_alpha[0.1] = {0: by_alpha[0.1][0]}
    assert best_alpha(by_alpha) is None


def test_of_equal_means_the_smallest_alpha_wins():
    level = dict.fromkeys(DEV, 0.5)
    assert outcome_of(outcomes(grid(level, TEST)), "single").alpha == 0.0


def test_differences_are_paired_by_seed():
    # differences .1, .2, .3: mean .2, deviation .1
    difference, error = paired([0.5, 0.6, 0.7], [0.4, 0.4, 0.4])
    assert (difference, error) == (pytest.approx(0.2), pytest.approx(0.1 / 3**0.5))
    assert paired([0.5, 0.6, 0.7], [0.4, 0.5, 0.6])[1] is None  # no spread
    assert paired([0.5, 0.7], [0.4, 0.4]) == (pytest.approx(0.2), None)
    singles = [record("single", seed, 0, 0.3 + 0.1 * seed) for seed in range(4)]
    rule = [record("meta", seed, 0, test) for seed, test in ((0, 0.2), (1, 0.2), (2, 0.2), (7, 0))]
    meta = outcome_of(outcomes([*singles, *rule]), "meta")
    assert meta.seeds == 4
    assert meta.difference == pytest.approx(-0.2)  # over seeds 0, 1 and 2
    assert (meta.single, meta.single_deviation) == (pytest.approx(0.4), pytest.approx(0.1))
    assert meta.error == pytest.approx(0.1 / 3**0.5)
    assert meta.errors_below == pytest.approx(2 * 3**0.5)


@pytest.mark.parametrize("seeds", [3, 4, 5, 7])
@pytest.mark.parametrize("loss", [0.1, 0.032, 0.003, 0.0071])
def test_one_seed_that_differs_is_one_standard_error_below(seeds, loss):
    singles = [record("single", seed, 0, 0.3 + 0.1 * seed) for seed in range(seeds)]
    rule = [record("meta", seed, 0, 0.3 + 0.1 * seed - loss * (not seed)) for seed in range(seeds)]
    found = outcomes([*singles, *rule])
    assert outcome_of(found, "meta").errors_below == 1
    assert next(s for s in summaries(found) if s.method == "meta").below_one == 0


def test_time_is_over_fixed_weights_of_the_same_seed():
    fixed = grid(DEV, TEST, seeds=(0,)) + grid(DEV, TEST, seeds=(1,), seconds=40.0)
    rule = [record("meta", 0, 0, 0, seconds=15.0), record("meta", 1, 0, 0, seconds=80.0, steps=50)]
    meta = outcome_of(outcomes([*fixed, *rule]), "meta")
    assert meta.time == pytest.approx((1.5 + 2.0) / 2)
    assert meta.step_time == pytest.approx((1.5 + 4.0) / 2)


def test_a_summary_weighs_settings_alike():
    records = []
    for setting, test in (("a", 0.60), ("b", 0.66), ("c", 0.66)):
        records += grid(DEV, TEST, setting=setting)
        records += [record("meta", s, 0, test, setting=setting) for s in (0, 1)]
    meta = next(s for s in summaries(outcomes(records)) if s.method == "meta")
    # regrets .06, 0, 0; differences .08, .14, .14
    assert (meta.task, meta.settings, meta.regrets, meta.runs) == ("task", 3, 3, 6)
    assert meta.regret == pytest.approx(0.02)
    assert meta.regret_error == pytest.approx(0.02)
    assert meta.difference == pytest.approx(0.12)
    assert meta.difference_error == pytest.approx(0.02)


def test_settings_below_the_single_task_are_counted_by_standard_errors():
    records = grid(DEV, TEST, seeds=(0, 1, 2))
    records += [record("bad", s, 0, 0.30 + 0.01 * s) for s in range(3)]
    records += [record("worse", s, 0, 0.50 + 0.01 * (s == 1)) for s in range(3)]
    records += [record("same", s, 0, 0.51 + 0.02 * s) for s in range(3)]
    found = {s.method: s for s in summaries(outcomes(records))}
    assert (found["bad"].below_one, found["bad"].below_two, found["bad"].with_error) == (1, 1, 1)
    assert found["bad"].worst == pytest.approx(0.21 / (0.01 / 3**0.5))
    assert (found["same"].below_one, found["same"].below_two) == (0, 0)


def test_a_constant_prediction_counts_where_the_single_task_makes_another():
    singles = [record("single", 0, 0, 0.5), record("single", 1, 0, 0.4, constant=True)]
    rule = [record("meta", seed, 0, 0.4, constant=True) for seed in (0, 1)]
    found = outcomes([*singles, *rule])
    assert (outcome_of(found, "meta").constant, outcome_of(found, "meta").worsened) == (2, 1)
    assert next(s for s in summaries(found) if s.method == "meta").worsened == 1


def test_course_is_the_share_of_the_weights():
    rows = [
        {"step": 10, "weight/primary": 0.5, "weight/mlm": 0.5},
        {"step": 20, "dev/accuracy": 0.5},
        {"step": 20, "weight/primary": 3.0, "weight/mlm": 1.0},  # need not sum to 1
        {"step": 30, "weight/primary": 1.0},  # the primary task alone has no share to learn
    ]
    assert course_of(rows) == ((10, 0.5), (20, 0.25))


@pytest.mark.parametrize(
    ("shares", "wanted"),
    [
        ((0.5, 0.5, 0.5, 0.5), 0.0),
        ((0.5, 0.4, 0.32, 0.3), 0.75),
        ((0.3, 0.9, 0.3, 0.3), 0.75),  # near, away, and near again
        ((0.5, 0.9, 0.1, 0.8), 1.0),
    ],
)
def test_weights_have_settled_when_they_stay_near_their_end(shares, wanted):
    course = tuple(zip((10, 20, 30, 40), shares, strict=True))
    assert settled(course, 40) == wanted


def test_without_weights_nothing_settles():
    assert settled((), 40) is None


def test_held_out_settings_are_reported_apart(tmp_path):
    records = [*grid(DEV, TEST, setting="chosen"), *grid(DEV, TEST, (0, 1, 2), setting="kept")]
    weights = {"primary": 0.8, "task": 0.2}
    records += [record("single", 7, 0, 0.9, setting="kept")]  # a seed that the rule does not have
    records += [
        record("meta", seed, 0, test, setting="kept", weights=weights)
        for seed, test in ((0, 0.54), (1, 0.56), (2, 0.55))
    ]
    found = outcomes(records)
    groups = grouped(found, ["kept"])
    assert [{o.setting for o in members} for members in groups.values()] == [{"chosen"}, {"kept"}]
    text = "\n".join(markdown(found, "meta", differences(records, "meta"), ["kept"]))
    assert text.index("**Settings that defaults were chosen by**") < text.index("**Held-out")
    assert "| kept (held out) | 3 | 52.0 ± 0.0 | 55.0 ± 1.0 | +3.0 ± 0.6 | 0.20 |  |" in text
    assert "**All settings**" in text
    assert "| fixed 0.1 | task | 2 | +6.0 ± 0.0 |" in text
    row = "52.0 | 58.0 | 66.0 | 69.0 | 41.0 | 20.0 | 0.3 | 66.0 |"
    assert f"| chosen | 2 | {row}  |" in text
    assert f"| kept (held out) | 3 | {row} +11.0 |" in text
    assert "| meta | task | 1 | +3.0 | 5.20 | 0 of 1 | 0 of 1 | 0 of 3 | +11.0 |" in text
    written = write_report(records, ["kept"], tmp_path, {})
    assert (tmp_path / "regret.md").read_text() == written
    assert write_report([], [], tmp_path / "empty", {}) == "\n"


def test_other_rules_stand_beside_the_first_one(tmp_path):
    records = []
    for setting, gap in (("one", 0.02), ("kept", -0.04)):
        for seed in range(3):
            first = 0.5 + 0.1 * seed
            records += [
                record("single", seed, 0, 0.1, setting=setting),
                record("meta", seed, 0, first, setting=setting),
                record("other", seed, 0, first + gap + 0.01 * (seed - 1), setting=setting),
            ]
    records.append(record("meta(every=2)", 1, 0, 0.63, setting="one"))
    records.append(record("meta(every=2)", 7, 0, 0.9, setting="one"))  # no other has this seed
    by_name = {(one.method, one.setting): one for one in differences(records, "meta")}
    assert set(by_name) == {("other", "one"), ("other", "kept"), ("meta(every=2)", "one")}
    assert by_name["other", "one"].mean == pytest.approx(0.02)
    assert by_name["other", "one"].error == pytest.approx(0.01 / 3**0.5)
    assert (by_name["meta(every=2)", "one"].seeds, by_name["meta(every=2)", "one"].error) == (
        1,
        None,
    )
    text = write_report(records, ["kept"], tmp_path, {})
    assert "**Other rules minus `meta`, task**" in text
    assert "| rule | seeds | one | kept (held out) | mean ± s.e. over settings |" in text
    assert "| other | 3 | +2.0 ± 0.6 | -4.0 ± 0.6 | -1.0 ± 3.0 |" in text
    assert "| meta(every=2) | 1 | +3.0 |  | +3.0 |" in text
    assert "**`meta`, task**" in text
    assert "**`other`" not in text


def test_the_plot_has_the_seeds_that_all_have():
    course = ((10, 0.2),)
    records = [*grid(DEV, TEST), record("single", 2, 0, 0.9)]  # no share has the third seed
    records += [record("meta", seed, 0, 0.6 + 0.1 * seed, course=course) for seed in (1, 2)]
    axes = Figure().subplots()
    draw_alpha(axes, records, "meta")
    line, *_, diamond = axes.lines
    assert line.get_ydata() == pytest.approx([100 * test for test in TEST.values()])
    assert (diamond.get_xdata(), diamond.get_ydata()) == (
        pytest.approx([0.2]),
        pytest.approx([70]),  # seed 1 alone
    )
    empty = Figure().subplots()
    draw_alpha(empty, [], "meta")
    assert not empty.lines
