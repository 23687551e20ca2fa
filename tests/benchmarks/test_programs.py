"""Each benchmark of speed runs at a size that takes a moment; the pages are what results say."""

import shutil
import sys

import pytest

from auxlearn.core.processes import Processes
from benchmarks import objectives, processes, report, scoring, significance, training, weighting
from benchmarks.common import RESULTS, arguments
from benchmarks.tables import write_section


@pytest.fixture
def bert(encoder_folder):
    return str(encoder_folder("bert"))


def test_training(benchmark, bert, seven_classes):
    options = f"--encoder {bert} --rounds 1 --steps 1 --no-compile --texts 8".split()
    results = benchmark("training", *options, "--dataset", seven_classes)
    whole = results["against Trainer"]
    assert set(whole) == {"transformers Trainer", "one task", training.PASSES}
    limit = whole["transformers Trainer"]["median"] / whole[training.PASSES]["median"]
    assert results["ratios"]["of passes alone, the limit"] == limit
    assert results["settings"]["dataset"] == seven_classes.rsplit("/", 1)[-1]
    assert list(report.training(results))


def test_objectives(benchmark, bert, seven_classes, monkeypatch):
    monkeypatch.setattr(objectives, "CONTESTS", {bert: (1, 2)})
    results = benchmark("objectives", "--rounds", "1", "--dataset", seven_classes)
    assert results["encoders"][bert]["over one"]["2"]["operations"] > 1.5


def test_scoring_gives_each_contestant_its_share(benchmark, bert, seven_classes, monkeypatch):
    monkeypatch.setattr(scoring, "product_rate", lambda *given, **more: 1e9)
    monkeypatch.setitem(scoring.BUDGETS, "cpu", (256,))
    options = f"--encoder {bert} --rounds 1 --texts 4 --length 16 --fill 0.005".split()
    results = benchmark("scoring", *options, "--dataset", seven_classes)
    contestants = results["contestants"]
    exact, few = contestants["packed weights (default)"], contestants["4 passes"]
    assert exact["tokens"] == contestants["minicons"]["tokens"] < few["tokens"]
    assert exact["operations"] == pytest.approx(0.005 * 1e9, rel=0.5)  # whole texts
    assert exact["share of the limit"] == pytest.approx(exact["operations"] / exact["median"] / 1e9)
    assert contestants["batches of equal length"]["largest difference"] < 1e-4
    assert list(report.scoring(results))


def test_processes(bert, seven_classes, monkeypatch):
    """Steps of one process and of all are timed in turn."""
    options = f"--encoder {bert} --rounds 1 --steps 1 --texts 8 --threads 1".split()
    monkeypatch.setattr(sys, "argv", ["processes", *options, "--dataset", seven_classes])
    results = processes.measure(arguments("", add=processes.add_options), Processes())
    assert set(results["rules"]) == set(processes.RULES)
    for rule in results["rules"].values():
        seconds = {name: each["seconds"] for name, each in rule["contestants"].items()}
        (alone,), _, (together,) = seconds.values()
        assert rule["times faster"]["over one process"] == alone / together
    (text,) = report.processes({"steps": 1, "contests": {"1": results}})
    assert "| gcs |" in text


@pytest.mark.slow
def test_the_benchmark_of_processes_starts_them(benchmark, bert, seven_classes):
    options = f"--encoder {bert} --rounds 1 --steps 1 --texts 8 --processes 2".split()
    results = benchmark("processes", *options, "--dataset", seven_classes)
    assert results["contests"]["2"]["rules"]["fixed"]["contestants"]["all processes"]["median"] > 0


def test_weighting_compares_rules_with_fixed(benchmark, monkeypatch):
    monkeypatch.setitem(weighting.SIZES, "minilm", (1, 16, 2, 32))
    monkeypatch.setitem(weighting.BATCH["cpu"], "minilm", 2)
    monkeypatch.setattr(weighting, "LENGTH", 8)
    monkeypatch.setattr(weighting, "ROWS", 8)
    some = {name: weighting.contestants()[name] for name in ("fixed", weighting.SINGLE)}
    monkeypatch.setattr(weighting, "contestants", lambda: some)
    results = benchmark("weighting", "--sizes", "minilm", "--rounds", "1")
    timed = results["sizes"]["minilm"]["contestants"]
    assert list(timed) == ["fixed", "single task", "validation pass"]
    assert timed["fixed"]["time_ratio"] == 1.0
    assert timed["single task"]["peak_bytes"] < timed["fixed"]["peak_bytes"]
    assert results["sizes"]["minilm"]["floor"] == 1 + timed["validation pass"]["time_ratio"]


@pytest.mark.slow
def test_startup(benchmark):
    results = benchmark("startup", "--rounds", "1")
    assert results["first step"]["wall"] > results["help"]["wall"] > 0
    assert list(report.startup(results))


def test_a_page_without_the_markers_is_an_error(tmp_path):
    (tmp_path / "page.md").write_text("no markers here")
    with pytest.raises(SystemExit, match="markers <!-- costs -->"):
        write_section(tmp_path / "page.md", "costs", ["text"])


def test_the_pages_are_what_the_results_say(tmp_path, monkeypatch):
    """Numbers on the pages come from the files beside the benchmarks, and from nowhere else."""
    page, costs = tmp_path / "page.md", tmp_path / "guides" / "costs.md"
    costs.parent.mkdir()
    shutil.copy(report.PAGE, page)
    shutil.copy(report.COSTS_PAGE, costs)
    monkeypatch.setattr(sys, "argv", ["report", "--page", str(page), "--costs-page", str(costs)])
    report.main()
    assert len(list(RESULTS.glob("*.json"))) >= 5
    for made, kept in ((page, report.PAGE), (costs, report.COSTS_PAGE)):
        assert made.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")
    assert (tmp_path / "img" / "costs.png").stat().st_size > 10_000


def test_the_page_of_the_simulations_is_what_their_results_say(tmp_path, monkeypatch):
    kept = report.PAGE.parents[1] / "docs" / "results" / "significance.md"
    for path in (kept, RESULTS / "significance.json"):
        shutil.copy(path, tmp_path)
    page, results = tmp_path / "significance.md", tmp_path / "significance.json"
    words = ["significance", "--no-run", "--output", results, "--page", page]
    monkeypatch.setattr(sys, "argv", [*map(str, words)])
    significance.main()
    assert page.read_text("utf-8") == kept.read_text("utf-8")
