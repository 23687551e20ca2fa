"""The real engines: processes of loky, a local Ray, submitit's local jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from auxlearn.cli import cli
from auxlearn.errors import SweepError
from auxlearn.sweeps import executors
from auxlearn.sweeps.execute import run_sweep
from auxlearn.sweeps.executors import LocalExecutor, RayExecutor, SlurmExecutor
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import read_sweep
from auxlearn.sweeps.worker import Job
from tests.sweeps.conftest import InlineExecutor

KINDS = str(Path(__file__).parent / "trial_kinds.py")


def test_one_bad_trial_stops_no_other(sweep_file, tmp_path, monkeypatch):
    """A crash, a kill and a lack of memory are told apart, and the exit code tells of them."""
    safe = tmp_path / "safe"
    monkeypatch.setenv("AUXLEARN_TEST_SAFE", str(safe))
    path = sweep_file(
        base={"plugins": [KINDS], "eval_steps": 1},
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


@pytest.fixture
def two_gpus():
    """Address of a Ray cluster that believes to have two GPUs and four CPUs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={"num_cpus": 4, "num_gpus": 2})
    yield cluster.address
    cluster.shutdown()


def outcomes(executor, count: int) -> list[tuple[str, str]]:
    """Run so many jobs and return what each said, in two parts."""
    found = []
    for number in range(count):
        while len(executor._running) == executor.slots:
            found += executor.wait(1.0)
        executor.submit(Job(str(number), {}, "", str(Path.cwd()), 1))
    while len(found) < count:
        found += executor.wait(1.0)
    return [tuple(outcome.error.split()) for outcome in found]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
def test_trials_of_ray_share_out_the_gpus(two_gpus, monkeypatch):
    """Each job says which GPUs it sees and in which process it runs, and then crashes."""

    def crash(job):
        import os
        import time

        from auxlearn.sweeps.worker import Outcome

        time.sleep(0.5)
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all") or "none"
        return Outcome(job.digest, "crash", f"{seen} {os.getpid()}")

    monkeypatch.setattr(executors, "run_job", crash)
    with RayExecutor(address=two_gpus) as executor:
        assert executor.slots == 2
        found = outcomes(executor, 4)
        assert [sorted(gpu for gpu, _ in found[:2])] == [["0", "1"]]
        # What a crash on a GPU left in its process meets no other trial.
        assert len({process for _, process in found}) == 4
    with RayExecutor(jobs=4, address=two_gpus) as executor:
        assert executor.slots == 4
        assert sorted(gpu for gpu, _ in outcomes(executor, 4)) == ["0", "0", "1", "1"]
    with RayExecutor(gpus=0, address=two_gpus) as executor:
        assert executor.slots == 4
        assert {gpu for gpu, _ in outcomes(executor, 2)} == {"none"}


def test_slurm_has_no_parts_of_gpus(tmp_path):
    with pytest.raises(SweepError, match=r"whole GPUs only: --gpus 0\.5"):
        SlurmExecutor(tmp_path, gpus=0.5, cluster="local")
