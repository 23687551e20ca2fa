"""Comparisons of made sweeps: every figure in the tables is known beforehand."""

from __future__ import annotations

import csv
import io
import json
import statistics
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from scipy import stats

from auxlearn.cli import cli
from auxlearn.comparison.collect import compare_sweeps
from auxlearn.comparison.plots import plot_comparison
from auxlearn.comparison.published import published_names, read_published
from auxlearn.comparison.tables import (
    console_tables,
    escape_latex,
    figures_csv,
    latex,
    markdown,
    pairs_csv,
    published_grid,
)
from auxlearn.errors import ConfigError, SweepError
from auxlearn.sweeps.folder import SweepFolder
from auxlearn.sweeps.plan import cells_of, plan_trials, read_sweep
from auxlearn.sweeps.select import chosen_trials

LABELS = ["no", "yes"]


def scores(right: int, examples: int) -> dict:
    share = right / examples
    return {
        "examples": examples,
        "accuracy": share,
        "macro_f1": share - 0.01,
        "per_class": {},
        "confusion": [],
    }


def write_run(folder: Path, trial, right: dict[str, int], seconds: float, examples: int) -> None:
    """A run folder as training leaves it; of each set the given number of rows is right."""
    folder.mkdir(parents=True)
    evaluations = {
        name: {
            "all": scores(count, examples),
            "unseen": None,
            "seen_examples": 0,
            "majority": scores(examples // 2, examples),
            "loss": 0.5,
        }
        for name, count in right.items()
    }
    content = {
        "config": trial.config.model_dump(mode="json"),
        "digest": trial.digest,
        "dataset": {
            "name": "made",
            "fingerprint": "feedfacecafebeef",
            "examples": {},
            "label_names": LABELS,
            "notes": [],
        },
        "best": {
            "step": 40,
            "epoch": 4.0 + trial.seed,
            "metric": "accuracy",
            "value": right["dev"] / examples,
        },
        "evaluations": evaluations,
        "weights": {"primary": 0.6, "random_mlm": 0.4},
        "steps": 50,
        "stopped": "epochs",
        "seconds": {"preparation": 1.0, "training": seconds},
        "environment": {"versions": {}},
    }
    (folder / "results.json").write_text(json.dumps(content))
    rows = [{"kind": "train", "step": s, "weight/primary": 0.5, "weight/a": 0.5} for s in (10, 20)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "predictions").mkdir()
    for name, count in right.items():
        lines = [
            {"label": LABELS[t], "predicted": LABELS[t if row < count else 1 - t]}
            for row, t in enumerate([0, 1] * (examples // 2))
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "predictions" / f"{name}.jsonl").write_text(text)


@pytest.fixture
def made(tmp_path):
    """Write a finished sweep; ``right`` gives the right rows by set for each trial."""

    def write(right, place="made", examples=40, **content) -> SweepFolder:
        path = tmp_path / f"{place}.yaml"
        path.write_text(yaml.safe_dump({"name": place} | content, sort_keys=False))
        sweep, folder = read_sweep(path), SweepFolder(tmp_path / place)
        folder.save_sweep(sweep)
        trials = plan_trials(sweep, cells_of(sweep))
        for trial in trials:
            found = right(trial)
            if found:
                path = folder.run(trial.digest).path
                write_run(path, trial, found, 59.0 + 60 * trial.seed, examples)
        dev = {t.digest: folder.dev_metrics(t.digest) for t in trials if right(t)}
        chosen = chosen_trials(sweep, trials, dev.get)
        folder.save_results(sweep, [folder.record(t, t.digest in chosen) for t in trials])
        return folder

    return write


METHODS = {"method": {"STL": {"aux": []}, "RTM": {"aux": "random_mlm"}}}


def by_method(trial):
    """RTM is right on four rows more; the seed adds a row."""
    base = {"STL": 28, "RTM": 32}[trial.cell["method"]]
    return {"dev": base, "test": base - 8 + trial.seed % 2, "away": 20}


def test_the_table_holds_the_figures_of_the_runs(made):
    comparison = compare_sweeps([made(by_method, grid=METHODS, seeds=8)])
    (block,) = comparison.blocks
    assert block.setting == {"dataset": "pydocs", "encoder": "tiny", "metric": "accuracy"}
    lines = list(csv.DictReader(io.StringIO(figures_csv(comparison))))
    assert len(lines) == 2 * 3 * 2
    (rtm,) = [
        line
        for line in lines
        if (line["method"], line["set"], line["figure"]) == ("RTM", "test", "accuracy")
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
        if (line["set"], line["figure"]) == ("test", "accuracy")
    ]
    assert (pair["first"], pair["second"]) == ("RTM", "STL")
    assert float(pair["difference"]) == pytest.approx(0.1)
    assert float(pair["p_seeds"]) == pytest.approx(2 / 2**8)
    # Five rows of 40 make the difference; a resample has none of them with probability 0.875^40.
    assert float(pair["p_rows"]) == pytest.approx(2 * 0.875**40, abs=0.006)


def test_best_and_marks_in_every_format(made):
    comparison = compare_sweeps([made(by_method, grid=METHODS, seeds=8)])
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


def test_a_method_alone_is_no_best(made):
    comparison = compare_sweeps([made(lambda trial: {"dev": 30, "test": 20}, seeds=2)])
    assert "| 50.00 ± 0.00 | 49.00 ± 0.00 |" in markdown(comparison)
    assert "**" not in markdown(comparison)
    assert "True" not in figures_csv(comparison)


def test_a_method_with_an_encoder_of_its_own_competes_where_encoder_is_an_axis(made):
    """As the sequential row of Mask-tuning's Table III, trained on another encoder."""
    grid = {
        "encoder": {"tiny": {"encoder": "tiny"}},
        "dataset": {"pydocs": {"dataset": "pydocs"}},
        "method": {
            "STL": {"aux": []},
            "RTM": {"aux": "random_mlm", "encoder": "runs/mlm-{encoder}-{dataset}"},
        },
    }
    comparison = compare_sweeps([made(by_method, grid=grid, seeds=2)])
    (block,) = comparison.blocks
    assert [row.name for row in block.rows] == ["STL", "RTM"]


def test_too_few_seeds_are_said_to_be_too_few(made):
    comparison = compare_sweeps([made(by_method, grid=METHODS, seeds=2)])
    text = markdown(comparison)
    assert "2 seeds can tell nothing apart, however large the difference" in text
    assert "at least 3 are needed" in text
    assert "51.25 ± 1.77 ≈" in text
    assert "| detectable |  | none |" in text


def test_five_seeds_tell_a_large_difference_apart(made):
    """31 against 58 percent, with seeds that differ as in real runs."""
    right = {"STL": (52, 47, 44, 56, 51), "RTM": (92, 96, 89, 91, 95)}  # of 160

    def by_seed(trial):
        return {"dev": 80, "test": right[trial.cell["method"]][trial.seed]}

    comparison = compare_sweeps([made(by_seed, grid=METHODS, seeds=5, examples=160)])
    (column,) = [c for c in comparison.blocks[0].columns if c.key == ("test", "accuracy")]
    assert column.ties == frozenset()
    assert column.seed_tests == ("t",)
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
        if (line["set"], line["figure"]) == ("test", "accuracy")
    ]
    assert pair["seed_test"] == "t"
    differences = [(b - a) / 160 for a, b in zip(right["STL"], right["RTM"], strict=True)]
    expected = stats.ttest_1samp(differences, 0).pvalue
    assert float(pair["p_seeds"]) == pytest.approx(expected, rel=1e-9)
    assert {line["seed_test"] for line in csv.DictReader(io.StringIO(figures_csv(comparison)))} == {
        "t"
    }
    enough = markdown(compare_sweeps([made(by_method, "enough", grid=METHODS, seeds=6)]))
    assert "t-test, which assumes" not in enough
    assert "paired permutation test over seeds" in enough


def test_the_choice_is_made_on_dev_and_said(made):
    """The other learning rate would be far better on test."""

    def right(trial):
        good = trial.cell["learning_rate"] == "0.001"
        return {"dev": 30 if good else 25, "test": 20 if good else 40}

    folder = made(
        right,
        grid=METHODS | {"learning_rate": [1e-3, 1e-4]},
        select={"over": ["learning_rate"]},
        seeds=2,
    )
    comparison = compare_sweeps([folder])
    (block,) = comparison.blocks
    assert [row.chosen for row in block.rows] == [{"learning_rate": "0.001"}] * 2
    assert all(row.mean(("test", "accuracy")) == 0.5 for row in block.rows)
    text = markdown(comparison)
    assert "STL: learning_rate 0.001 (chosen on dev)" in text
    assert "read for the chosen value only" in text
    content = json.loads((folder.path / "results.json").read_text())
    assert {t["cell"]["learning_rate"] for t in content["trials"] if t["evaluations"]} == {"0.001"}


def test_a_value_with_a_failed_seed_is_not_chosen(made):
    def right(trial):
        if trial.cell["learning_rate"] == "0.001" and trial.seed == 1:
            return None
        return {"dev": 40 if trial.cell["learning_rate"] == "0.001" else 20, "test": 20}

    comparison = compare_sweeps(
        [made(right, grid={"learning_rate": [1e-3, 1e-4]}, select={"over": ["learning_rate"]})]
    )
    (row,) = comparison.blocks[0].rows
    assert row.chosen == {"learning_rate": "0.0001"}


def test_missing_seeds_are_named(made):
    def right(trial):
        return None if trial.title == "RTM, seed 1" else by_method(trial)

    text = markdown(compare_sweeps([made(right, grid=METHODS, seeds=3)]))
    assert "RTM: no figures for seed 1 (unfinished)" in text


def test_degenerate_runs_are_named(made):
    folder = made(by_method, grid=METHODS, seeds=8)
    digest = next(r.digest for r in folder.load_results() if r.cell["method"] == "RTM")
    path = folder.run(digest).path / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"degenerate": "no"}))
    (line,) = [line for line in markdown(compare_sweeps([folder])).splitlines() if "degen" in line]
    assert "RTM: degenerate for 1 of 8 seeds" in line


