"""Console view of a running sweep."""

import io
import json

import pytest
from rich.console import Console

from auxlearn.executors.jobs import Outcome
from auxlearn.sweeps import view as module
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.sweep_file import SweepFile
from auxlearn.sweeps.view import ConsoleView, SweepProgress


@pytest.fixture
def scene(tmp_path):
    """Make a view of a sweep of so many seeds, with its progress, its trials and its output."""

    def make(seeds, terminal=True, **base):
        sweep = SweepFile(name="seen", base={"epochs": 4} | base, seeds=seeds)
        trials = plan_trials(sweep, expand_cells(sweep))
        progress = SweepProgress(len(trials), 1)
        for trial in trials:
            progress.trials[trial.digest] = trial
            progress.states[trial.digest] = "waiting"
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=terminal, width=90, height=60)
        return ConsoleView(console, SweepFolder(tmp_path)), progress, trials, screen

    return make


def write_metrics(view, trial, *values):
    path = view.folder.run(trial.digest).metrics_path
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ({"kind": "eval", "epoch": epoch + 1.0} for epoch in range(len(values)))
    metric = f"dev/{trial.config.metric}"
    rows = [json.dumps(row | {metric: value}) for row, value in zip(rows, values, strict=True)]
    path.write_text("\n".join([*rows, '{"kind": "ev']))


def drawn(view, progress):
    console = Console(width=90, no_color=True)
    with console.capture() as capture:
        console.print(view._table(progress))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_states_and_the_best_dev_metric_are_shown(scene):
    view, progress, trials, screen = scene(3)
    write_metrics(view, trials[0], 0.5, 0.75, 0.625)
    write_metrics(view, trials[1], 0.25, 0.125)
    for trial, state in zip(trials, ("finished", "running", "waiting"), strict=True):
        progress.states[trial.digest] = state
    progress.seconds.append(40.0)
    lines = drawn(view, progress)
    assert [line.split() for line in lines[1:5] if "seed" in line] == [
        ["seed", "0", "finished", "0.750"],
        ["seed", "1", "epoch", "2", "of", "4", "0.250"],
        ["seed", "2", "waiting"],
    ]
    assert lines[-1].startswith("1 of 3 trials finished, 1 running, about")
    progress.states[trials[2].digest] = "running"
    assert "seed 2  first epoch" in drawn(view, progress)[3]
    with view:
        view.update(progress)
    assert "epoch 2 of 4" in screen.getvalue()


def test_the_best_error_is_the_smallest(scene):
    view, progress, (trial,), _ = scene(1, kind="regression", metric="mae")
    write_metrics(view, trial, 0.5, 0.25, 0.75)
    progress.states[trial.digest] = "finished"
    assert drawn(view, progress)[1].split() == ["seed", "0", "finished", "0.250"]


def test_metrics_of_an_ended_trial_are_read_once(scene, monkeypatch):
    view, progress, trials, _ = scene(2)
    read = []
    monkeypatch.setattr(module, "_evaluations", lambda path: read.append(path.parent.name) or [])
    progress.states[trials[0].digest] = "finished"
    progress.states[trials[1].digest] = "running"
    for _ in range(3):
        drawn(view, progress)
    assert read.count(trials[0].digest) == 1
    assert read.count(trials[1].digest) == 3


@pytest.mark.parametrize(("ended", "active"), [(40, 0), (40, 2), (10, 30), (0, 40)])
def test_of_a_long_sweep_as_many_trials_are_shown_as_fit(scene, ended, active):
    view, progress, trials, _ = scene(ended + active + 5)
    for trial in trials[:ended]:
        progress.states[trial.digest] = "finished"
    for trial in trials[ended : ended + active]:
        progress.states[trial.digest] = "running"
    shown = view._shown(progress)
    assert len(shown) == module.TABLE_LINES
    running = [t for t in shown if progress.states[t.digest] == "running"]
    assert len(running) == min(active, module.TABLE_LINES)


def test_without_a_terminal_there_is_a_line_for_each_trial(scene):
    view, progress, trials, screen = scene(2, terminal=False)
    write_metrics(view, trials[0], 0.5, 0.75)
    progress.states[trials[0].digest] = "finished"
    with view:
        view.update(progress)
        view.trial_ended(trials[0], Outcome(trials[0].digest, "finished"), progress)
        view.trial_ended(trials[1], Outcome(trials[1].digest, "interrupted", "stopped"), progress)
    assert screen.getvalue() == "1/2  finished  seed 0  dev accuracy 0.750\n"
