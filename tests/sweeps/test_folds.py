"""A sweep over folds, from its file to its table."""

from __future__ import annotations

import pytest

import auxlearn
from auxlearn.core.errors import UserError
from auxlearn.data.load import load_dataset
from auxlearn.reports.page import report
from auxlearn.results.record import RunResults
from auxlearn.sweeps.execute import run_sweep
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.sweep_file import read_sweep
from tests.sweeps.conftest import InlineExecutor


def test_each_trial_tests_on_its_fold(sweep_file, fast_settings, tmp_path):
    path = sweep_file(folds=3, seeds=1, base={"epochs": 1})
    folder = SweepFolder(tmp_path / "out")
    records = run_sweep(read_sweep(path), folder, InlineExecutor())
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

    again = InlineExecutor()
    run_sweep(read_sweep(path), folder, again)
    assert again.jobs == []  # the inputs of each fold are those that it was trained on
    (column,) = auxlearn.compare(folder.path).blocks[0].columns
    (scores,) = column.scores.values()
    assert list(scores.values()) == [one.evaluations["test"].all.accuracy for one in results]

    runs = [folder.run(record.digest).path for record in records]
    with pytest.raises(UserError, match="different data or splits"):
        auxlearn.ensemble(*runs)  # each has seen what another is tested on
    assert report(folder.path).is_file()
