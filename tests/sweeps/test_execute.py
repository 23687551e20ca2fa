"""Execution of sweeps: which trials are run, after kills and beside other sweeps."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

import auxlearn
from auxlearn.core.errors import ConfigError, Interrupted, PluginError, SweepError, UserError
from auxlearn.core.locks import Lock
from auxlearn.core.registry import register_task
from auxlearn.data.load import load_dataset
from auxlearn.executors.jobs import Outcome
from auxlearn.reports.page import report
from auxlearn.results.console import ConsoleReporter
from auxlearn.results.record import RunResults
from auxlearn.sweeps.execute import run_sweep
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.sweep_file import read_sweep
from auxlearn.tasks.random_mlm import RandomMLM
from auxlearn.training.loop import TrainingLoop
from tests.cli.helpers import call
from tests.helpers import Messages, forbid_writing, one_line
from tests.sweeps.conftest import FAILING_TASKS, InlineExecutor


@pytest.fixture
def start(tmp_path):
    """Run a sweep file; return the records, the executor, and the folder."""

    def run(path: Path, name: str = "out", executor=None, **options):
        executor = executor or InlineExecutor()
        folder = SweepFolder(tmp_path / name)
        records = run_sweep(read_sweep(path), folder, executor, **options)
        return records, executor, folder

    return run


def results(folder: SweepFolder) -> bytes:
    return (folder.path / "results.json").read_bytes()


def test_finished_trials_are_not_run_again_and_new_ones_are_added(sweep_file, start, capsys):
    path = sweep_file(grid={"learning_rate": [1e-3, 1e-4]}, seeds=1)
    records, executor, folder = start(path)
    assert [record.state for record in records] == ["finished"] * 2
    assert len(executor.jobs) == 2
    before = results(folder)
    killed = folder.run(records[0].digest).path  # just after its results
    (killed / "checkpoint").mkdir()
    (killed / "checkpoint" / "latest.json").touch()
    (killed / ".lock").touch()

    _, executor, _ = start(path)
    assert executor.jobs == []
    assert results(folder) == before
    assert not {"checkpoint", ".lock"} & {path.name for path in killed.iterdir()}

    with pytest.MonkeyPatch.context() as patch:
        forbid_writing(patch)
        shown = call("sweep", path, "--dry-run", "--output", folder.path)
    assert "2 trials, 2 of them finished" in shown.output

    more = sweep_file(grid={"learning_rate": [1e-3, 5e-4, 1e-4]}, seeds=1)
    records, executor, _ = start(more, reporter=ConsoleReporter())
    assert "trials of the sweep, 2 done before: 1 in " in capsys.readouterr().err
    assert [job.config["learning_rate"] for job in executor.jobs] == [5e-4]
    assert records[1].cell["learning_rate"] == "0.0005"
    changed = sweep_file(grid={"learning_rate": [1e-3]}, base={"epochs": 1}, seeds=1)
    messages = Messages()
    _, executor, folder = start(changed, reporter=messages)
    assert len(executor.jobs) == 1
    line = f"{folder.path} has 3 trials of other plans, which the results leave out"
    assert sum(line in message for message in messages.lines) == 1


def test_test_metrics_are_read_for_the_chosen_value_only(sweep_file, start):
    path = sweep_file(
        grid={"learning_rate": [1e-2, 1e-5], "method": {"a": {}, "b": {"aux": "random_mlm"}}},
        select={"over": ["learning_rate"]},
        base={"epochs": 1, "keep_model": False},
    )
    messages = Messages()
    records, _, folder = start(path, reporter=messages)
    said = [line for line in messages.lines if line.startswith("tokens per text of train")]
    assert len(said) == 1  # of the first trial
    assert said[0] in (folder.path / "logs" / f"{records[-1].digest}.log").read_text()
    for method in "ab":
        mine = [record for record in records if record.cell["method"] == method]
        means = {}
        for record in mine:
            means.setdefault(record.cell["learning_rate"], []).append(record.dev["accuracy"])
        means = {rate: sum(values) for rate, values in means.items()}
        best = max(means, key=means.get)
        assert {r.cell["learning_rate"] for r in mine if r.chosen} == {best}
        assert all(bool(r.evaluations) == r.chosen for r in mine)
    path.write_text(path.read_text().replace("select:\n", "select:\n  metric: mae\n"))
    with one_line(SweepError, "select.metric: the trials have no mae on dev: known: accuracy"):
        start(path)


def test_a_search_runs_its_trials_and_chooses_one(sweep_file, start):
    path = sweep_file(
        search={"trials": 3, "batch": 2, "space": {"learning_rate": {"low": 1e-4, "high": 1e-2}}},
        seeds=1,
    )
    records, executor, folder = start(path)
    assert len(records) == len(executor.jobs) == 3
    assert sum(record.chosen for record in records) == 1
    before = results(folder)
    assert start(path)[1].jobs == []
    assert results(folder) == before
    for trials, said in {
        3: "3 trials, 3 of them finished\n",
        2: "2 trials, 2 of them finished\n",
        5: "at most 5 trials, 3 of them finished\n"
        "the search suggests further trials from the results of these 4\n",
        4: "4 trials, 3 of them finished\n",
    }.items():
        path.write_text(re.sub("trials: .", f"trials: {trials}", path.read_text()))
        shown = call("sweep", path, "--dry-run", "--output", folder.path).stdout
        assert shown.endswith(said)


def test_points_that_a_search_repeats_are_not_run_again_and_a_line_says_so(
    sweep_file, start, capsys
):
    path = sweep_file(
        search={"trials": 6, "batch": 2, "sampler": "random", "space": {"batch_size": [8, 16]}},
        seeds=1,
    )
    messages = Messages()
    records, executor, _ = start(path, reporter=messages)
    assert len(records) == len(executor.jobs) == 2
    said = "4 of the 6 trials that the search has suggested repeat others, and are not run again"
    assert said in messages.lines
    capsys.readouterr()
    start(path, reporter=ConsoleReporter())
    assert capsys.readouterr().err.startswith("trials of the sweep, 2 done before: 0 in ")


def test_failures_are_recorded_and_retried_on_request(sweep_file, start, tmp_path):
    path = sweep_file(
        base={"plugins": [FAILING_TASKS]},
        grid={"aux": ["crashing", "diverging", "random_mlm"]},
        seeds=1,
    )
    shown = Messages()
    records, _, folder = start(path, reporter=shown)
    assert [record.state for record in records] == ["crash", "error", "finished"]
    assert records[0].error.startswith("PluginError: 'crashing' (Crashing of ")
    assert "failed in loss (ValueError: no such column: 'txet')" in records[0].error
    assert records[1].error.startswith("the loss of 'diverging' is nan in its first step")
    begun = [line.split("  ")[:2] for line in shown.lines if line[1:3] == "/3"]
    assert begun == [["1/3", "crash"], ["2/3", "error"], ["3/3", "finished"]]
    assert f"dev accuracy {records[2].dev['accuracy']:.3f}" in shown.lines[-1]
    kept = json.loads((folder.path / "failures" / f"{records[0].digest}.json").read_text())
    assert "failing_tasks.py" in kept["trace"]
    assert [list(task) for task in kept["config"]["aux"]] == [["crashing"]]
    assert (folder.path / "logs" / f"{records[0].digest}.log").exists()

    shown = Messages()
    assert start(path, reporter=shown)[1].jobs == []
    assert shown.lines[0].startswith("2 trials failed before and are not tried again: ")
    assert len(start(path, retry_failed=True)[1].jobs) == 2


def locked(folder: Path, record) -> Lock:
    """Lock the run of a trial, as another process that runs it."""
    run = SweepFolder(folder).run(record.digest).path
    run.mkdir(parents=True)
    lock = Lock(run / ".lock")
    lock.acquire()
    return lock


def test_a_trial_that_met_a_full_disk_is_tried_again(sweep_file, start, monkeypatch):
    def full(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = sweep_file(seeds=1)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "run_step", full)
        (record,), _, _ = start(path)
    assert record.state == "disk full"
    (record,), executor, _ = start(path)
    assert record.state == "finished"
    assert len(executor.jobs) == 1


def test_a_trial_locked_by_another_process_is_waited_for(sweep_file, start):
    """The other trials are run first, and the result of the other process is used."""
    path = sweep_file(seeds=3)
    records, _, finished = start(path, "first")
    digest = records[0].digest
    second = finished.path.with_name("second")
    lock = locked(second, records[0])

    class OtherProcess(InlineExecutor):
        """Finishes the locked trial, as the other process, after two trials have run."""

        def submit(self, job):
            super().submit(job)
            if len(self.jobs) == 2:
                run = SweepFolder(second).run(digest).path
                shutil.copytree(finished.run(digest).path, run, dirs_exist_ok=True)
                lock.release()

    shown = Messages()
    _, executor, folder = start(path, "second", OtherProcess(), reporter=shown)
    assert digest not in [job.digest for job in executor.jobs]
    assert results(folder) == results(finished)
    assert shown.lines[0].startswith(f"process {os.getpid()} on ")
    assert " is running 'seed 0': sharing the trials" in shown.lines[0]


def test_a_task_of_this_program_is_refused_where_other_processes_train(
    sweep_file, fast_settings, tmp_path
):
    register_task("of_this_program")(type("Mine", (RandomMLM,), {"__module__": __name__}))
    told = r"task 'of_this_program' is registered by this program \(.*test_execute\).* in plugins$"
    path, folder = sweep_file(grid={"aux": ["random_mlm", "of_this_program"]}), tmp_path / "out"
    for function, given in (
        (run_sweep, {"sweep": read_sweep(path), "folder": SweepFolder(folder)}),
        (auxlearn.train, fast_settings | {"aux": "of_this_program", "output": folder, "jobs": 2}),
    ):
        given |= {"executor": InlineExecutor()} if function is run_sweep else {"weights": "meta"}
        with pytest.raises(ConfigError, match=told):
            function(**given)
        assert not list(folder.rglob("results.json"))


def test_a_sweep_beside_another_plan_is_refused(sweep_file, start):
    class Beside(InlineExecutor):
        """Starts further sweeps, as another process does, while a trial runs."""

        def submit(self, job):
            super().submit(job)
            assert start(sweep_file(seeds=1))[1].jobs == []  # the same plan
            with one_line(SweepError, f"process {os.getpid()} on", "runs a sweep of another plan"):
                start(sweep_file(seeds=2))

    _, executor, folder = start(sweep_file(seeds=1), executor=Beside())
    assert len(executor.jobs) == 1
    assert len(json.loads(results(folder))["trials"]) == 1
    assert len(start(sweep_file(seeds=2))[0]) == 2


class Spoilt(InlineExecutor):
    """One of a user, of which a part does something else."""

    def __init__(self, **changed):
        super().__init__()
        vars(self).update(changed)


def failing(*_):
    raise KeyError("queue")


#: What an executor does instead, and what is said of it.
SPOILT = {
    "no slots": ({"slots": 0}, "slots of 'Spoilt' (Spoilt of tests.sweeps.test_execute) is 0"),
    "no threads": ({"threads": None}, "threads of 'Spoilt'"),
    "raises": ({"submit": failing}, "'Spoilt' (Spoilt of tests.sweeps.test_execute) failed in"),
    "returns nothing": ({"wait": lambda seconds: None}, "wait of 'Spoilt'"),
    "a tuple": ({"wait": lambda seconds: [("0", "finished")]}, "returns [('0', 'finished')]: "),
    "another job": ({"wait": lambda seconds: [Outcome("0", "finished")]}, "return a list with the"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_an_executor_that_misbehaves_is_named(case, sweep_file, start):
    changed, said = SPOILT[case]
    with one_line(PluginError, said):
        start(sweep_file(seeds=1), executor=Spoilt(**changed))


def test_a_trial_that_ends_without_results_has_failed(sweep_file, start):
    class Idle(InlineExecutor):
        def submit(self, job):
            self._ended.append(Outcome(job.digest, "finished"))

    (record,), _, _ = start(sweep_file(seeds=1), executor=Idle())
    assert record.state == "crash"
    assert "'Idle'" in record.error
    assert "says that it has finished: it has no results" in record.error


def test_a_trial_whose_lock_owner_died_is_taken_over(sweep_file, start):
    path = sweep_file(seeds=1)
    records, _, finished = start(path, "first")
    lock = locked(finished.path.with_name("second"), records[0])

    class Waiting(InlineExecutor):
        def wait(self, seconds):
            lock.release()
            return super().wait(seconds)

    _, executor, folder = start(path, "second", Waiting())
    assert len(executor.jobs) == 1
    assert results(folder) == results(finished)


def test_a_stopped_sweep_keeps_its_finished_trials(sweep_file, start, tmp_path):
    path = sweep_file(seeds=3)

    class Stopping(InlineExecutor):
        def submit(self, job):
            super().submit(job)
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="stopped with 1 of 3 trials done"):
        start(path, executor=Stopping())
    assert signal.getsignal(signal.SIGTERM) == before
    records, executor, _ = start(path)
    assert len(executor.jobs) == 2
    assert [record.state for record in records] == ["finished"] * 3


class Signing(InlineExecutor):
    """Notes which process has run a trial."""

    def submit(self, job):
        super().submit(job)
        Path(job.config["output"], "ran_by").write_text(str(os.getpid()))


def fork_sweep(path: Path, folder: Path) -> int:
    """Run a sweep in a forked process, which has everything imported already."""
    child = os.fork()
    if child:
        return child
    try:
        run_sweep(read_sweep(path), SweepFolder(folder), Signing())
        os._exit(0)
    except BaseException:
        os._exit(1)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.slow
def test_kills_at_random_points_change_nothing(sweep_file, start, tmp_path):
    """12 trials, 10 kills: the results file is the same, and no finished trial is run again."""
    path = sweep_file(
        base={"eval_steps": 1, "epochs": 1},
        grid={"method": {"a": {}, "b": {"aux": "random_mlm"}, "c": {"aux": "l3mask"}}},
        seeds=4,
    )
    begun = time.monotonic()
    _, _, undisturbed = start(path, "undisturbed")
    length = time.monotonic() - begun
    folder = SweepFolder(tmp_path / "killed")
    stream = random.Random(0)
    finished: dict[Path, float] = {}
    kills = 0
    for _ in range(10):
        child = fork_sweep(path, folder.path)
        time.sleep(stream.uniform(0.01, 0.12) * length)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
        for at, when in finished.items():
            assert at.stat().st_mtime_ns == when
        for at in folder.path.glob("trials/*/results.json"):
            finished[at] = at.stat().st_mtime_ns
    assert kills >= 8
    _, executor, _ = start(path, "killed")
    assert len(executor.jobs) == 12 - len(finished)
    assert results(folder) == results(undisturbed)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.slow
def test_two_sweeps_of_one_file_share_the_work(sweep_file, start, tmp_path, monkeypatch):
    monkeypatch.setattr("auxlearn.core.locks.GRACE", 0.0)  # these trials are shorter than it
    path = sweep_file(seeds=6)
    _, _, alone = start(path, "alone")
    children = [fork_sweep(path, tmp_path / "both") for _ in range(2)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    both = SweepFolder(tmp_path / "both")
    assert results(both) == results(alone)
    owners = [file.read_text() for file in both.path.glob("trials/*/ran_by")]
    assert len(owners) == 6
    assert len(set(owners)) == 2  # neither process ran all of them


def test_each_trial_tests_on_its_fold(sweep_file, fast_settings, start):
    path = sweep_file(folds=3, seeds=1, base={"epochs": 1})
    records, _, folder = start(path)
    assert [record.cell for record in records] == [{"fold": f"{n}/3"} for n in (1, 2, 3)]
    results = [RunResults.load(folder.run(record.digest).path) for record in records]
    tested = []
    for record, found in zip(records, results, strict=True):
        fold = record.cell["fold"]
        part = load_dataset(fast_settings["dataset"], fold=fold)
        assert found.dataset.examples == {"train": 16, "dev": 12, "test": 8}
        assert found.dataset.fingerprint == part.fingerprint
        assert any(note.startswith(f"fold {fold[0]} of 3") for note in found.dataset.notes)
        tested += part.splits["test"].texts
    whole = load_dataset(fast_settings["dataset"])
    assert sorted(tested) == sorted(whole.splits["train"].texts)

    assert start(path)[1].jobs == []  # the inputs of each fold are those that it was trained on
    (column,) = auxlearn.compare(folder.path).blocks[0].columns
    (scores,) = column.scores.values()
    assert list(scores.values()) == [one.evaluations["test"].all.accuracy for one in results]

    runs = [folder.run(record.digest).path for record in records]
    with pytest.raises(UserError, match="different data or splits"):
        auxlearn.ensemble(*runs)  # each has seen what another is tested on
    assert report(folder.path).is_file()


def test_trials_begin_from_the_encoder_that_the_sweep_pretrains(
    sweep_file, start, tmp_path, fast_settings
):
    adapted = str(tmp_path / "adapted")
    pretrain = {"encoder": fast_settings["encoder"], "dataset": fast_settings["dataset"]}
    path = sweep_file(
        pretrain=pretrain | {"steps": 2, "batch_size": 4, "device": "cpu", "output": adapted},
        grid={"encoder": [fast_settings["encoder"], adapted]},
        compare=["encoder"],
        seeds=1,
        base={"epochs": 1},
    )
    done = call("sweep", path, "--dry-run", "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "2 trials, 0 of them finished"
    assert not (tmp_path / "out").exists()
    assert not Path(adapted).exists()
    records, executor, folder = start(path)
    assert [job.config["encoder"] for job in executor.jobs] == [fast_settings["encoder"], adapted]
    assert all(record.finished for record in records)
    (block,) = auxlearn.compare(folder.path).blocks
    assert len(block.methods) == 2
    assert start(path)[1].jobs == []
    (Path(adapted) / "model.safetensors").write_bytes(b"")
    with one_line(UserError, "adapted is damaged"):
        start(sweep_file(pretrain=pretrain | {"output": adapted}, base={"encoder": adapted}), "new")
