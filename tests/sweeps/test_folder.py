"""Files of a sweep's folder."""

from __future__ import annotations

import json

import pytest
import yaml

from auxlearn.errors import SweepError
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.sweep_file import read_sweep


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
        content["trials"][0]["digest"] = digest
        (folder.path / name).write_text(json.dumps(content))
        with pytest.raises(SweepError, match=f"{name} is damaged"):
            read()
