"""No output overwrites the files of a run or sweep, nor what it is made from."""

import pytest

import auxlearn
from auxlearn.comparison.formats import Comparison
from auxlearn.core.errors import UserError
from auxlearn.core.files import content_digest
from auxlearn.results.outputs import RUN_NAMES, SWEEP_NAMES, check_no_split, check_output_file
from tests import helpers
from tests.cli.helpers import error, write_run, write_split
from tests.sweeps.conftest import InlineExecutor

ROWS = [("a b", "no"), ("b c", "yes"), ("c d", "no")]


@pytest.fixture(scope="module")
def made(tmp_path_factory, one_layer):
    """A finished run, a second one and a data set."""
    place = tmp_path_factory.mktemp("outputs")
    data = place / "data"
    write_split(data / "test.tsv", ROWS)
    for name in ("run", "other"):
        write_run(place / name, one_layer, dataset=str(data))
    (place / "sweep").mkdir()
    (place / "sweep" / "sweep.yaml").write_text("name: a\n")
    (place / "sweep" / "plan.json").write_text("{}")
    write_split(place / "set" / "train.tsv", ROWS)
    for name in ("en-train.tsv", "en-dev.tsv", "en-hard.tsv"):
        write_split(place / "splits" / name, ROWS)
    for split in ("train", "test"):
        write_split(place / "parts" / split / "rows.tsv", ROWS)
        for label in ("no", "yes"):
            (place / "classes" / split / label).mkdir(parents=True)
            (place / "classes" / split / label / "1.txt").write_text("a b")
    (place / "texts.jsonl").write_text('{"text": "a b"}\n')
    return place


REFUSED = {
    "evaluate: results of the run": "evaluate run --dataset data {run}/results.json",
    "evaluate: the data set": "evaluate run --dataset data {data}/test.tsv",
    "evaluate: a new file of the data set": "evaluate run --dataset data {data}/x.csv",
    "evaluate: a folder": "evaluate run --dataset data {run}",
    "ensemble: that of the runs": "ensemble run other {data}/test.tsv",
    "predict: the run's predictions": "predict run a {run}/predictions/test.jsonl",
    "predict: a new file there": "predict run a {run}/predictions/new.jsonl",
    "predict: the file read": "predict run --file texts.jsonl {texts.jsonl}",
    "predict: a file of a sweep": "predict run a {sweep}/trials/x/y.jsonl",
    "score: the log of the run": "score --encoder tiny a {run}/metrics.jsonl",
    "score: the file read": "score --encoder tiny --file texts.jsonl {texts.jsonl}",
    "report: a name of the run": "report run {run}/plots/report.html",
    "report: the data set": "report run {data}/report.html",
    "compare: plots of the run": "compare run {run}/plots",
    "score: among the branches": "score --encoder tiny a {run}/branches/x.csv",
    "compare: a sweep": "compare run {sweep}",
    "masks: the model": "masks --encoder tiny {run}/model",
    "masks: a run": "masks --encoder tiny {run}",
    "masks: a data set": "masks --encoder tiny {set}",
    "masks: an encoder": "masks --encoder tiny {run/model}",
    "perturbations: the run": "perturbations run {run}",
    "predict: a split": "predict run a {splits}/en-train.tsv",
    "score: a split": "score --encoder tiny a {splits}/en-dev.tsv",
    "ensemble: a split": "ensemble run other {splits}/en-dev.tsv",
    "train: a split": "train --dataset set {set}/test",
    "train: a split by another name": "train --dataset data {splits}/Validation",
    "pretrain: a split": "pretrain --encoder tiny --corpus texts.jsonl {set}/eval",
    "train: in a split": "train --dataset set {classes}/train/run",
    "sweep: in a split": "sweep sweep/sweep.yaml {parts}/train/new/sweep",
    "report: in a class": "report run {classes}/test/no/report.html",
    "predict: in a split": "predict run a {parts}/test/new.tsv",
    "compare: beside splits": "compare run {parts}/tables",
    "train: in a run": "train --dataset data {run}/predictions/new",
    "train: among the branches": "train --dataset data {run}/branches/new",
    "train: among the trials": "train --dataset data {sweep}/trials/new",
    "pretrain: in a run": "pretrain --encoder tiny --corpus texts.jsonl {run}/checkpoint/new",
    "perturbations: in a sweep": "perturbations run {sweep}/logs",
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_output_over_what_is_there_is_refused_before_any_work(made, what, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.setattr("auxlearn.evaluation.evaluator.Classifier.of_run", None)  # no work
    *arguments, target = REFUSED[what].translate({ord("{"): "", ord("}"): ""}).split()
    before = content_digest(made)
    line = error(*arguments, "--output", target)
    assert "choose another --output" in line
    reasons = (
        "belongs to the",
        "is read",
        "is a folder",
        "is the folder of a",
        "holds a",
        "a split of",
        "the splits of",
    )
    assert any(part in line for part in reasons), line
    assert content_digest(made) == before


def test_python_refuses_too(made, monkeypatch):
    monkeypatch.chdir(made)
    with pytest.raises(UserError, match="belongs to the run"):
        auxlearn.evaluate(made / "run", made / "data", output=made / "run" / "inputs.json")
    found = auxlearn.evaluate(made / "run", made / "data")
    with pytest.raises(UserError, match=r"belongs to the run in .*: choose another output$"):
        found.save(made / "run" / "config.yaml")
    with pytest.raises(UserError, match=r"is the folder of a run: choose another output$"):
        Comparison([], None, [], [], "", []).save(made / "run")


def test_other_places_in_a_run_are_free(made):
    check_output_file(made / "run" / "report.html", [".html"])
    check_output_file(made / "run" / "masks" / "masks.json", [".json"])
    check_output_file(made / "sweep" / "comparison" / "scores.csv", [".csv"])
    check_output_file(made / "splits" / "en-hard.tsv", [".tsv"])
    check_output_file(made / "data" / "test.tsv", [".tsv"])
    for data in ("set", "parts", "classes"):
        check_no_split(made / data / "run")
    check_output_file(made / "classes" / "report.html", [".html"])
    check_no_split(made / "test")
    check_output_file(
        made / "data" / "scores.csv", [".csv"], [made / "texts.jsonl", "a name", "x" * 300]
    )


def test_links_to_a_run_are_seen_through(made, tmp_path):
    (tmp_path / "link").symlink_to(made / "run")
    with pytest.raises(UserError, match="belongs to the run"):
        check_output_file(tmp_path / "link" / "results.json", [".json"])


def test_all_names_of_runs_and_sweeps_are_known(tmp_path, one_layer):
    rows = [{"text": f"{line} {n}", "label": n % 2} for n, line in enumerate(helpers.LINES)]
    base = {"dataset": {"train": rows, "dev": rows[:4], "test": rows[:4]}, "encoder": one_layer}
    base |= {"epochs": 1, "aux": "mask_tuning", "max_length": 16, "weights": "equal"}
    sweep = tmp_path / "sweep"
    plan = {"name": "a", "base": base, "seeds": 1}
    results = auxlearn.sweep(plan, output=sweep, executor=InlineExecutor())
    assert not results.failed, results.failed
    assert (sweep / "logs").is_dir()
    (run,) = (sweep / "trials").iterdir()
    for folder, known in ((run, RUN_NAMES), (sweep, SWEEP_NAMES)):
        assert {path.name for path in folder.iterdir() if path.name[0] != "."} <= known
