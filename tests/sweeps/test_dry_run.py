"""The plan of a sweep, which is shown before anything is trained."""

from __future__ import annotations

from click.testing import CliRunner

from auxlearn.cli import cli
from auxlearn.core.files import read_checked_json, write_checked_json
from auxlearn.sweeps.folder import SweepFolder
from tests.reports import runs


def test_a_trial_takes_as_long_as_finished_ones_of_its_kind(tmp_path):
    """Of two seeds of RTM one has finished, in 200 + 40 seconds."""
    folder = runs.write_sweep(tmp_path / "out", runs.write_data(tmp_path / "data"), finished=False)
    record = SweepFolder(folder).load_plan()[2]
    results = folder / "trials" / record.digest / "results.json"
    seconds = {"preparation": 40.0, "training": 200.0}
    write_checked_json(results, read_checked_json(results) | {"seconds": seconds})
    before = {path for path in folder.rglob("*") if path.is_file()}
    arguments = ["sweep", str(tmp_path / "sweep.yaml"), "--dry-run", "--output", str(folder)]
    done = CliRunner().invoke(cli, [*arguments, "--jobs", "2"])
    assert done.exit_code == 0, done.output
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["case", "seed", "trial", "state", "takes"]
    rtm = [" ".join(row.split()) for row in rows if row.startswith("RTM")]
    assert [row.split(maxsplit=3)[3] for row in rtm] == ["finished about 4 min", "about 4 min"]
    assert rows[-2:] == [
        "4 trials, 3 of them finished",
        "about 2 min with --jobs 2, by what finished trials have taken",
    ]
    assert {path for path in folder.rglob("*") if path.is_file()} == before


def test_nothing_is_said_of_the_time_before_a_trial_has_finished(sweep_file, tmp_path):
    path = sweep_file(grid={"epochs": [1, 2]}, seeds=1)
    arguments = ["sweep", str(path), "--dry-run", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "2 trials, 0 of them finished"
    assert not (tmp_path / "out").exists()