def test_blocks_are_apart_and_sweeps_are_joined(made):
    first = made(by_method, "one", grid={"dataset": ["sst2", "qqp"]} | METHODS, seeds=2)
    comparison = compare_sweeps([first])
    assert [block.setting["dataset"] for block in comparison.blocks] == ["sst2", "qqp"]
    second = made(
        lambda trial: {"dev": 20, "test": 20},
        "two",
        base={"dataset": "sst2", "epochs": 3},
        grid=METHODS,
        seeds=2,
    )
    joined = compare_sweeps([first, second])
    assert [row.name for row in joined.blocks[0].rows] == ["STL", "RTM", "STL (two)", "RTM (two)"]
    assert len(joined.blocks[1].rows) == 2


def test_sweeps_of_one_name_are_told_apart_by_their_folders(made):
    def worse(trial):
        return {"dev": 20, "test": 12, "away": 20}

    first = made(by_method, "one", grid=METHODS, seeds=3)
    second = made(worse, "two", name="one", base={"epochs": 3}, grid=METHODS, seeds=2)
    comparison = compare_sweeps([first, second])
    (block,) = comparison.blocks
    assert [row.name for row in block.rows] == [
        "STL",
        "RTM",
        f"STL (one: {second.path})",
        f"RTM (one: {second.path})",
    ]
    assert [len(row.runs) for row in block.rows] == [3, 3, 2, 2]
    assert [row.mean(("test", "accuracy")) for row in block.rows[2:]] == [0.3, 0.3]
    assert block.rows[0].mean(("test", "accuracy")) == pytest.approx(61 / 120)
    assert comparison.names == [f"one: {first.path}", f"one: {second.path}"]
    done = CliRunner().invoke(cli, ["compare", str(first.path), f"{first.path}/../one"])
    assert done.exit_code == 2
    assert "is given twice" in done.output


