"""Comparison of sweeps: what competes, what is chosen, what is refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from auxlearn.cli import cli
from auxlearn.comparison.compare import compare_sweeps
from auxlearn.comparison.tables import markdown
from auxlearn.errors import SweepError
from auxlearn.sweeps.folder import SweepFolder
from tests.comparison.conftest import METHODS, right_by_method


def test_a_method_with_its_own_encoder_competes_where_the_encoder_is_an_axis(make_sweep):
    """As the sequential row of Mask-tuning's Table III, trained on another encoder."""
    grid = {
        "encoder": {"tiny": {"encoder": "tiny"}},
        "dataset": {"pydocs": {"dataset": "pydocs"}},
        "method": {
            "STL": {"aux": []},
            "RTM": {"aux": "random_mlm", "encoder": "runs/mlm-{encoder}-{dataset}"},
        },
    }
    comparison = compare_sweeps([make_sweep(right_by_method, grid=grid, seeds=2)])
    (setting,) = comparison.settings
    assert [method.name for method in setting.methods] == ["STL", "RTM"]


def test_hyper_parameters_are_chosen_on_dev_and_the_choice_is_reported(make_sweep):
    """The other learning rate would be far better on test."""

    def right(trial):
        good = trial.cell["learning_rate"] == "0.001"
        return {"dev": 30 if good else 25, "test": 20 if good else 40}

    folder = make_sweep(
        right,
        grid=METHODS | {"learning_rate": [1e-3, 1e-4]},
        select={"over": ["learning_rate"]},
        seeds=2,
    )
    comparison = compare_sweeps([folder])
    (setting,) = comparison.settings
    assert [method.chosen for method in setting.methods] == [{"learning_rate": "0.001"}] * 2
    assert all(method.mean(("test", "accuracy")) == 0.5 for method in setting.methods)
    text = markdown(comparison)
    assert "STL: learning_rate 0.001 (chosen on dev)" in text
    assert "read for the chosen value only" in text
    content = json.loads((folder.path / "results.json").read_text())
    assert {t["cell"]["learning_rate"] for t in content["trials"] if t["evaluations"]} == {"0.001"}


def test_a_value_with_a_failed_seed_is_not_chosen(make_sweep):
    def right(trial):
        if trial.cell["learning_rate"] == "0.001" and trial.seed == 1:
            return None
        return {"dev": 40 if trial.cell["learning_rate"] == "0.001" else 20, "test": 20}

    comparison = compare_sweeps(
        [
            make_sweep(
                right, grid={"learning_rate": [1e-3, 1e-4]}, select={"over": ["learning_rate"]}
            )
        ]
    )
    (method,) = comparison.settings[0].methods
    assert method.chosen == {"learning_rate": "0.0001"}


def test_settings_are_compared_separately_and_sweeps_jointly(make_sweep):
    first = make_sweep(right_by_method, "one", grid={"dataset": ["sst2", "qqp"]} | METHODS, seeds=2)
    comparison = compare_sweeps([first])
    assert [one.setting["dataset"] for one in comparison.settings] == ["sst2", "qqp"]
    second = make_sweep(
        lambda trial: {"dev": 20, "test": 20},
        "two",
        base={"dataset": "sst2", "epochs": 3},
        grid=METHODS,
        seeds=2,
    )
    joined = compare_sweeps([first, second])
    assert [method.name for method in joined.settings[0].methods] == [
        "STL",
        "RTM",
        "STL (two)",
        "RTM (two)",
    ]
    assert len(joined.settings[1].methods) == 2


def test_sweeps_of_the_same_name_are_distinguished_by_their_folders(make_sweep):
    def worse(trial):
        return {"dev": 20, "test": 12, "away": 20}

    first = make_sweep(right_by_method, "one", grid=METHODS, seeds=3)
    second = make_sweep(worse, "two", name="one", base={"epochs": 3}, grid=METHODS, seeds=2)
    comparison = compare_sweeps([first, second])
    (setting,) = comparison.settings
    assert [method.name for method in setting.methods] == [
        "STL",
        "RTM",
        f"STL (one: {second.path})",
        f"RTM (one: {second.path})",
    ]
    assert [len(method.runs) for method in setting.methods] == [3, 3, 2, 2]
    assert [method.mean(("test", "accuracy")) for method in setting.methods[2:]] == [0.3, 0.3]
    assert setting.methods[0].mean(("test", "accuracy")) == pytest.approx(61 / 120)
    assert comparison.names == [f"one: {first.path}", f"one: {second.path}"]
    done = CliRunner().invoke(cli, ["compare", str(first.path), f"{first.path}/../one"])
    assert done.exit_code == 2
    assert "is given twice" in done.output


def test_missing_predictions_are_an_error(make_sweep):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=2)
    for path in folder.path.glob("trials/*/predictions/test.jsonl"):
        path.unlink()
    with pytest.raises(SweepError, match="holds no predictions for 'test'"):
        compare_sweeps([folder])


def test_runs_evaluated_on_different_examples_are_an_error(make_sweep):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=2)
    path = next(folder.path.glob("trials/*/predictions/test.jsonl"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    with pytest.raises(SweepError, match="different examples of 'test'"):
        compare_sweeps([folder])


def test_a_folder_without_results_is_an_error_that_says_what_to_run(tmp_path, make_sweep):
    with pytest.raises(SweepError, match=r"is not the folder of a sweep"):
        compare_sweeps([SweepFolder(tmp_path)])
    folder = make_sweep(right_by_method, grid=METHODS, seeds=2)
    (folder.path / "results.json").unlink()
    with pytest.raises(SweepError, match="run `auxlearn sweep` to its end first"):
        compare_sweeps([folder])
