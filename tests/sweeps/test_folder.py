"""Files of a sweep's folder."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from auxlearn.core.errors import SweepError
from auxlearn.core.files import content_digest
from auxlearn.core.locks import is_held
from auxlearn.core.settings import USUAL
from auxlearn.data.memory import read_memory
from auxlearn.executors.jobs import Outcome
from auxlearn.sweeps import folder as module
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.sweep_file import dump_sweep, read_sweep
from tests.cli.helpers import error
from tests.comparison.conftest import edited


@pytest.fixture
def planned(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "a", "grid": {"aux": [[], "l3mask"]}, "seeds": 1}))
    sweep = read_sweep(path)
    return sweep, SweepFolder(tmp_path / "out"), plan_trials(sweep, expand_cells(sweep))


def test_what_killed_writes_have_left_is_deleted(planned):
    sweep, folder, _ = planned
    failures, trial = folder.path / "failures", folder.path / "trials" / "abc"
    for place in (folder.path, failures, trial):
        place.mkdir(parents=True)
        (place / ".sweep.yaml.12ab34cd.part").write_text("half")
    folder.save_text("sweep.yaml", dump_sweep(sweep))
    left = [found.relative_to(folder.path).as_posix() for found in folder.path.rglob("*.part")]
    assert left == ["trials/abc/.sweep.yaml.12ab34cd.part"]  # a trial's folder has its own lock
    names = {found.name for found in folder.path.iterdir()}
    assert names == {"failures", "sweep.yaml", "trials"}


def test_each_process_of_a_plan_keeps_other_plans_out(planned, monkeypatch):
    _, folder, _ = planned
    folder.path.mkdir()
    (folder.path / ".plan-0123456789ab-5.lock").touch()  # left by a kill
    with ExitStack() as first:
        first.enter_context(folder.locked("a plan"))
        monkeypatch.setattr(module, "os", SimpleNamespace(getpid=lambda: 1))  # another process
        with folder.locked("a plan"):
            first.close()
            with pytest.raises(SweepError, match="another plan"), folder.locked("another"):
                pass
    with folder.locked("another"):
        assert [path.name[-7:] for path in folder.path.glob(".plan-*")] == ["-1.lock"]


@pytest.mark.parametrize(
    "digest", ["../elsewhere", "/tmp/run", "", "0123456789AB", "0123456789ab\n"]
)
def test_a_digest_that_is_none_leads_to_no_other_folder(planned, digest):
    _, folder, trials = planned
    folder.save_plan(trials)
    assert len(folder.load_plan()) == 2
    with edited(folder.path / "plan.json") as content:
        content["trials"][0]["digest"] = digest
    with pytest.raises(SweepError, match=r"plan\.json is damaged"):
        folder.load_plan()


def test_files_are_written_under_the_lock_of_the_folder(planned, monkeypatch):
    """Another process that holds it deletes temporary files, as those of killed writes."""
    sweep, folder, trials = planned
    held = {}
    for name in ("write_text", "write_json", "write_checked_json", "save_folder"):
        real = getattr(module, name)

        def write(*arguments, real=real):
            place = next(one for one in arguments if isinstance(one, Path))
            held[place.name] = is_held(folder.path / ".lock")
            real(*arguments)

        monkeypatch.setattr(module, name, write)
    folder.save_text("sweep.yaml", dump_sweep(sweep))
    folder.save_plan(trials)
    folder.save_failure(trials[0], Outcome(trials[0].digest, "error", "no"))
    folder.save_results(sweep, [folder.record(trial, chosen=False) for trial in trials])
    data = read_memory({"text": ["a", "b"], "label": ["x", "y"]}, name="films")
    for _ in range(2):  # the second process finds what the first has saved
        folder.save_data(data, folder.path / "data" / "0" / "films", USUAL)
    folder.save_text("report.html", "<html>")
    names = {"report.html", "sweep.yaml", "plan.json", "results.json", "films"}
    assert held == dict.fromkeys(names | {f"{trials[0].digest}.json"}, True)


FOREIGN = {
    "a run": lambda place: [
        (place / name).write_text("{}") for name in ("config.yaml", "results.json")
    ],
    "other files": lambda place: (place / "thesis.tex").write_text("x"),
    "the sweep file itself": lambda place: (place / "sweep.yaml").write_text("name: a  # mine"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_folder_of_something_else_is_refused_before_any_work(sweep_file, tmp_path, what):
    place = tmp_path / "out"
    place.mkdir()
    FOREIGN[what](place)
    before = content_digest(place)
    line = error("sweep", sweep_file(grid={"aux": [[]]}), "--output", place)
    reason = "is the folder of a run" if what == "a run" else "is not empty and is not the folder"
    assert reason in line
    assert content_digest(place) == before


def test_published_results_that_its_folder_lacks_are_refused_before_any_trial(sweep_file, tmp_path):
    file = sweep_file(published="paper.yaml")
    (file.parent / "paper.yaml").write_text("source: a paper")  # which is not that folder
    place = tmp_path / "out"
    for options in ([], ["--dry-run"]):
        line = error("sweep", file, "--output", place, *options)
        assert f"published: {place} has no file paper.yaml: leave it out here, and name" in line
        assert not place.exists()


def test_a_sweep_killed_at_its_very_start_can_start_again(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "data").mkdir()
    (tmp_path / ".plan.json.12ab34cd.part").write_text("half")
    SweepFolder(tmp_path).check()


def test_nothing_is_read_through_links(sweep_file, tmp_path):
    folder, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    folder.mkdir()
    (folder / "sweep.yaml").write_text(sweep_file(grid={"aux": [[]]}).read_text())
    (folder / "plan.json").write_text('{"trials": []}')
    (folder / "trials").symlink_to(outside)
    for command in ("compare", "report"):
        assert "leads out of" in error(command, folder)
