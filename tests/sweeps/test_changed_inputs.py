"""Trials whose data have changed are trained again, and their earlier results are kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from auxlearn.executors.worker import run_job
from auxlearn.sweeps.execute import run_sweep, trial_state
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import rounds
from auxlearn.sweeps.sweep_file import read_sweep
from auxlearn.training.inputs import InputReader
from auxlearn.training.loop import TrainingLoop
from tests.helpers import read_lines, write_splits
from tests.sweeps.conftest import InlineExecutor, Messages


@pytest.fixture
def data(fast_settings, tmp_path) -> Path:
    """A data set that a test may change."""
    return Path(shutil.copytree(fast_settings["dataset"], tmp_path / "data"))


@pytest.fixture
def sweep(sweep_file, data):
    return sweep_file(base={"dataset": str(data), "epochs": 1})


def start(path: Path, folder: Path):
    view, executor = Messages(), InlineExecutor()
    records = run_sweep(read_sweep(path), SweepFolder(folder), executor, view=view)
    assert all(record.finished for record in records), [record.error for record in records]
    return [job.digest for job in executor.jobs], view.lines, records


def states(path: Path, folder: Path) -> list[str]:
    """Return the states of the trials in a dry run."""
    (trials,) = rounds(read_sweep(path), lambda _: None)
    reader = InputReader()
    return [trial_state(SweepFolder(folder), trial, reader) for trial in trials]


def relabel(data: Path) -> None:
    """Give every example of dev one class, so that the metrics must change."""
    rows = read_lines(data / "dev.jsonl")
    write_splits(data, dev=[row | {"label": "method"} for row in rows])


def test_trials_with_changed_data_are_trained_again_and_earlier_results_kept(sweep, data, tmp_path):
    folder = tmp_path / "out"
    first, lines, before = start(sweep, folder)
    assert lines == []
    old = {digest: (folder / "trials" / digest / "results.json").read_bytes() for digest in first}
    assert states(sweep, folder) == ["finished"] * 2
    relabel(data)
    assert states(sweep, folder) == ["changed"] * 2
    again, lines, after = start(sweep, folder)
    assert again == first
    assert lines == [
        f"'seed {seed}' is trained again, as the data set (dev) has changed since: its "
        f"earlier results are in {folder}/superseded/{digest}-1"
        for seed, digest in enumerate(first)
    ]
    assert [record.dev for record in after] != [record.dev for record in before]
    for digest in first:
        kept = folder / "superseded" / f"{digest}-1"
        assert (kept / "results.json").read_bytes() == old[digest]
        assert (kept / "model" / "model.safetensors").is_file()
    relabel(data)  # the file is written again with the same content
    assert start(sweep, folder)[:2] == ([], [])


def test_a_kill_while_results_are_moved_aside_loses_nothing(sweep, data, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    first, _, _ = start(sweep, folder)
    relabel(data)
    real, killed_when = os.rename, []

    def rename(source, target):
        if not killed_when:
            killed_when.append("before")
            raise SystemExit
        real(source, target)
        if len(killed_when) == 1:
            killed_when.append("after")
            raise SystemExit

    monkeypatch.setattr(os, "rename", rename)
    for _ in range(2):
        with pytest.raises(SystemExit):
            start(sweep, folder)
        for digest in first:
            trial, kept = folder / "trials" / digest, folder / "superseded" / f"{digest}-1"
            assert (trial / "results.json").is_file() != (kept / "results.json").is_file()
    assert killed_when == ["before", "after"]
    assert sorted(start(sweep, folder)[0]) == sorted(first)
    assert len(list(folder.glob("superseded/*/results.json"))) == 2
    assert len(list(folder.glob("trials/*/results.json"))) == 2


def test_an_unfinished_trial_with_changed_data_is_trained_again(sweep, data, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    run, wait = TrainingLoop.run, InlineExecutor.wait

    def interrupted(self):
        run(self)
        raise KeyboardInterrupt

    def stopping(self, seconds):
        if wait(self, seconds):
            raise SystemExit
        return []

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "run", interrupted)
        patch.setattr(InlineExecutor, "wait", stopping)
        with pytest.raises(SystemExit):
            start(sweep, folder)
    assert len(list(folder.glob("trials/*/checkpoint/latest.json"))) == 1
    relabel(data)
    jobs, lines, _ = start(sweep, folder)
    assert len(jobs) == 2
    assert len(lines) == 1
    assert "'seed 0' is trained again, as the data set (dev) has changed since" in lines[0]


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


def test_data_are_read_once_for_all_trials(sweep_file, data, tmp_path, monkeypatch):
    from auxlearn.training import inputs

    path = sweep_file(base={"dataset": str(data), "epochs": 1}, seeds=3)
    start(path, tmp_path / "out")
    reads, real = [], inputs.load_dataset
    monkeypatch.setattr(inputs, "load_dataset", lambda *a, **k: reads.append(a) or real(*a, **k))
    assert start(path, tmp_path / "out")[0] == []
    assert len(reads) == 1


def test_a_checkpoint_left_beside_results_is_deleted(sweep, tmp_path):
    folder = tmp_path / "out"
    (digest, _), _, _ = start(sweep, folder)
    left = folder / "trials" / digest / "checkpoint" / "step-00000003"
    left.mkdir(parents=True)
    (left / "encoder.safetensors").write_bytes(b"x")
    assert start(sweep, folder)[0] == []
    assert not left.parent.exists()


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
