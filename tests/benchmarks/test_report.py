"""Reports: tables of every benchmark's results, between the markers of the page."""

import json
import shutil
import sys

import pytest

from benchmarks import report, report_gpu
from benchmarks.common import RESULTS

MACHINE = {
    **{"processor": "Chip", "cores": 16, "threads": 16, "clock": "wall", "load": [0.5, 0, 0]},
    "gpu": {"name": "Card", "cuda": "13.0"},
    "packages": {"torch": "2.13", "transformers": "5.23"},
}


def gpu_results():
    """One small file of each part, as the benchmarks write them."""
    settings = {"encoder": "base", "precision": "bf16", "length": "128"}
    common = {"machine": MACHINE, "settings": settings}
    rates = {"torch.float32": 50e12, "tf32": 300e12, "torch.bfloat16": 700e12}
    timed = {"median": 1.0, "seconds": [1.0]}
    minicons = {"tokens per second": 1000.0, "speed-up": 1.0, "share of the limit": 0.1}
    minicons |= timed | {"peak bytes": 3 * 2**30}
    half = timed | {"tokens per second": 12_000.0, "share of the limit": 0.625}
    fixed = {"seconds": 0.05, "time_ratio": 1.0, "memory_over_fixed_in_parameter_copies": 0.0}
    rules = {"fixed": fixed, "validation pass": {"seconds": 0.02, "time_ratio": 0.4}}
    contest = {"contestants": {"all processes": {"median": 0.5}}}
    contest |= {"times faster": {"over one process": 1.75}}
    parts = {
        "scoring-base-128": {
            "matrix products per second": rates,
            "contestants": {"minicons": minicons, "bf16": half},
            "budgets": {"16384": 100.0},
        },
        "training-base": {
            "against Trainer": {"one task": {"steps per second": 12.5, "peak bytes": 2**30}},
            "contestants": {"one task": {"steps per second": 13.0}},
            "ratios": {"throughput over Trainer": 1.25},
        },
        "weighting-base-bf16": {"sizes": {"base": {"contestants": rules}}},
        "objectives-bf16": {
            "encoders": {"base": {"over one": {"2": {"time": 2.1, "operations": 2.0}}}}
        },
        "processes-base": {"steps": 4, "contests": {"2": {"rules": {"fixed": contest}}}},
    }
    return {name: common | part for name, part in parts.items()}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "gpu").mkdir()
    for name, content in gpu_results().items():
        (tmp_path / "gpu" / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_every_part_of_the_gpu_benchmark_has_its_table(folder):
    text = "\n".join(report_gpu.write(folder / "gpu"))
    assert len(gpu_results()) == len(report_gpu.PARTS)
    for heading, _, _ in report_gpu.PARTS:
        assert f"**{heading}**" in text
    for row in (
        "50 in fp32, 300 in tf32, 700 in bf16",
        "| base, 128 tokens: minicons | 1000 | 1.0 | 10% | 3.0 |",
        "| base, 128 tokens: bf16 | 12000 |  | 62% |  |",
        "| base, 128 tokens: one task | 12.50 | 1.0 |",
        "| base, 128 tokens: throughput over Trainer | 1.25 |",
        "| base, bf16: fixed | 50.0 | 1.00 | +0.00 |",
        "| base, bf16: validation pass | 20.0 | 0.40 |  |",
        "| base | 2 | 2.10 | 2.00 |",
        "| 2 | fixed | 8.00 | 1.75 | 88% |",
    ):
        assert row in text
    assert text.count("Taken on Chip, Card, CUDA 13.0") == 1


def test_parts_without_results_are_left_out(folder):
    for path in (folder / "gpu").glob("[!o]*.json"):
        path.unlink()
    assert [text for text in report_gpu.write(folder / "gpu") if text.startswith("**")] == [
        "**Several objectives**"
    ]
    assert list(report_gpu.write(folder / "nothing")) == []


def test_the_page_gets_the_tables_of_the_gpu(folder, monkeypatch):
    page = folder / "page.md"
    page.write_text("before\n<!-- gpu -->\nold\n<!-- /gpu -->\nafter\n")
    monkeypatch.setattr(sys, "argv", ["report", "--results", str(folder), "--page", str(page)])
    report.main()
    text = page.read_text()
    assert "old" not in text
    assert "**Several objectives**" in text
    assert text.startswith("before\n<!-- gpu -->\nTaken on")
    assert text.endswith("<!-- /gpu -->\nafter\n")


def test_a_page_without_the_markers_is_an_error():
    with pytest.raises(SystemExit, match="markers <!-- gpu -->"):
        report.put("no markers here", "gpu", ["text"])


def test_the_pages_are_what_the_results_say(tmp_path, monkeypatch):
    """Numbers on the pages come from the files beside the benchmarks, and from nowhere else."""
    page, costs = tmp_path / "page.md", tmp_path / "guides" / "costs.md"
    costs.parent.mkdir()
    shutil.copy(report.PAGE, page)
    shutil.copy(report.COSTS_PAGE, costs)
    given = ["report", "--page", str(page), "--costs-page", str(costs)]
    monkeypatch.setattr(sys, "argv", given)
    report.main()
    assert len(list(RESULTS.glob("*.json"))) >= 5
    for made, kept in ((page, report.PAGE), (costs, report.COSTS_PAGE)):
        assert made.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")
    assert (tmp_path / "img" / "costs.png").stat().st_size > 10_000
