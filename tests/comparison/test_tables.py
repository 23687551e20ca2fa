"""Tables of comparisons whose scores are known beforehand."""

from __future__ import annotations

import csv
import io
import json
import statistics

import pytest
from click.testing import CliRunner
from scipy import stats

from auxlearn.cli import cli
from auxlearn.comparison.compare import compare_sweeps
from auxlearn.comparison.tables import (
    console_tables,
    escape_latex,
    latex,
    markdown,
    metrics_csv,
    pairs_csv,
)
from tests.comparison.conftest import METHODS, right_by_method


def test_the_csv_files_hold_the_scores_of_the_runs(make_sweep):
    comparison = compare_sweeps([make_sweep(right_by_method, grid=METHODS, seeds=8)])
    (setting,) = comparison.settings
    assert setting.setting == {"dataset": "pydocs", "encoder": "tiny", "metric": "accuracy"}
    lines = list(csv.DictReader(io.StringIO(metrics_csv(comparison))))
    assert len(lines) == 2 * 3 * 2
    (rtm,) = [
        line
        for line in lines
        if (line["method"], line["set"], line["metric"]) == ("RTM", "test", "accuracy")
    ]
    values = [(24 + seed % 2) / 40 for seed in range(8)]
    assert float(rtm["mean"]) == pytest.approx(statistics.mean(values))
    assert float(rtm["sd"]) == pytest.approx(statistics.stdev(values))
    assert rtm["best"] == "True"
    assert float(rtm["epochs_to_best"]) == 7.5
    assert float(rtm["minutes"]) == 4.5
    (pair,) = [
        line
        for line in csv.DictReader(io.StringIO(pairs_csv(comparison)))
        if (line["set"], line["metric"]) == ("test", "accuracy")
    ]
    assert (pair["first"], pair["second"]) == ("RTM", "STL")
    assert float(pair["difference"]) == pytest.approx(0.1)
    assert float(pair["p_seeds"]) == pytest.approx(2 / 2**8)
    # Five rows of 40 make the difference; a resample has none of them with probability 0.875^40.
    assert float(pair["p_examples"]) == pytest.approx(2 * 0.875**40, abs=0.006)


def test_the_best_score_and_ties_are_marked_in_every_format(make_sweep):
    comparison = compare_sweeps([make_sweep(right_by_method, grid=METHODS, seeds=8)])
    text = markdown(comparison)
    assert "| RTM | 8 | **61.25** ± 1.34 |" in text
    assert "| STL | 8 | 51.25 ± 1.34 |" in text  # told apart from the best: no mark
    assert "50.00 ± 0.00 ≈" in text  # equal on the set from another distribution
    assert "Nothing was chosen between trials" in text
    tex = latex(comparison)
    assert r"\textbf{61.25} $\pm$ 1.34" in tex
    assert tex.count(r"\toprule") == tex.count(r"\bottomrule") == 1
    assert tex.count(r"\resizebox{") == tex.count(r"\end{tabular}}") == 1
    assert r"50.00 $\pm$ 0.00$^{\approx}$" in tex
    shown = [item for item in console_tables(comparison) if isinstance(item, str)]
    assert any("pydocs, tiny" in line for line in shown)


def test_a_single_method_is_not_marked_as_best(make_sweep):
    comparison = compare_sweeps([make_sweep(lambda trial: {"dev": 30, "test": 20}, seeds=2)])
    assert "| 50.00 ± 0.00 | 49.00 ± 0.00 |" in markdown(comparison)
    assert "**" not in markdown(comparison)
    assert "True" not in metrics_csv(comparison)


def test_a_note_says_when_there_are_too_few_seeds(make_sweep):
    comparison = compare_sweeps([make_sweep(right_by_method, grid=METHODS, seeds=2)])
    text = markdown(comparison)
    assert "with 2 seeds no difference is significant, however large" in text
    assert "at least 3 are needed" in text
    assert "51.25 ± 1.77 ≈" in text
    assert "| detectable |  | none |" in text


def test_a_large_difference_is_significant_with_five_seeds(make_sweep):
    """31 against 58 percent, with seeds that differ as in real runs."""
    right = {"STL": (52, 47, 44, 56, 51), "RTM": (92, 96, 89, 91, 95)}  # of 160

    def by_seed(trial):
        return {"dev": 80, "test": right[trial.cell["method"]][trial.seed]}

    comparison = compare_sweeps([make_sweep(by_seed, grid=METHODS, seeds=5, examples=160)])
    (metric,) = [one for one in comparison.settings[0].metrics if one.key == ("test", "accuracy")]
    assert metric.ties == frozenset()
    assert metric.seed_tests == ("t",)
    text = markdown(comparison)
    assert f"| STL | 5 | 31.25 ± {statistics.stdev(right['STL']) / 1.6:.2f} |" in text
    note = "paired t-test, which assumes that differences between seeds are normal"
    assert note in text
    assert note in latex(comparison)
    assert any(note in item for item in console_tables(comparison) if isinstance(item, str))
    assert "with fewer than 6 seeds" in text
    (pair,) = [
        line
        for line in csv.DictReader(io.StringIO(pairs_csv(comparison)))
        if (line["set"], line["metric"]) == ("test", "accuracy")
    ]
    assert pair["seed_test"] == "t"
    differences = [(b - a) / 160 for a, b in zip(right["STL"], right["RTM"], strict=True)]
    expected = stats.ttest_1samp(differences, 0).pvalue
    assert float(pair["p_seeds"]) == pytest.approx(expected, rel=1e-9)
    assert {line["seed_test"] for line in csv.DictReader(io.StringIO(metrics_csv(comparison)))} == {
        "t"
    }
    enough = markdown(
        compare_sweeps([make_sweep(right_by_method, "enough", grid=METHODS, seeds=6)])
    )
    assert "t-test, which assumes" not in enough
    assert "paired permutation test over seeds" in enough


def test_missing_seeds_are_named(make_sweep):
    def right(trial):
        return None if trial.title == "RTM, seed 1" else right_by_method(trial)

    text = markdown(compare_sweeps([make_sweep(right, grid=METHODS, seeds=3)]))
    assert "RTM: no scores for seed 1 (unfinished)" in text


def test_degenerate_runs_are_named(make_sweep):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=8)
    digest = next(r.digest for r in folder.load_results() if r.cell["method"] == "RTM")
    path = folder.run(digest).path / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"degenerate": "no"}))
    (line,) = [line for line in markdown(compare_sweeps([folder])).splitlines() if "degen" in line]
    assert "RTM: degenerate for 1 of 8 seeds" in line


def test_special_characters_of_latex_are_escaped():
    assert escape_latex("a_b & 5% {x} ± ≈ \\") == (
        r"a\_b \& 5\% \{x\} $\pm$ $\approx$ \textbackslash{}"
    )


def test_the_command_writes_tables_and_plots(make_sweep, tmp_path):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=3)
    out = tmp_path / "tables"
    done = CliRunner().invoke(cli, ["compare", str(folder.path), "--output", str(out)])
    assert done.exit_code == 0, done.output
    names = {path.name for path in out.iterdir()}
    assert {"table.md", "table.tex", "metrics.csv", "pairs.csv"} < names
    assert {name.split("-")[0] for name in names if name.endswith(".png")} == {
        "scores",
        "epochs",
        "weights",
    }
    assert "detectable" in done.output
