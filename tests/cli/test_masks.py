"""``auxlearn masks``: from settings, from a run folder, and with what it cannot use."""

import csv
import json
from types import SimpleNamespace

import pytest

from auxlearn.core.config import RunConfig
from auxlearn.core.files import write_text
from auxlearn.results.record import RunResults
from tests import helpers
from tests.cli.helpers import call, error
from tests.sweeps.conftest import write_dataset


@pytest.fixture(scope="module")
def place(tmp_path_factory, encoder_folder):
    folder = tmp_path_factory.mktemp("masks")
    write_dataset(folder / "data")
    common = ["--dataset", folder / "data", "--encoder", encoder_folder("bert")]
    common += ["--cache-dir", folder / "cache", "--device", "cpu"]
    return folder, common


@pytest.fixture(scope="module")
def report(place):
    """What is printed as JSON for three tasks; and the folder with the files."""
    folder, common = place
    tasks = ["--aux", "l3mask", "--aux", "random_mlm", "--aux", "mask_tuning", "--aux", "simcse"]
    options = ["--score", "surprisal", "--texts", 2, "--output", folder / "found", "--json"]
    return json.loads(call("masks", *common, *tasks, *options).stdout), folder / "found"


def test_tasks_side_by_side(report):
    found, _ = report
    assert list(found["spreads"]) == ["l3mask", "random_mlm"]
    assert found["spreads"]["random_mlm"]["moved"] == pytest.approx(0, abs=1e-12)
    assert found["spreads"]["l3mask"]["moved"] > 0.01
    assert found["spreads"]["l3mask"]["mean"] == pytest.approx(0.15)
    assert [note.split()[0] for note in found["notes"][:2]] == ["mask_tuning", "simcse"]
    assert found["sentences"][1].startswith("random_mlm masks all tokens of a text with one prob")
    for group in found["frequencies"]:
        assert group["rates"]["random_mlm"] == pytest.approx(0.15)
        assert group["random"]["l3mask"] == pytest.approx(0.15)
    assert sum(group["tokens"] for group in found["frequencies"]) == found["tokens"]
    for text in found["texts"]:
        assert all(len(rates) == len(text["tokens"]) for rates in text["rates"].values())


def test_files_beside_each_other(report):
    found, folder = report
    assert {path.name for path in folder.iterdir()} == {"masks.json", "groups.csv"}
    assert json.loads((folder / "masks.json").read_text()) == found
    lines = list(csv.DictReader((folder / "groups.csv").read_text().splitlines()))
    tokens = [line for line in lines if line["grouped_by"] == "token"]
    assert sum(int(line["tokens"]) for line in tokens) == 2 * found["tokens"]
    own = [line for line in tokens if line["task"] == "l3mask"]
    weighted = sum(int(line["tokens"]) * float(line["probability"]) for line in own)
    assert weighted / found["tokens"] == pytest.approx(0.15)


def test_the_tasks_of_a_run_and_some_of_its_texts(place, encoder_folder, monkeypatch):
    folder, _ = place
    config = RunConfig(
        dataset=str(folder / "data"),
        encoder=str(encoder_folder("bert")),
        aux=[{"l3mask": {"probability": 0.3}}],
        cache_dir=str(folder / "cache"),
        device="cpu",
    ).resolved()
    write_text(folder / "run" / "config.yaml", config.to_yaml())
    shown = call("masks", folder / "run", "--examples", 5, "--texts", 1).stdout
    assert ": 5 texts, " in shown
    assert "mean probability 0.300" in shown
    assert shown.count(" l3mask: ") == 1
    assert "by frequency of the token in the texts" in shown
    results = SimpleNamespace(dataset=SimpleNamespace(fingerprint="of other data"))
    monkeypatch.setattr(RunResults, "load", lambda folder: results)
    changed = f"note: this is not the data that {folder / 'run'} was trained on"
    assert changed not in shown
    write_text(folder / "run" / "results.json", "{}")
    assert changed in call("masks", folder / "run", "--examples", 5, "--texts", 0).stdout


def test_a_task_with_a_corpus_masks_its_texts(place, tmp_path):
    _, common = place
    write_text(tmp_path / "corpus.txt", "".join(f"the parser is fast {n}\n" for n in range(40)))
    corpus = ["--aux", "random_mlm", "--random-mlm-corpus", tmp_path / "corpus.txt"]
    found = json.loads(call("masks", *common, *corpus, "--examples", 5, "--json").stdout)
    assert found["examples"] == 40
    assert [text["example"] for text in found["texts"]] == list(range(8))
    said = "the texts are all those of the corpus of random_mlm, none of the data set"
    assert said in found["notes"]


def test_texts_of_users_are_shown_harmlessly(place, tmp_path):
    _, common = place
    texts = ["$x^2$ [bold]red[/bold] \\x1b[31m <b> 日本", "a _{b} $", "the parser is fast"]
    rows = [{"text": text, "label": str(n % 2)} for n, text in enumerate(texts * 4)]
    data = helpers.write_splits(tmp_path / "data", train=rows, dev=rows, test=rows)
    settings = ["--dataset", data, *common[2:], "--aux", "random_mlm"]
    result = call("masks", *settings, "--output", tmp_path / "found")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], r"no auxiliary task is given: choose one with --aux, such as --aux l3mask"),
        (["--aux", "simcse"], "simcse: no mask probabilities"),
        (["no-such-run"], "run folder no-such-run does not exist"),
    ],
)
def test_what_it_cannot_use_is_said_in_one_line(place, arguments, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, common = place
    found = error("masks", *common, *arguments, "--output", tmp_path / "found")
    assert line in found
    assert not (tmp_path / "found").exists()
