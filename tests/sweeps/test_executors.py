"""The real engines: processes of loky, a local Ray, submitit's local jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from auxlearn.cli import cli
from auxlearn.sweeps.execute import run_sweep
from auxlearn.sweeps.executors import LocalExecutor, RayExecutor, SlurmExecutor
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import read_sweep
from tests.sweeps.conftest import InlineExecutor

KINDS = str(Path(__file__).parent / "trial_kinds.py")


def test_one_bad_trial_stops_no_other(sweep_file, tmp_path, monkeypatch):
    """A crash, a kill and a lack of memory are told apart, and the exit code tells of them."""
    safe = tmp_path / "safe"
    monkeypatch.setenv("AUXLEARN_TEST_SAFE", str(safe))
    path = sweep_file(
        base={"plugins": [KINDS], "eval_every": 1},
        grid={"aux": ["crashing", "killed", "hungry", "random_mlm"]},
        seeds=1,
    )
    out = tmp_path / "out"
    command = ["sweep", str(path), "--output", str(out), "--threads", "1"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1, done.output
    trials = {t["cell"]["aux"]: t for t in json.loads((out / "results.json").read_text())["trials"]}
    assert {name: trial["state"] for name, trial in trials.items()} == {
        "crashing": "crash",
        "killed": "killed",
        "hungry": "out of memory",
        "random_mlm": "finished",
    }
    assert "SIGKILL" in trials["killed"]["error"]
    assert "1 of 4 trials finished" in done.output

    safe.write_text("")  # the next start goes on with what was killed, and with nothing else
    records = run_sweep(read_sweep(path), SweepFolder(out), resumed := InlineExecutor())
    assert [list(job.config["aux"][0]) for job in resumed.jobs] == [["killed"]]
    assert [record.state for record in records] == [
        "crash",
        "finished",
        "out of memory",
        "finished",
    ]
    log = (out / "logs" / f"{trials['killed']['digest']}.log").read_text()
    assert log == "" or "Traceback" not in log


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
def test_every_engine_gives_the_same_numbers(sweep_file, tmp_path):
    path = sweep_file(grid={"method": {"a": {}, "b": {"aux": "l3mask"}}}, seeds=1)
    found = {}
    for name, make in {
        "inline": InlineExecutor,
        "local": lambda: LocalExecutor(jobs=1, threads=1),
        "ray": lambda: RayExecutor(jobs=1, threads=1),
        "slurm": lambda: SlurmExecutor(tmp_path / "jobs", jobs=1, threads=1, cluster="local"),
    }.items():
        folder = SweepFolder(tmp_path / name)
        with make() as executor:
            records = run_sweep(read_sweep(path), folder, executor)
        assert [record.state for record in records] == ["finished"] * 2
        found[name] = (folder.path / "results.json").read_bytes()
    assert len(set(found.values())) == 1
