"""Executors with their real engines, and the program under signals, which leaves no worker."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from joblib.externals.loky import process_executor

from auxlearn.core.errors import SweepError
from auxlearn.executors import ray as ray_engine
from auxlearn.executors.jobs import Job
from auxlearn.executors.local import LocalExecutor, default_threads
from auxlearn.executors.ray import RayExecutor
from auxlearn.executors.slurm import SlurmExecutor
from auxlearn.sweeps.execute import run_sweep
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.sweep_file import read_sweep
from tests.cli.helpers import call
from tests.sweeps.conftest import FAILING_TASKS, InlineExecutor


@pytest.mark.parametrize(
    ("given", "threads"), [("1", 1), ("3,2", 3), ("", 4), ("0", 4), ("many", 4), (None, 4)]
)
def test_trials_take_the_threads_of_the_environment_or_their_part_of_the_cores(
    monkeypatch, given, threads
):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert default_threads(jobs=2) == threads


def test_without_shared_memory_one_line_says_what_is_needed(sweep_file, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    refused.SEM_VALUE_MAX = 2**31 - 1
    locks = importlib.import_module("joblib.externals.loky.backend.synchronize")
    monkeypatch.setattr(locks, "_SemLock", refused)
    error = call("sweep", sweep_file(seeds=1), "--output", tmp_path / "out")
    assert error.exit_code == 2, error.output
    assert "no process can be started here (Permission denied)" in error.output


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_without_standard_output_is_told_to_set_it(stream, monkeypatch):
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(SweepError, match=r"no standard output or error, .* set sys\.stdout"):
        LocalExecutor()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_of_the_terminal_does_not_end_a_trial_that_starts(number, tmp_path):
    """It goes to all processes of the terminal; the sweep's own one ends the others."""
    with LocalExecutor(jobs=1, threads=1) as executor:
        executor.submit(Job("d", len, {"nosuch": 1}, str(tmp_path / "log"), str(tmp_path), 1))
        (process,) = executor._slots[0]._pool._processes
        os.kill(process, number)
        while not (ended := executor.wait(1.0)):
            pass
    assert [outcome.state for outcome in ended] == ["error"]
    assert "nosuch" in ended[0].error


def test_a_worker_that_loky_ends_for_its_memory_warns_of_nothing(tmp_path):
    with warnings.catch_warnings(record=True) as shown, LocalExecutor(jobs=1, threads=1) as one:
        warnings.simplefilter("always")
        one.submit(Job("d", len, {"nosuch": 1}, str(tmp_path / "log"), str(tmp_path), 1))
        words = "A worker stopped while some jobs were given to the "
        assert words in inspect.getsource(process_executor)
        warnings.warn(f"{words}executor.", UserWarning, stacklevel=1)
        while not one.wait(1.0):
            pass
    assert shown == []


@pytest.mark.slow
def test_every_kind_of_failure_is_named(sweep_file, tmp_path):
    states = {"crashing": "crash", "killed": "killed", "hungry": "out of memory"}
    path = sweep_file(
        base={"plugins": [FAILING_TASKS], "eval_steps": 1}, grid={"aux": list(states)}, seeds=1
    )
    with pytest.MonkeyPatch.context() as patch, LocalExecutor(jobs=1, threads=1) as executor:
        patch.setenv("AUXLEARN_TEST_SAFE", str(tmp_path / "safe"))
        records = run_sweep(read_sweep(path), SweepFolder(tmp_path / "out"), executor)
    assert {record.cell["aux"]: record.state for record in records} == states


def test_a_killed_trial_is_named_and_the_next_start_resumes_it(
    sweep_file, tmp_path, monkeypatch, capfd
):
    """The exit code is 1, and what a plug-in prints is in the log of its trial alone.

    The trial that is killed is the last, as another worker takes seconds.
    """
    safe = tmp_path / "safe"
    monkeypatch.setenv("AUXLEARN_TEST_SAFE", str(safe))
    path = sweep_file(
        base={"plugins": [FAILING_TASKS], "eval_steps": 1},
        grid={"aux": ["random_mlm", "killed"]},
        seeds=1,
    )
    out = tmp_path / "out"
    done = call("sweep", path, "--output", out, "--threads", 1)
    assert done.exit_code == 1, done.output
    trials = {t["cell"]["aux"]: t for t in json.loads((out / "results.json").read_text())["trials"]}
    assert {name: trial["state"] for name, trial in trials.items()} == {
        "killed": "killed",
        "random_mlm": "finished",
    }
    assert "SIGKILL" in trials["killed"]["error"]
    assert "1 of 2 trials finished" in done.output
    log = out / "logs" / f"{trials['killed']['digest']}.log"
    assert log.read_text().count("words of the plug-in") == 4
    assert "words of the plug-in" not in done.output + "".join(capfd.readouterr())

    safe.write_text("")  # the next start resumes the killed trial and runs no other
    records = run_sweep(read_sweep(path), SweepFolder(out), resumed := InlineExecutor())
    assert [list(job.config["aux"][0]) for job in resumed.jobs] == [["killed"]]
    assert [record.state for record in records] == ["finished", "finished"]
    assert "Traceback" not in log.read_text()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