def test_predictions_that_are_gone_are_missed(made):
    folder = made(by_method, grid=METHODS, seeds=2)
    for path in folder.path.glob("trials/*/predictions/test.jsonl"):
        path.unlink()
    with pytest.raises(SweepError, match="holds no predictions for 'test'"):
        compare_sweeps([folder])


def test_other_rows_are_refused(made):
    folder = made(by_method, grid=METHODS, seeds=2)
    path = next(folder.path.glob("trials/*/predictions/test.jsonl"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    with pytest.raises(SweepError, match="different rows of 'test'"):
        compare_sweeps([folder])


def test_published_figures_stand_beside_with_the_difference(made, tmp_path):
    path = tmp_path / "paper.yaml"
    content = {
        "source": "A paper",
        "row_axis": "method",
        "tables": [
            {
                "cell": {"encoder": "tiny"},
                "columns": [[{}, "test"], [{"metric": "macro_f1"}, "test"]],
                "rows": {"STL": [[50.0, 0.5], None], "RTM": [60.5, 70.0], "Other": [80.0, None]},
            }
        ],
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    comparison = compare_sweeps([made(by_method, grid=METHODS, seeds=2)], str(path))
    heads, rows = published_grid(comparison)
    found = [dict(zip(heads, row, strict=True)) for row in rows]
    assert [(row["method"], row["published"]) for row in found] == [
        ("STL", "50.00 ± 0.50"),
        ("RTM", "60.50"),
        ("RTM", "70.00"),
        ("Other", "80.00"),
    ]
    assert [row["difference"] for row in found] == ["+1.25", "+0.75", "-", "-"]
    assert "A paper" in markdown(comparison)
    assert "None of the published figures" not in markdown(comparison)
    content["tables"][0]["cell"] = {"encoder": "BERT-base"}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    elsewhere = compare_sweeps([made(by_method, "elsewhere", grid=METHODS, seeds=2)], str(path))
    assert "None of the published figures" in markdown(elsewhere)
    assert [row[-1] for row in published_grid(elsewhere)[1]] == ["-"] * 4
    content["tables"][0]["rows"]["STL"] = [1.0]
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(ConfigError, match="row 'STL' has 1 figures for 2 columns"):
        read_published(str(path))


def test_the_published_figures_of_the_package():
    """Figures read off the papers, at the corners of their tables."""
    expected = {
        ("l3masking_table3", "BERT-base", "ACL-ARC", "STL", "test", "accuracy"): (71.34, 0.35),
        ("l3masking_table3", "RoBERTa-base", "IMDb", "L3Masking", "test", "macro_f1"): (
            91.13,
            0.09,
        ),
        ("l3masking_table3", "SciBERT", "ACL-ARC", "L3Masking", "test", "macro_f1"): (74.1, 2.4),
        ("l3masking_table3", "ClinicalBERT", "Ohsumed", "STL", "test", "accuracy"): (71.02, 0.42),
        ("mask_tuning_table1", "BERT-base", "MNLI", "PoE", "hans", "accuracy"): (66.31, None),
        ("mask_tuning_table1", "BART-base", "QQP", "Mask-tuning", "paws", "accuracy"): (45.71, 0.5),
        ("mask_tuning_table3", "BERT-base", "MNLI", "Sequential", "test_mismatched", "accuracy"): (
            84.0,
            None,
        ),
        ("mask_tuning_table3", "RoBERTa-base", "SST-2", "Augmented", "imdb_cad", "accuracy"): (
            89.76,
            None,
        ),
    }
    found = {}
    counts = {}
    for name in published_names():
        figures, _ = read_published(name)
        counts[name] = len(figures)
        for f in figures:
            key = (name, f.cell["encoder"], f.cell["dataset"], f.cell["method"], f.set, f.metric)
            assert key not in found
            found[key] = (f.mean, f.sd)
    assert {key: found[key] for key in expected} == expected
    assert counts == {
        "l3masking_table3": 48,
        "mask_tuning_table1": 29 + 36 + 18 + 4,
        "mask_tuning_table3": 3 * 5 * 9,
    }


def test_the_command_writes_tables_and_pictures(made, tmp_path):
    folder = made(by_method, grid=METHODS, seeds=3)
    out = tmp_path / "tables"
    done = CliRunner().invoke(cli, ["compare", str(folder.path), "--output", str(out)])
    assert done.exit_code == 0, done.output
    names = {path.name for path in out.iterdir()}
    assert {"table.md", "table.tex", "figures.csv", "pairs.csv"} < names
    assert {name.split("-")[0] for name in names if name.endswith(".png")} == {
        "scores",
        "epochs",
        "weights",
    }
    assert "detectable" in done.output


def test_pictures_show_the_figures(made, tmp_path, monkeypatch):
    """The bars' heights and the epochs' marks are the means of the runs."""
    from auxlearn.comparison import plots as pictures

    drawn = {}
    monkeypatch.setattr(
        pictures, "_write", lambda path, figure: drawn.setdefault(path.name.split("-")[0], figure)
    )
    plot_comparison(compare_sweeps([made(by_method, grid=METHODS, seeds=2)]), tmp_path)
    heights = [bar.get_height() for bar in drawn["scores"].axes[0].patches]
    assert heights == pytest.approx([51.25, 50.0, 70.0, 61.25, 50.0, 80.0])
    marks = [line.get_xydata()[0] for line in drawn["epochs"].axes[0].lines if line.get_label()]
    assert any(np.allclose(mark, (4.5, 61.25)) for mark in marks)
    assert drawn["epochs"].axes[0].get_xlim()[0] == 0
    assert all(float(tick).is_integer() for tick in drawn["epochs"].axes[0].get_xticks())
    # The two panels have the same methods in the same colours: one legend.
    assert [axes.get_legend() is not None for axes in drawn["scores"].axes] == [True, False]


def test_a_folder_without_results_says_what_to_do(tmp_path, made):
    with pytest.raises(SweepError, match=r"is not the folder of a sweep"):
        compare_sweeps([SweepFolder(tmp_path)])
    folder = made(by_method, grid=METHODS, seeds=2)
    (folder.path / "results.json").unlink()
    with pytest.raises(SweepError, match="run `auxlearn sweep` to its end first"):
        compare_sweeps([folder])


def test_latex_is_escaped():
    assert escape_latex("a_b & 5% {x} ± ≈ \\") == (
        r"a\_b \& 5\% \{x\} $\pm$ $\approx$ \textbackslash{}"
    )
