"""Trials whose data have changed are refused; where trials work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from auxlearn.core.errors import SweepError
from auxlearn.executors.worker import run_job
from auxlearn.sweeps.execute import run_sweep, trial_state
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import rounds
from auxlearn.sweeps.sweep_file import read_sweep
from auxlearn.training.inputs import InputReader
from tests.helpers import Messages, one_line, read_lines, write_splits
from tests.sweeps.conftest import InlineExecutor


@pytest.fixture
def data(fast_settings, tmp_path) -> Path:
    """A data set that a test may change."""
    return Path(shutil.copytree(fast_settings["dataset"], tmp_path / "data"))


@pytest.fixture
def sweep(sweep_file, data):
    return sweep_file(base={"dataset": str(data), "epochs": 1})


def start(path: Path, folder: Path):
    shown, executor = Messages(), InlineExecutor()
    records = run_sweep(read_sweep(path), SweepFolder(folder), executor, reporter=shown)
    assert all(record.finished for record in records), [record.error for record in records]
    return [job.digest for job in executor.jobs], shown.lines, records


def states(path: Path, folder: Path) -> list[str]:
    """Return the states of the trials in a dry run."""
    (trials,) = rounds(read_sweep(path), lambda _: None)
    reader = InputReader()
    return [trial_state(SweepFolder(folder), trial, reader) for trial in trials]


def relabel(data: Path) -> None:
    """Give every example of dev one class, so that the metrics must change."""
    rows = read_lines(data / "dev.jsonl")
    write_splits(data, dev=[row | {"label": "method"} for row in rows])


def test_trials_with_changed_data_are_refused(sweep, data, tmp_path):
    folder = tmp_path / "out"
    (digest, _), lines, _ = start(sweep, folder)
    ended = [line.split("  ")[:2] for line in lines if "finished" in line]
    assert ended == [["1/2", "finished"], ["2/2", "finished"]]
    assert states(sweep, folder) == ["finished"] * 2
    kept = (data / "dev.jsonl").read_bytes()
    relabel(data)
    assert states(sweep, folder) == ["changed"] * 2
    with one_line(SweepError, "'seed 0'", "the data set (dev) has changed", f"trials/{digest}"):
        start(sweep, folder)
    (data / "dev.jsonl").write_bytes(kept)
    assert start(sweep, folder)[0] == []


def test_finished_trials_are_kept_where_the_data_are_missing(sweep, data, tmp_path):
    folder = tmp_path / "out"
    _, _, before = start(sweep, folder)
    data.rename(tmp_path / "elsewhere")
    jobs, lines, after = start(sweep, folder)
    assert jobs == []
    assert after == before
    assert len(lines) == 1
    assert lines[0].startswith("the data set is not there to compare: ")
    assert lines[0].endswith(": finished trials are kept")


def test_relative_paths_are_relative_to_the_folder_that_the_sweep_was_started_in(
    sweep_file, fast_settings, data, tmp_path, monkeypatch
):
    shutil.copytree(fast_settings["encoder"], tmp_path / "encoder")
    (tmp_path / "other").mkdir()
    shutil.copy(data / "test.jsonl", tmp_path / "other" / "test.jsonl")
    shutil.copy(data / "dev.jsonl", tmp_path / "validation.jsonl")
    (tmp_path / "corpus.txt").write_text("The parser is faster.\nThe tagger is not.\n")
    path = sweep_file(
        base={
            "dataset": "data",
            "encoder": "./encoder",
            "ood": "other",
            "aux": {"random_mlm": {"corpus": "corpus.txt"}},
            "weights": {"meta": {"horizon": "steps", "split": "validation.jsonl"}},
            "epochs": 1,
        },
        seeds=1,
    )
    monkeypatch.chdir(tmp_path)
    (trials,) = rounds(read_sweep(path), lambda _: None)
    job = SweepFolder(Path("out")).job(trials[0], 1, None)
    away = tmp_path / "a machine's own folder"
    away.mkdir()
    monkeypatch.chdir(away)
    outcome = run_job(job)
    assert (outcome.state, outcome.error) == ("finished", "")
    assert Path.cwd() == away
    assert SweepFolder(tmp_path / "out").run(trials[0].digest).finished
    assert list(away.iterdir()) == []


def test_a_machine_without_the_folder_of_the_sweep_reports_it(sweep, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (trials,) = rounds(read_sweep(sweep), lambda _: None)
    job = SweepFolder(tmp_path / "out").job(trials[0], 1, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").rmdir()
    outcome = run_job(job)
    assert outcome.state == "error"
    assert f"cannot open {tmp_path}/gone (No such file or directory)" in outcome.error
