"""Estimates of the duration of a sweep."""

from __future__ import annotations

from pathlib import Path

import torch
from click.testing import CliRunner

from auxlearn.cli import cli
from auxlearn.core.errors import Interrupted
from auxlearn.sweeps.estimate import estimate_trials
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.sweep_file import read_sweep

FAILING_TASKS = str(Path(__file__).parent / "failing_tasks.py")


def test_a_trial_that_crashes_does_not_prevent_the_other_estimates(sweep_file, tmp_path):
    path = sweep_file(
        base={"plugins": [FAILING_TASKS]}, grid={"aux": ["crashing", "random_mlm"]}, seeds=1
    )
    sweep, before = read_sweep(path), torch.get_num_threads()
    trials = plan_trials(sweep, expand_cells(sweep))
    found = list(estimate_trials(trials, SweepFolder(tmp_path / "out"), None, 2))
    assert torch.get_num_threads() == before
    assert [members for members, _ in found] == [[trial] for trial in trials]
    (_, crashing), (_, fine) = found
    assert crashing.seconds is None
    assert "'crashing' (Crashing of" in crashing.source
    assert "failed in loss (ValueError: no such column: 'txet')" in crashing.source
    assert fine.source == "measured"
    assert fine.seconds > 0
    command = ["sweep", str(path), "--dry-run", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert "no estimate for 'crashing'" in done.output
    assert "(ValueError: no such column: 'txet')" in done.output


def test_a_stop_ends_the_estimates_after_the_plan_is_shown(sweep_file, tmp_path, monkeypatch):
    configs = []

    def stopped(config, reporter):
        configs.append(config)
        raise Interrupted("stopped at step 1")

    monkeypatch.setattr("auxlearn.training.run.train", stopped)
    path = sweep_file(base={"report_to": "tensorboard"}, grid={"epochs": [1, 2]}, seeds=1)
    command = ["sweep", str(path), "--dry-run", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 130, done.output
    assert "2 trials, 0 of them finished" in done.stdout
    assert [config.report_to for config in configs] == [()]  # trackers hear nothing of it