@pytest.mark.slow
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
    """Address of a Ray cluster that is declared to have two GPUs and four CPUs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={"num_cpus": 4, "num_gpus": 2})
    yield cluster.address
    cluster.shutdown()


def outcomes(executor, count: int) -> list[tuple[str, str]]:
    """Run so many jobs and return the two words of each outcome."""
    found = []
    for number in range(count):
        while len(executor._running) == executor.slots:
            found += executor.wait(1.0)
        executor.submit(Job(str(number), len, {}, "", str(Path.cwd()), 1))
    while len(found) < count:
        found += executor.wait(1.0)
    return [tuple(outcome.error.split()) for outcome in found]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
@pytest.mark.slow
def test_ray_assigns_the_gpus_to_the_trials(two_gpus, monkeypatch):
    """Each job reports which GPUs it sees and in which process it runs, and then crashes."""

    def crash(job):
        import os
        import time

        from auxlearn.executors.jobs import Outcome

        time.sleep(0.5)
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all") or "none"
        return Outcome(job.digest, "crash", f"{seen} {os.getpid()}")

    monkeypatch.setattr(ray_engine, "run_job", crash)
    with RayExecutor(address=two_gpus) as executor:
        assert executor.slots == 2
        found = outcomes(executor, 4)
        assert [sorted(gpu for gpu, _ in found[:2])] == [["0", "1"]]
        # After a crash on a GPU, no other trial runs in the same process.
        assert len({process for _, process in found}) == 4
    with RayExecutor(jobs=4, address=two_gpus) as executor:
        assert executor.slots == 4
        assert sorted(gpu for gpu, _ in outcomes(executor, 4)) == ["0", "0", "1", "1"]
    with RayExecutor(gpus=0, address=two_gpus) as executor:
        assert executor.slots == 4
        assert {gpu for gpu, _ in outcomes(executor, 2)} == {"none"}


def processes_of(parent: int) -> list[int]:
    """The worker processes that a process has started, helpers of the engine left out."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
            command = status.with_name("cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z" and "popen_loky" in command:
            found.append(int(status.parent.name))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"no {what} in {seconds} s"
        time.sleep(0.02)


@pytest.fixture
def program(sweep_file, tmp_path):
    """Start `auxlearn sweep` of two long trials in a process group of its own."""
    path = sweep_file(base={"epochs": 400})
    started = []

    def start() -> subprocess.Popen:
        command = [sys.executable, "-m", "auxlearn", "sweep", str(path)]
        command += ["--output", str(tmp_path / "out"), "--threads", "1"]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
        )
        started.append(process)
        begun = time.time()
        trained = tmp_path / "out" / "trials"
        wait_for(
            lambda: any(
                f.stat().st_mtime > begun and steps(f) for f in trained.glob("*/metrics.jsonl")
            ),
            120,
            "evaluation",
        )
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
def test_a_killed_program_leaves_no_worker_and_ctrl_c_leaves_all_resumable(program, tmp_path):
    process = program()
    workers = processes_of(process.pid)
    assert len(workers) == 1
    process.kill()
    process.wait()
    wait_for(lambda: not any(alive(worker) for worker in workers), 5, "end of the worker")

    process = program()
    workers = processes_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not any(alive(worker) for worker in workers)
    assert "Traceback" not in errors
    lines = [line for line in errors.splitlines() if "error" in line]
    assert lines == ["error: stopped with 0 of 2 trials done: the same command resumes the sweep"]

    (metrics,) = (tmp_path / "out" / "trials").glob("*/metrics.jsonl")
    before = steps(metrics)
    assert before
    program()
    wait_for(lambda: len(steps(metrics)) > len(before), 60, "step beyond the checkpoint")
    after = steps(metrics)
    assert after[: len(before)] == before
    assert after == sorted(set(after))


def steps(metrics: Path) -> list[int]:
    """Steps after which a run was evaluated, in the order of its file."""
    whole = metrics.read_text().rpartition("\n")[0]
    entries = [json.loads(line) for line in whole.splitlines()]
    return [entry["step"] for entry in entries if entry["kind"] == "eval"]
