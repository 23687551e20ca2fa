"""Files of a sweep's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from auxlearn.data.memory import read_memory
from auxlearn.errors import SweepError
from auxlearn.locks import is_held
from auxlearn.sweeps import folder as module
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.sweep_file import read_sweep
from auxlearn.sweeps.worker import Outcome


def test_what_killed_writes_have_left_is_deleted(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "a", "grid": {"aux": [[], "l3mask"]}}))
    folder = SweepFolder(tmp_path / "out")
    failures, trial = folder.path / "failures", folder.path / "trials" / "abc"
    for place in (folder.path, failures, trial):
        place.mkdir(parents=True)
        (place / ".sweep.yaml.12ab34cd.part").write_text("half")
    folder.save_sweep(read_sweep(path))
    left = [found.relative_to(folder.path).as_posix() for found in folder.path.rglob("*.part")]
    assert left == ["trials/abc/.sweep.yaml.12ab34cd.part"]  # a trial's folder has its own lock
    assert sorted(found.name for found in folder.path.iterdir()) == [
        "failures",
        "sweep.yaml",
        "trials",
    ]


@pytest.mark.parametrize(
    "digest", ["../elsewhere", "/tmp/run", "", "0123456789AB", "0123456789ab\n"]
)
def test_a_digest_that_is_none_leads_to_no_other_folder(tmp_path, digest):
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "a", "grid": {"aux": [[], "l3mask"]}}))
    sweep, folder = read_sweep(path), SweepFolder(tmp_path / "out")
    trials = plan_trials(sweep, expand_cells(sweep))
    folder.save_plan(trials)
    folder.save_results(sweep, [folder.record(trial, chosen=False) for trial in trials])
    for name, read in (("plan.json", folder.load_plan), ("results.json", folder.load_results)):
        content = json.loads((folder.path / name).read_text())
        assert len(read()) == 2 * len(sweep.seeds)
        del content["sha256"]
        content["trials"][0]["digest"] = digest
        (folder.path / name).write_text(json.dumps(content))
        with pytest.raises(SweepError, match=f"{name} is damaged"):
            read()


def test_files_are_written_under_the_lock_of_the_folder(tmp_path, monkeypatch):
    """Another process that holds it deletes temporary files, as those of killed writes."""
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "a", "grid": {"aux": [[], "l3mask"]}}))
    sweep, folder = read_sweep(path), SweepFolder(tmp_path / "out")
    trials = plan_trials(sweep, expand_cells(sweep))
    held = {}
    for name in ("write_text", "write_json", "write_checked_json", "save_folder"):
        real = getattr(module, name)

        def write(*arguments, real=real):
            place = next(one for one in arguments if isinstance(one, Path))
            held[place.name] = is_held(folder.path / ".lock")
            real(*arguments)

        monkeypatch.setattr(module, name, write)
    folder.save_sweep(sweep)
    folder.save_plan(trials)
    folder.save_failure(trials[0], Outcome(trials[0].digest, "error", "no"))
    folder.save_results(sweep, [folder.record(trial, chosen=False) for trial in trials])
    data = read_memory({"text": ["a", "b"], "label": ["x", "y"]}, name="films")
    for _ in range(2):  # the second process finds what the first has saved
        folder.save_data(data, folder.path / "data" / "0" / "films", None)
    folder.save_report("report.html", "<html>")
    names = {
        "report.html",
        "sweep.yaml",
        "plan.json",
        f"{trials[0].digest}.json",
        "results.json",
        "films",
    }
    assert held == dict.fromkeys(names, True)


@pytest.mark.parametrize("name", ["plan.json", "results.json"])
def test_exchanged_trials_are_noticed_by_the_checksum(tmp_path, name):
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({"name": "a", "grid": {"aux": [[], "l3mask"]}, "seeds": 1}))
    sweep, folder = read_sweep(path), SweepFolder(tmp_path / "out")
    trials = plan_trials(sweep, expand_cells(sweep))
    folder.save_plan(trials)
    folder.save_results(sweep, [folder.record(trial, chosen=False) for trial in trials])
    content = json.loads((folder.path / name).read_text())
    first, second = content["trials"]
    first["cell"], second["cell"] = second["cell"], first["cell"]
    (folder.path / name).write_text(json.dumps(content))
    with pytest.raises(SweepError, match=f"{name} is damaged .its checksum"):
        folder.load_plan() if name == "plan.json" else folder.load_results()
