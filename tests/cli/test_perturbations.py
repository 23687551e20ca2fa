"""``auxlearn perturbations`` on a finished run."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from auxlearn import RunConfig, train
from auxlearn.cli import cli
from tests import helpers


@pytest.fixture(scope="module")
def run(tmp_path_factory, encoder_folder):
    folder = tmp_path_factory.mktemp("perturbations")
    rows = [
        {"text": line, "label": helpers.LABELS[number % 2]}
        for number, line in enumerate(helpers.LINES)
    ]
    (folder / "data").mkdir()
    for name, members in {"train": rows[:12], "dev": rows[12:18], "test": rows[18:]}.items():
        lines = [json.dumps(row) for row in members]
        (folder / "data" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")

    def made(name, *aux):
        train(
            RunConfig.model_validate(
                {
                    "dataset": str(folder / "data"),
                    "encoder": str(encoder_folder("bert")),
                    "aux": list(aux),
                    "epochs": 2,
                    "batch_size": 6,
                    "device": "cpu",
                    "output": str(folder / name),
                }
            )
        )
        return str(folder / name)

    return made


def test_statistics_by_epoch_and_texts(run):
    folder = run("run", "mask_tuning")
    result = CliRunner().invoke(cli, ["perturbations", folder, "--json", "--texts", "3"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    statistics = found["statistics"]
    assert [(one["epoch"], one["encoder"]) for one in statistics] == [
        (1, "this run"),
        (1, "pretrained"),
        (2, "this run"),
        (2, "pretrained"),
    ]
    for one in statistics:
        assert one["texts"] == 12
        assert one["same"] + one["other"] + one["unknown"] == pytest.approx(1)
    assert statistics[0]["masked"] == statistics[1]["masked"] >= 12
    assert len(found["texts"]) == 6
    assert [text["epoch"] for text in found["texts"]] == [1, 2] * 3
    assert all("[" in text["original"] and "[" in text["perturbed"] for text in found["texts"])

    shown = CliRunner().invoke(cli, ["perturbations", folder, "--texts", "1"])
    assert shown.exit_code == 0, shown.output
    for text in found["texts"][:2]:
        assert text["original"] in shown.output
        assert text["perturbed"] in shown.output


def test_a_run_without_mask_tuning_is_an_error_of_one_line(run):
    folder = run("plain", "random_mlm")
    result = CliRunner().invoke(cli, ["perturbations", folder])
    assert result.exit_code == 2
    assert "has no perturbed texts" in result.output
