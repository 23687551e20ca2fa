"""Files of a sweep's folder."""

from __future__ import annotations

import yaml

from auxlearn.sweeps.folder import SweepFolder
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
