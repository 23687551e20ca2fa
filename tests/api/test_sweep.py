"""``auxlearn.sweep``: sweeps from files and mappings, on data in files and in memory."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import auxlearn
from auxlearn.core.errors import ConfigError, SweepError, UserError
from tests.helpers import one_line
from tests.sweeps.conftest import InlineExecutor, write_dataset


@pytest.fixture(scope="module")
def settings(tmp_path_factory, encoder_folder):
    return {
        "dataset": str(write_dataset(tmp_path_factory.mktemp("data"))),
        "encoder": encoder_folder("bert"),  # a Path, which a file could not hold
        "epochs": 1,
        "batch_size": 12,
        "patience": 0,
        "device": "cpu",
    }


def frame_of(folder: str) -> pd.DataFrame:
    parts = [
        pd.read_json(Path(folder) / f"{name}.jsonl", lines=True).assign(split=name)
        for name in ("train", "dev", "test")
    ]
    return pd.concat(parts, ignore_index=True)


def test_a_mapping_runs_resumes_and_goes_into_a_comparison(settings, tmp_path, capsys):
    grid = {"learning_rate": np.array([1e-3, 1e-4])}
    source = {"name": "rates", "base": settings, "grid": grid, "seeds": (0, np.int64(1))}
    engine = InlineExecutor()
    results = auxlearn.sweep(source, output=tmp_path / "out", executor=engine)
    assert repr(results) == f"<SweepResults in {tmp_path / 'out'}: 4 trials, 4 finished>"
    assert len(engine.jobs) == 4
    assert "4/4  finished" in capsys.readouterr().err
    frame = results.to_frame()
    assert frame["learning_rate"].tolist() == [0.001, 0.001, 0.0001, 0.0001]
    assert frame["seed"].tolist() == [0, 1, 0, 1]
    written = json.loads((tmp_path / "out" / "results.json").read_text())["trials"]
    assert frame["test_accuracy"].tolist() == [
        one["evaluations"]["test"]["accuracy"] for one in written
    ]
    run = auxlearn.load_run(frame["folder"][2])
    assert run.evaluations["dev"].all.macro_f1 == frame["dev_macro_f1"][2]
    assert "<table" in results._repr_html_()
    assert "&lt;SweepResults" in results._repr_html_()

    compared = auxlearn.compare(results).to_frame()
    assert set(compared["method"]) == {"0.001", "0.0001"}

    again = InlineExecutor()
    for one in (source, tmp_path / "out" / "sweep.yaml"):
        assert auxlearn.sweep(one, output=tmp_path / "out", executor=again) == results
    assert again.jobs == []


def test_a_sweep_on_data_in_memory_is_known_wherever_its_folder_is(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = {**settings, "dataset": frame_of(settings["dataset"])}
    source = {"name": "frame", "base": base, "seeds": 1}
    found = auxlearn.sweep(source, output="sw", executor=InlineExecutor())
    again = InlineExecutor()
    for output in (tmp_path / "sw", "./sw/"):
        assert auxlearn.sweep(source, output=output, executor=again).trials == found.trials
    assert os.fspath(found) == "sw"
    assert found.folder == tmp_path / "sw"
    other = replace(found, files={})
    with pytest.raises(SweepError, match="sw holds other trials than these by now"):
        os.fspath(other)
    Path("sw").rename("moved")
    with one_line(SweepError, "there is no such folder any more"):
        auxlearn.compare(found)
    for one in (source, "moved/sweep.yaml"):
        assert auxlearn.sweep(one, output="moved", executor=again).trials == found.trials
    assert again.jobs == []


def test_results_of_a_sweep_are_of_no_later_one_on_other_data(settings, tmp_path):
    data = Path(shutil.copytree(settings["dataset"], tmp_path / "data"))
    source = {"name": "a", "base": {**settings, "dataset": str(data)}, "seeds": 1}
    found = auxlearn.sweep(source, output=tmp_path / "out", executor=InlineExecutor())
    assert os.fspath(found) == str(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    lines = (data / "train.jsonl").read_text().splitlines()
    (data / "train.jsonl").write_text("\n".join(lines[1:]))
    again = auxlearn.sweep(source, output=tmp_path / "out", executor=InlineExecutor())
    assert [trial.digest for trial in again.trials] == [trial.digest for trial in found.trials]
    assert os.fspath(again) == str(tmp_path / "out")
    with one_line(SweepError, "out holds other trials than these by now"):
        auxlearn.compare(found)


@pytest.mark.parametrize("memory", [False, True])
def test_a_cache_that_cannot_be_made_is_refused_before_the_first_trial(settings, tmp_path, memory):
    dataset = frame_of(settings["dataset"]) if memory else settings["dataset"]
    source = {"name": "a", "base": {**settings, "dataset": dataset}, "seeds": 2}
    engine = InlineExecutor()
    with one_line(UserError, "cannot write to the cache folder /proc/nothing", "with cache_dir"):
        auxlearn.sweep(source, output=tmp_path / "out", executor=engine, cache_dir="/proc/nothing")
    assert engine.jobs == []
    assert not (tmp_path / "out").exists()


def test_data_in_memory_can_have_a_name_and_a_column_of_splits(settings, tmp_path):
    frame = frame_of(settings["dataset"]).rename(columns={"split": "part"})
    source = {"name": "frame", "base": {**settings, "dataset": frame}, "seeds": 1}
    names = {"dataset_name": "reviews", "split_column": "part"}
    found = auxlearn.sweep(source, output=tmp_path / "out", executor=InlineExecutor(), **names)
    run = auxlearn.load_run(found.folder / "trials" / found.trials[0].digest)
    assert run.dataset.name == "reviews"
    assert run.dataset.examples["test"] > 0
    assert auxlearn.compare(found).blocks[0].columns[0].dataset == "reviews"


def test_a_failed_trial_is_among_the_results(settings, tmp_path):
    grid = {"aux": [[], {"random_mlm": {"corpus": "nowhere.txt"}}]}
    source = {"name": "fails", "base": settings, "grid": grid, "seeds": 1}
    results = auxlearn.sweep(source, output=tmp_path / "out", executor=InlineExecutor())
    assert [trial.state for trial in results.failed] == ["error"]
    assert "1 finished, 1 error" in repr(results)
    assert "nowhere.txt" in results.to_frame()["error"][1]


def test_a_refused_sweep_saves_no_data(settings, tmp_path):
    base = {**settings, "dataset": frame_of(settings["dataset"]), "epochs": 0}
    with pytest.raises(ConfigError, match="epochs"):
        auxlearn.sweep({"name": "x", "base": base}, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="dataset_name is for a data set in memory"):
        auxlearn.sweep({"name": "x", "base": {}}, output=tmp_path / "out", dataset_name="reviews")
    with pytest.raises(ConfigError, match="unknown executor 'slrum': did you mean 'slurm'"):
        auxlearn.sweep({"name": "x", "base": {}}, output=tmp_path / "out", executor="slrum")
