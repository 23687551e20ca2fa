"""The program of the regret benchmark: its plan, its records, and a whole call on a tiny set."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from auxlearn.core.errors import DataError, SweepError
from auxlearn.core.registry import WEIGHTINGS
from auxlearn.data.load import load_dataset
from auxlearn.results.folder import RunFolder
from auxlearn.sweeps.plan import expand_cells, plan_trials
from benchmarks.regret import plan, program
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
from benchmarks.regret.program import TimeUp, UntilDeadline, main
from benchmarks.regret.records import RecordFile
from tests.benchmarks.regret_records import record
from tests.sweeps.conftest import InlineExecutor


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


def test_two_auxiliary_tasks_at_once_of_which_one_has_nothing_to_teach():
    found = methods_of(["meta", "fixed"], [PAIR])
    assert {tuple(one.settings["aux"]) for one in found} == {("random_mlm", "shuffled_labels")}
    sweep = sweep_of(choose_settings(["pydocs"], {}, "tiny")[0], found, [0], "pydocs", {})
    assert len(plan_trials(sweep, expand_cells(sweep))) == 1 + len(ALPHAS)


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


def test_bad_input_is_one_line(tmp_path, capsys):
    assert main(["--output", str(tmp_path), "--only", "qqp"]) == 2
    assert "error: setting 'qqp' needs the folder qqp in --data" in capsys.readouterr().err
    assert main(["--output", str(tmp_path), "--only", "nothing"]) == 2


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
