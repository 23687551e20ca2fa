"""``train --report`` and ``sweep --report``, with training replaced."""

from __future__ import annotations

import pytest

from auxlearn.reports.page import FILE
from auxlearn.results.record import RunResults
from auxlearn.sweeps.jobs import Outcome
from auxlearn.sweeps.plan import expand_cells, plan_trials
from tests.cli.helpers import call
from tests.reports import runs


def test_train_writes_the_report_of_its_run(tmp_path, monkeypatch):
    data = runs.write_data(tmp_path / "data")
    run = tmp_path / "run"

    def train(config, reporter, dataset=None, executor=None):
        return RunResults.load(runs.write_run(run, data))

    monkeypatch.setattr("auxlearn.sweeps.branches.train", train)
    arguments = ["train", "--dataset", data, "--output", run]
    assert call(*arguments).exit_code == 0
    assert not (run / FILE).exists()
    assert f"report:     {run / FILE}" in call(*arguments, "--report").stdout
    assert (run / FILE).is_file()


@pytest.mark.parametrize("finished", [True, False])
def test_sweep_writes_the_report_also_after_failures(tmp_path, monkeypatch, finished):
    data = runs.write_data(tmp_path / "data")
    folder = tmp_path / "out"
    runs.write_sweep(folder, data)

    def run_sweep(sweep, place, executor, **options):
        if finished:
            return [place.record(one, True) for one in place.load_plan()]
        for trial in plan_trials(sweep, expand_cells(sweep)):
            (place.run(trial.digest).path / "results.json").unlink()
            place.save_failure(trial, Outcome(trial.digest, "out of memory", "<b>"))
        return [place.record(one, False) for one in place.load_plan()]

    monkeypatch.setattr("auxlearn.sweeps.execute.run_sweep", run_sweep)
    monkeypatch.setattr("auxlearn.sweeps.executors.LocalExecutor", _NoExecutor)
    result = call("sweep", tmp_path / "sweep.yaml", "--output", folder, "--report")
    assert result.exit_code == (0 if finished else 1), result.output
    text = (folder / FILE).read_text(encoding="utf-8")
    assert ("No trial has finished." in text) == (not finished)
    assert ("out of memory: &lt;b&gt;" in text) == (not finished)


class _NoExecutor:
    def __init__(self, *arguments):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None
