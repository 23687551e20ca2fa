"""Experiments over draws: one small run of each, and the pages that their results make."""

import importlib
import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from auxlearn import train
from auxlearn.core.config import RunConfig
from auxlearn.data.load import load_dataset
from benchmarks import masking, space
from benchmarks.common import RESULTS
from benchmarks.horizon import __main__ as horizon, bed, record, scores
from benchmarks.horizon.bed import SINGLE, Setting, Variant, settings_of
from benchmarks.horizon.scores import Summary, gain, taken, tried
from benchmarks.masking import SHARE

PAGES = Path(__file__).parents[2] / "docs" / "results"


def run(monkeypatch, name, *words):
    """Call the program of an experiment as from a shell."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    return importlib.import_module(f"benchmarks.{name}").main()


@pytest.mark.parametrize(
    ("name", "results", "page"),
    [
        ("horizon.__main__", "horizon.jsonl", "learned_weights.md"),
        ("masking", "masking.jsonl", "masking.md"),
        ("space", "space.jsonl", "space.md"),
        ("significance", "significance.json", "significance.md"),
    ],
)
def test_the_pages_are_what_the_results_say(name, results, page, tmp_path, monkeypatch):
    shutil.copy(RESULTS / results, tmp_path)
    shutil.copy(PAGES / page, tmp_path)
    option = "--output" if name == "significance" else "--results"
    words = ["--no-run", option, tmp_path / results, "--page", tmp_path / page]
    if name in ("horizon.__main__", "masking"):
        words += ["--output", tmp_path / "runs"]
    run(monkeypatch, name, *words)
    assert (tmp_path / page).read_text("utf-8") == (PAGES / page).read_text("utf-8")


SMALL = Setting("pydocs 60, random_mlm, corpus", None, 60, ("random_mlm",), "corpus")


@pytest.fixture(scope="module")
def draws(tmp_path_factory):
    """A folder for draws, whose built-in data are read once."""
    return tmp_path_factory.mktemp("draws")


def test_a_draw_divides_the_union_of_train_and_dev(draws):
    for draw in (0, 1):
        bed.write_draw(SMALL, draw, None, draws / str(draw))
    whole = load_dataset("pydocs")
    pool = {*whole.split("train").texts, *whole.split("dev").texts}
    drawn = []
    for draw in ("0", "1"):
        dataset = load_dataset(str(draws / draw))
        train, dev = dataset.split("train").texts, dataset.split("dev").texts
        lines = (draws / draw / "unlabelled" / "corpus.jsonl").read_text().splitlines()
        rest = [json.loads(line)["text"] for line in lines]
        assert {*train, *dev, *rest} == pool
        assert len(train) + len(dev) + len(rest) == 1300
        assert abs(len(train) - 60) <= 3
        drawn.append(train)
        assert dataset.split("test").texts == whole.split("test").texts
    assert drawn[0] != drawn[1]


@pytest.fixture
def small_draws(monkeypatch, draws):
    """Let draws have a few examples of the built-in set."""

    def write_draw(setting, draw, data, folder):
        for name, count in (("train", 24), ("dev", 12), ("test", 12)):
            split = load_dataset("pydocs").split(name)
            bed.write_split(folder / f"{name}.jsonl", split.select([*range(count)]))
        (folder / "unlabelled").mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "train.jsonl", folder / "unlabelled" / "corpus.jsonl")

    for module in (horizon, masking, space):
        monkeypatch.setattr(module, "write_draw", write_draw)


@pytest.mark.usefixtures("small_draws")
def test_horizon_and_masking_train_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(horizon, "SETTINGS", (SMALL,))
    monkeypatch.setattr(masking, "BEDS", (SMALL,))
    monkeypatch.setattr(horizon, "GROUPS", {"grid": (SINGLE[0], SHARE)})
    common = ["--output", tmp_path, "--draws", 0, "--epochs", 2, "--max-length", 16]
    words = [*common, "--results", tmp_path / "h.jsonl", "--groups", "grid"]
    assert run(monkeypatch, "horizon.__main__", *words) == 0
    assert "2 runs in" in capsys.readouterr().out
    folder = next(tmp_path.glob("records/tiny/*/0"))
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.npz")}
    assert set(before) == {"single_0.npz", "steps_0.3.npz"}
    words = [*common, "--results", tmp_path / "m.jsonl", "--strategies", "random", "span"]
    assert run(monkeypatch, "masking", *words) == 0
    assert "With share 0.3" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("*.npz")} == before
    shutil.rmtree(tmp_path / "records")  # what has a result is not trained on another machine
    assert run(monkeypatch, "masking", *words) == 0
    assert not list(tmp_path.glob("records/**/*.npz"))


@pytest.mark.usefixtures("small_draws")
def test_space_trains_what_is_missing(tmp_path, monkeypatch, capsys):
    settings = space.settings_of

    def short(*given):
        return settings(*given).model_copy(update={"epochs": 1, "max_length": 16})

    monkeypatch.setattr(space, "settings_of", short)
    words = ["--output", tmp_path, "--results", tmp_path / "s.jsonl", "--draws", 0]
    for _ in range(2):
        run(monkeypatch, "space", *words, "--only", "n = 3, `aang`")
    (kept,) = map(json.loads, (tmp_path / "s.jsonl").read_text().splitlines())
    assert kept["factors"]["space"]["output"]


def test_a_record_is_that_of_the_best_checkpoint(draws, tmp_path):
    for name, count in (("train", 24), ("dev", 12), ("test", 12)):
        split = load_dataset("pydocs").split(name)
        bed.write_split(tmp_path / f"{name}.jsonl", split.select([*range(count)]))
    base = {"encoder": "tiny", "epochs": 2, "batch_size": 6, "max_length": 16, "device": "cpu"}
    for variant in (SINGLE[0], Variant(0.3)):
        settings = settings_of(replace(SMALL, reads="labelled"), 0, variant, tmp_path, base)
        record.record(settings, tmp_path / "runs" / f"{variant.name.replace(' ', '_')}.npz")
    results = train(RunConfig(**settings, patience=0, output=str(tmp_path / "again")))
    single, summary = scores.summarise(tmp_path / "runs", "tiny", "a", 0)
    assert summary.dev["best"] == pytest.approx(results.best.value, abs=1e-6)
    assert summary.test["best"] == pytest.approx(results.evaluations["test"].all.accuracy, abs=1e-6)
    mean, error = summary.gains["best"]["accuracy"]
    assert mean == pytest.approx(summary.dev["best"] - single.dev["best"], abs=1e-6)
    assert error >= 0


def summary(variant, test, dev=0.5, **gains):
    found = {"best": {score: [0.0, 0.01] for score in scores.SCORES} | gains}
    gained = {} if variant.startswith("single") else found
    return Summary("tiny", "a", 0, variant, 10.0, {"best": dev}, {"best": test}, gained)


def one_draw(first, lower=0.0, higher=0.0):
    made = [
        summary("single 0", 0.60),
        summary("steps 0.1", 0.61, calibrated=[lower, 0.01]),
        summary("steps 0.3", 0.63, calibrated=[first, 0.01]),
        summary("steps 0.5", 0.66, calibrated=[higher, 0.01]),
    ]
    return {run.variant: run for run in made}


@pytest.mark.parametrize(
    ("draw", "second", "chosen"),
    [
        (one_draw(0.02, higher=0.03), "steps 0.5", "steps 0.5"),
        (one_draw(-0.02, lower=0.02, higher=9), "steps 0.1", "steps 0.1"),
        (one_draw(0.004), "steps 0.5", "single 0"),
    ],
)
def test_the_rule_of_the_benchmark_is_that_of_meta(draw, second, chosen):
    order = scores.DEFAULT_ORDER
    assert tried(draw, order, "calibrated", "best") == ["steps 0.3", second]
    assert taken(draw, order, "calibrated", "best", 0.5) == chosen
    assert gain(draw, "steps 0.5", "best") == pytest.approx(6)


def test_differences_are_tested_in_pairs_over_all_draws():
    first = {"a": [60.0, 62.0, 64.5], "b": [70.0, 71.0]}
    other = {"a": [59.0, 62.5, 61.0], "b": [68.0, 70.5]}
    mean, error, p = masking.against(first, other)
    own, others = np.concatenate([*first.values()]), np.concatenate([*other.values()])
    assert mean == pytest.approx((own - others).mean())
    assert error == pytest.approx(scipy.stats.sem(own - others))
    assert p == pytest.approx(scipy.stats.ttest_rel(own, others).pvalue, rel=1e-9)


def test_gains_are_compared_with_the_learned_weight_and_corrected_for_their_number():
    name = "`space`, n = 3, `aang`"
    tests = {"single 0": (0.50, 0.60), space.LEARNED: (0.52, 0.60), name: (0.51, 0.63)}
    records = [
        {"draw": draw, "variant": variant, "test": test}
        for variant, both in tests.items()
        for draw, test in enumerate(both)
    ]
    first, second = space.gains(records, [0, 1]).splitlines()[2:]
    # Gains 2 and 0, t = 1, and 1 and 3, t = 2; by Holm twice the smaller p, the other is no less.
    p = 2 * (1 - 2 / math.pi * math.atan(2.0))
    assert first == f"| {space.LEARNED} | 2 | 56.0 |  | +1.0 ± 1.0 | {p:.2f} |  |"
    assert second == f"| {name} | 2 | 57.0 |  | +2.0 ± 1.0 | {p:.2f} | +1.0 ± 2.0 |"
