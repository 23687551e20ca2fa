"""Regret and harm of learned weights: by hand from small records; the program on a tiny set."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from auxlearn.data.load import load_dataset
from auxlearn.errors import DataError, SweepError
from auxlearn.registry import WEIGHTINGS
from auxlearn.results.folder import RunFolder
from auxlearn.sweeps.plan import expand_cells, plan_trials
from benchmarks.regret import plan, program
from benchmarks.regret.analysis import best_alpha, differences, outcomes, paired, summaries
from benchmarks.regret.plan import (
    ALPHAS,
    HELD_OUT,
    PAIR,
    SETTINGS,
    TASKS,
    choose_settings,
    methods_of,
    rules,
    sweep_of,
    write_subset,
)
from benchmarks.regret.plots import draw_alpha
from benchmarks.regret.program import TimeUp, UntilDeadline, main
from benchmarks.regret.records import Record, RecordFile, course_of, settled
from benchmarks.regret.report import grouped, markdown, write_report
from tests.sweeps.conftest import InlineExecutor


def record(method: str, seed: int, dev: float, test: float, **more) -> Record:
    alpha = {"single": 0.0}.get(method)
    if method.startswith("fixed "):
        alpha = float(method.split()[1])
    known = {
        "setting": "set",
        "task": "" if method == "single" else "task",
        "constant": False,
        "seconds": 10.0,
        "steps": 100,
    }
    return Record(method=method, seed=seed, dev=dev, test=test, alpha=alpha, **(known | more))


def grid(dev: dict[float, float], test: dict[float, float], seeds=(0, 1), **more) -> list[Record]:
    """The single task and the fixed shares, the same for every seed."""
    return [
        record(
            "single" if alpha == 0 else f"fixed {alpha:g}", seed, dev[alpha], test[alpha], **more
        )
        for alpha in (0.0, *ALPHAS)
        for seed in seeds
    ]


DEV = dict(zip((0.0, *ALPHAS), (0.50, 0.55, 0.70, 0.60, 0.40, 0.30), strict=True))
TEST = dict(zip((0.0, *ALPHAS), (0.52, 0.58, 0.66, 0.69, 0.41, 0.20), strict=True))


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
    assert meta.error == pytest.approx(0.1 / 3**0.5)
    assert meta.errors_below == pytest.approx(2 * 3**0.5)


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


def test_every_learned_rule_takes_part():
    names = rules()
    assert {"meta", "tartan", "tartan_released", "uncertainty", "equal"} <= set(names)
    assert "fixed" not in names
    assert "random" in names or "random" not in WEIGHTINGS.names()
    methods = methods_of()
    assert len(methods) == 1 + len(TASKS) * (len(ALPHAS) + len(names))
    assert len({method.label for method in methods}) == len(methods)


def test_methods_can_be_chosen_and_varied():
    found = methods_of(["meta", "single"], ["l3mask"])
    assert [method.label for method in found] == ["single", "l3mask meta"]
    found = methods_of(["fixed"], ["l3mask"])
    assert [method.alpha for method in found] == list(ALPHAS)
    variant = {"meta": {"split": "train:0.2"}}
    found = methods_of(["meta(split=train:0.2)"], ["l3mask"], [variant])
    assert [method.settings["weights"] for method in found] == [variant]
    with pytest.raises(SweepError, match="did you mean 'meta'"):
        methods_of(["mta"])


def test_the_settings_are_trials():
    assert set(HELD_OUT) < {setting.name for setting in SETTINGS}
    for setting in SETTINGS:
        sweep = sweep_of(setting, methods_of(), range(2), "pydocs", {"encoder": "tiny"})
        trials = plan_trials(sweep, expand_cells(sweep))
        assert len(trials) == 2 * len(methods_of())


def test_settings_by_name_and_size():
    chosen = choose_settings(["mnli"], {"mnli": 50}, "tiny")
    assert [(setting.name, setting.folder) for setting in chosen] == [("mnli", "mnli-50")]
    assert len(choose_settings(None, {}, "tiny")) == len(SETTINGS)
    assert len(choose_settings(None, {}, "some/folder")) == 3
    with pytest.raises(SweepError, match="did you mean 'mnli'"):
        choose_settings(["mnlli"], {}, "tiny")


@pytest.fixture
def pairs(tmp_path) -> Path:
    """A folder of all data with one set of sentence pairs, under the name of QQP."""
    folder = tmp_path / "data" / "qqp"
    folder.mkdir(parents=True)
    for name, count in (("train", 40), ("dev", 12), ("test", 12)):
        rows = [
            {
                "text": f"which colour is number {number} of {name}",
                "text_pair": f"number {number % 5} is {'red' if number % 2 else 'blue'}",
                "label": "same" if number % 2 else "other",
            }
            for number in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_sample_is_drawn_once_and_is_a_data_set(pairs, tmp_path):
    target = tmp_path / "sample"
    write_subset(pairs, target, {"train": 20, "dev": None, "test": 6})
    found = load_dataset(str(target))
    assert [len(found.splits[name]) for name in ("train", "dev", "test")] == [20, 12, 6]
    assert found.splits["train"].text_pairs is not None
    assert found.splits["train"].labels.count(0) == 10
    assert set(found.splits["test"].texts) <= set(load_dataset(str(pairs)).splits["test"].texts)
    before = (target / "train.jsonl").read_bytes()
    write_subset(pairs, target, {"train": 20, "dev": None, "test": 6})
    assert (target / "train.jsonl").read_bytes() == before
    with pytest.raises(DataError, match="another sample"):
        write_subset(pairs, target, {"train": 21, "dev": None, "test": 6})


class Waiting(InlineExecutor):
    """Ends a trial only when it is waited for a second time."""

    def submit(self, job):
        self.jobs.append(job)

    def wait(self, seconds):
        return [self.jobs.pop()] if self.jobs else []


def test_no_trial_begins_after_the_deadline_and_running_ones_end():
    time = [0.0]
    executor = UntilDeadline(Waiting(), 10.0, lambda: time[0])
    assert executor.slots == 1
    executor.submit("job")
    time[0] = 11.0
    assert executor.slots == 0
    assert executor.wait(0.1) == ["job"]
    with pytest.raises(TimeUp):
        executor.wait(0.1)
    assert UntilDeadline(Waiting(), None).slots == 1


@pytest.fixture
def in_this_process(monkeypatch) -> None:
    monkeypatch.setattr(program, "LocalExecutor", lambda jobs, threads: InlineExecutor())


def command(pairs: Path, output: Path, encoder: Path) -> list[str]:
    given = f"--data {pairs.parent} --output {output} --only qqp --examples qqp=20 --epochs 1"
    given += f" --encoder {encoder} --max-length 16 --tasks random_mlm --methods single fixed meta"
    given += f" --records {output / 'records.jsonl'}"
    return [*given.split(), "--seeds", "1"]


def test_the_program_runs_resumes_and_reports(
    pairs, tmp_path, encoder_folder, in_this_process, capsys, monkeypatch
):
    monkeypatch.setattr(plan, "ALPHAS", (0.3,))
    monkeypatch.setattr("benchmarks.regret.analysis.ALPHAS", (0.3,))
    output, encoder = tmp_path / "out", encoder_folder("bert")
    given = command(pairs, output, encoder)
    assert main([*given, "--minutes", "0"]) == 0
    assert "0 of 3 trials finished" in capsys.readouterr().out
    assert main(given) == 0
    said = capsys.readouterr().out
    assert "3 of 3 trials finished, 0 failed" in said
    content = json.loads((output / "report" / "regret.json").read_text())
    assert len(content["records"]) == 3
    methods = {one["method"]: one for one in content["outcomes"]}
    assert set(methods) == {"single", "fixed 0.3", "meta"}
    assert methods["fixed 0.3"]["share"] == pytest.approx(0.3)
    assert methods["meta"]["regret"] is not None
    assert set(methods["meta"]["weights"]) == {"primary", "random_mlm"}
    assert content["held out"] == sorted(HELD_OUT)
    assert (output / "report" / "alpha.png").stat().st_size > 1000
    assert (output / "report" / "weights.png").stat().st_size > 1000
    runs = [RunFolder(path) for path in (output / "sweeps").glob("*/trials/*")]
    assert len(runs) == 3
    assert not any(run.model_path.exists() for run in runs)
    written = {run.path: (run.path / "results.json").stat().st_mtime_ns for run in runs}
    assert main(given) == 0  # nothing is run again
    assert {p: (p / "results.json").stat().st_mtime_ns for p in written} == written
    shutil.rmtree(output / "sweeps")  # the records outlive the run folders
    assert main(given) == 0
    assert "3 of 3 trials finished, 0 failed" in capsys.readouterr().out
    assert not (output / "sweeps").exists()
    again = json.loads((output / "report" / "regret.json").read_text())
    assert [again["records"], again["outcomes"]] == [content["records"], content["outcomes"]]


def test_the_file_of_records_returns_what_it_was_given(tmp_path):
    path = tmp_path / "records.jsonl"
    file = RecordFile(path)
    plain = record("fixed 0.3", 1, 0.5, 0.25)
    learned = record("meta", 0, 0.5, 0.25, course=((10, 0.1), (20, 0.12345678)), revision="abc")
    file.add({"sweep": "set-20", "seed": 1}, plain)
    file.add({"sweep": "set-20", "seed": 0}, learned)
    file.save()
    found = RecordFile(path)
    assert len(found) == 2
    assert found.get({"seed": 1, "sweep": "set-20"}) == plain
    assert found.get({"seed": 0, "sweep": "set-20"}) == learned
    assert found.get({"seed": 2, "sweep": "set-20"}) is None


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"trial": {}, "course": [1]}'])
def test_a_line_that_is_no_record_is_one_error(line, tmp_path, capsys):
    (tmp_path / "records.jsonl").write_text(line + "\n")
    given = ["--output", str(tmp_path), "--only", "pydocs", "--no-run"]
    assert main([*given, "--records", str(tmp_path / "records.jsonl")]) == 2
    assert "records.jsonl, line 1: not a record of a trial" in capsys.readouterr().err
    assert (tmp_path / "records.jsonl").read_text() == line + "\n"


def test_two_auxiliary_tasks_at_once_of_which_one_has_nothing_to_teach():
    found = methods_of(["meta", "fixed"], [PAIR])
    assert {tuple(one.settings["aux"]) for one in found} == {("random_mlm", "shuffled_labels")}
    sweep = sweep_of(choose_settings(["pydocs"], {}, "tiny")[0], found, [0], "pydocs", {})
    assert len(plan_trials(sweep, expand_cells(sweep))) == 1 + len(ALPHAS)


def test_bad_input_is_one_line(tmp_path, capsys):
    assert main(["--output", str(tmp_path), "--only", "qqp"]) == 2
    assert "error: setting 'qqp' needs the folder qqp in --data" in capsys.readouterr().err
    assert main(["--output", str(tmp_path), "--only", "nothing"]) == 2


def test_held_out_settings_are_reported_apart(tmp_path):
    records = [*grid(DEV, TEST, setting="chosen"), *grid(DEV, TEST, (0, 1, 2), setting="kept")]
    weights = {"primary": 0.8, "task": 0.2}
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


def test_the_tables_go_into_a_page(tmp_path):
    page = tmp_path / "docs" / "results" / "page.md"
    page.parent.mkdir(parents=True)
    page.write_text("before\n<!-- learned weights -->\nold\n<!-- /learned weights -->\nafter\n")
    records = tmp_path / "records.jsonl"
    file = RecordFile(records)
    options = program.read_options(["--output", str(tmp_path / "out")])
    for method in methods_of(["single", "meta"], ["l3mask"]):
        for seed in (0, 1):
            name = program.trial_of("qqp-1000", method, seed, options)
            course = ((10, 0.1),) if method.name == "meta" else ()
            found = record(method.name, seed, 0.5, 0.5, setting="qqp", course=course)
            found = replace(found, task=method.task)
            file.add(name, found)
    file.save()
    given = f"--output {tmp_path / 'out'} --only qqp --seeds 2 --no-run --records {records}"
    assert main([*given.split(), "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- learned weights -->\n**Settings")
    assert text.endswith("<!-- /learned weights -->\nafter\n")
    plot = tmp_path / "out" / "report" / "weights.png"
    assert (tmp_path / "docs/img/regret_weights.png").read_bytes() == plot.read_bytes()
    assert "| qqp | 2 | 50.0 ± 0.0 | 50.0 ± 0.0 | +0.0 |" in text
