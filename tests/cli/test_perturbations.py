"""``auxlearn perturbations`` on a finished run."""

import csv
import json

import pytest

import auxlearn
from auxlearn import RunConfig, train
from tests import helpers
from tests.cli.helpers import call, error


@pytest.fixture(scope="module")
def run(tmp_path_factory, encoder_folder):
    folder = tmp_path_factory.mktemp("perturbations")
    rows = [row | {"label": row["label"][:1]} for row in helpers.rows()]
    helpers.write_splits(folder / "data", train=rows[:12], dev=rows[12:18], test=rows[18:])

    def made(name, *aux):
        place = folder / name
        settings = {"dataset": folder / "data", "encoder": encoder_folder("bert"), "output": place}
        train(RunConfig(**settings, aux=aux, epochs=2, batch_size=6, device="cpu"))
        return str(place)

    made.folder = folder
    return made


def test_statistics_by_epoch_and_texts(run):
    folder = run("run", "mask_tuning")
    found = json.loads(call("perturbations", folder, "--json", "--texts", 3).stdout)
    statistics = found["statistics"]
    rows = [(epoch, encoder) for epoch in (1, 2) for encoder in ("this run", "pretrained")]
    assert [(one["epoch"], one["encoder"]) for one in statistics] == rows
    for one in statistics:
        assert one["texts"] == 12
        assert one["same"] + one["other"] + one["unknown"] == pytest.approx(1)
    assert statistics[0]["masked"] == statistics[1]["masked"] >= 12
    assert len(found["texts"]) == 6
    assert [text["epoch"] for text in found["texts"]] == [1, 2] * 3
    assert all("[" in text["original"] and "[" in text["perturbed"] for text in found["texts"])

    for one in found["examples"]:
        assert one["examples"] == 12
        shares = [one["same"], one["plausible"] or 0.0, one["other"], one["unknown"]]
        assert sum(shares) == pytest.approx(1)

    tables = run.folder / "tables"
    shown = call("perturbations", folder, "--texts", 1, "--output", tables)
    for text in found["texts"][:2]:
        assert f"example {text['example']}: {text['text']}" in shown.output
        for old, new in text["substitutions"]:
            assert f"[{old}] => [{new}]" in shown.output
    assert json.loads((tables / "perturbations.json").read_text())["statistics"] == statistics
    lines = list(csv.DictReader((tables / "substitutions.csv").read_text().splitlines()))
    assert len(lines) == sum(one["masked"] for one in statistics) // 2
    first = [line for line in lines if line["example"] == str(found["texts"][0]["example"])]
    pairs = [[line["masked"], line["substituted"]] for line in first if line["epoch"] == "1"]
    assert pairs == found["texts"][0]["substitutions"]


def test_a_run_without_mask_tuning_is_an_error_of_one_line(run):
    assert "has no perturbed texts" in error("perturbations", run("plain", "random_mlm"))


def test_the_function_returns_what_the_command_prints(run):
    folder = run("run", "mask_tuning")
    printed = call("perturbations", folder, "--json", "--texts", 2)
    report = auxlearn.perturbations(folder, texts=2)
    assert json.loads(json.dumps(report.to_dict())) == json.loads(printed.stdout)
    frame = report.to_frame()
    assert frame["epoch"].tolist() == [1, 1, 2, 2]
    assert frame["encoder"].tolist() == ["this run", "pretrained"] * 2
    assert repr(report).startswith(f"<PerturbationReport of {folder}: 2 epochs, ")
    assert "<table" in report._repr_html_()
    assert auxlearn.perturbations(auxlearn.load_run(folder), texts=0).texts == []
