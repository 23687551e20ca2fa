"""Tables and plots of comparisons whose scores are known beforehand."""

import csv
import io
import shutil
import statistics

import numpy as np
import pytest
from scipy import stats

from auxlearn.comparison import plots
from auxlearn.comparison.compare import compare
from auxlearn.comparison.plots import mean_curve, plot_comparison
from auxlearn.comparison.tables import Layout
from auxlearn.core.errors import ConfigError, RunError
from auxlearn.results.tables import escape_csv, escape_latex, escape_markdown, to_csv
from tests.cli.helpers import call
from tests.comparison.conftest import METHODS, edited, right_by_method
from tests.helpers import one_line

RIGHT = {"STL": (52, 47, 44, 56, 51), "RTM": (92, 96, 89, 91, 95)}  # of 160


def by_seed(trial):
    """31 against 58 percent, with seeds that differ as in real runs."""
    return {"dev": 80, "test": RIGHT[trial.cell["method"]][trial.seed]}


@pytest.fixture
def comparison(make_sweep):
    return compare(make_sweep(by_seed, grid=METHODS, seeds=5, examples=160).path)


def test_five_seeds_are_enough_for_a_large_difference(comparison):
    text = comparison.to_markdown(decimals=2, show=["pairs"])
    assert f"| STL | 31.25 ± {statistics.stdev(RIGHT['STL']) / 1.6:.2f} |" in text
    assert f"| RTM | **57.88 ± {statistics.stdev(RIGHT['RTM']) / 1.6:.2f}** |" in text
    assert "paired t-test" in text
    assert "| RTM - STL | +26.6" in text
    (pair,) = comparison.pairs_frame().to_dict("records")
    differences = [(b - a) / 160 for a, b in zip(RIGHT["STL"], RIGHT["RTM"], strict=True)]
    assert pair["difference"] == pytest.approx(statistics.mean(differences))
    assert pair["p_seeds"] == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=1e-9)
    assert pair["p_first_beats_second"] == 1.0
    assert 0.1 < pair["low"] < pair["difference"] < pair["high"] < 0.45
    sweep = comparison.blocks[0].datasets[0].methods[0].runs[0].parent.parent
    assert "57.9 ± 1.8 ▲" in compare(sweep, against="STL").to_markdown()
    for decimals in ("2", 1.5, 7, -1):
        with pytest.raises(ConfigError, match="is no number from 0 to 6"):
            comparison.to_markdown(decimals=decimals)
    with pytest.raises(ConfigError, match="there is no method ''"):
        compare(sweep, against="")


def test_no_interval_leaves_the_range_of_the_metric(make_sweep):
    """39, 40 and 40 of 40 are right by one method, 1, 0 and 0 by the other."""

    def right(trial):
        wrong = trial.seed == 0
        return {"dev": 20, "test": 40 - wrong if trial.cell["method"] == "RTM" else int(wrong)}

    axes = {"dataset": ["acl_arc", "ohsumed"], **METHODS}
    found = compare(make_sweep(right, grid=axes, seeds=3).path)
    frame = found.to_frame()
    assert (frame["low"].min(), frame["high"].max()) == (0, 1)
    assert len(frame) == 6  # the average too
    assert " to 100.0 |" in found.to_markdown()


def test_rows_and_frames_hold_the_scores_of_the_runs(comparison):
    lines = list(csv.DictReader(io.StringIO(to_csv(comparison.to_frame()))))
    (rtm,) = [line for line in lines if line["method"] == "RTM"]
    assert (rtm["dataset"], rtm["set"], rtm["metric"]) == ("pydocs", "test", "accuracy")
    values = [right / 160 for right in RIGHT["RTM"]]
    assert float(rtm["mean"]) == pytest.approx(statistics.mean(values))
    assert float(rtm["sd"]) == pytest.approx(statistics.stdev(values))
    assert (rtm["best"], rtm["may_equal_best"]) == ("True", "False")
    assert float(rtm["epochs_to_best"]) == 6.0
    assert float(rtm["minutes"]) == 3.0
    frame = comparison.to_frame()
    assert list(frame["method"]) == ["STL", "RTM"]
    assert frame["mean"][1] == pytest.approx(statistics.mean(values))
    assert len(comparison.pairs_frame()) == 1
    assert len(repr(comparison)) < 200


def test_every_format_marks_the_best_and_ties(make_sweep):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=8)
    found = compare(folder.path)
    text = found.to_markdown(show=["seeds", "epochs", "minutes"])
    assert "| RTM | 8 | **61.3 ± 1.3** | 50.0 ± 0.0 ≈ |" in text
    assert "7.5 | 4.5 |" in text
    tex = found.to_latex()
    assert r"\textbf{61.3 $\pm$ 1.3}" in tex
    assert r"50.0 $\pm$ 0.0 $\approx$" in tex
    assert tex.count(r"\toprule") == tex.count(r"\bottomrule") == 1
    assert "<b>61.3 ± 1.3</b>" in found._repr_html_()
    assert "pydocs, tiny" in " ".join(map(str, found.to_terminal()))


def test_zero_has_no_sign():
    found = [Layout(1).score(value, "accuracy") for value in (-0.0, -1e-9, -0.001)]
    assert found == ["0.0", "0.0", "-0.1"]
    assert Layout(2).score(-1e-9, "accuracy", "+") == "+0.00"
    assert Layout(1).score(-1e-9, "mae", "+") == "+0.000"


def test_a_single_method_is_compared_with_none(make_sweep, tmp_path, monkeypatch):
    monkeypatch.setattr("auxlearn.comparison.plots.plot_comparison", lambda *_: [])
    found = compare(make_sweep(lambda trial: {"dev": 30, "test": 20}, seeds=2).path)
    text = found.to_markdown()
    assert "| 50.0 ± 0.0 |" in text
    assert "**" not in text
    assert "Significant" not in text
    assert "pairs.csv" not in {path.name for path in found.save(tmp_path / "tables")}


def test_nothing_is_written_of_runs_that_others_have_taken_the_place_of(comparison, tmp_path):
    runs = comparison.blocks[0].datasets[0].methods[0].runs
    shutil.copytree(runs[1], runs[0], dirs_exist_ok=True)
    with pytest.raises(RunError, match="holds another run than these results by now"):
        comparison.save(tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


def test_degenerate_runs_are_named(make_sweep):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=2)
    digest = next(r.digest for r in folder.load_plan() if r.cell["method"] == "RTM")
    with edited(folder.run(digest).path / "results.json") as content:
        content["degenerate"] = "no"
    assert "RTM: degenerate for 1 of 2 seeds" in compare(folder.path).to_markdown()
    done = call("compare", folder.path, "--format", "csv")
    assert done.stdout == compare(folder.path).to_text("csv")
    assert "RTM: degenerate for 1 of 2 seeds" in done.stderr


def test_nothing_is_written_of_runs_whose_curves_are_damaged(make_sweep, tmp_path):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=2)
    run = next(iter(folder.load_plan())).digest
    (folder.run(run).path / "metrics.jsonl").write_text("no JSON\n{}\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl"):
        compare(folder.path).save(tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


def test_names_of_users_are_no_markup_and_no_formulas(make_sweep):
    name = "=a_b & <i>5%</i> | $x$ *c* \\d\n\x1b[31m"
    folder = make_sweep(lambda t: {"dev": 30, "test": 20}, grid=METHODS, seeds=1)
    found = compare(folder.path, names={"STL": name})
    tex = found.to_latex()
    assert r"=a\_b \& \textless{}i\textgreater{}5\%\textless{}/i\textgreater{} \textbar{}" in tex
    text = found.to_markdown()
    assert "=a_b &amp; &lt;i&gt;5%&lt;/i&gt; &#124; \\$x\\$ \\*c\\*" in text
    assert "<i>" not in found._repr_html_()
    grid = {"dataset": ["sst2", "qqp"]} | METHODS
    folder = make_sweep(lambda t: {"dev": 30, "<i>x": 20}, "sets", grid=grid, seeds=1)
    assert "### Across 2 data sets: &lt;i&gt;x accuracy" in compare(folder.path).to_markdown()
    assert "'=a_b" in to_csv(found.to_frame())
    for content in (tex, text, found._repr_html_(), to_csv(found.to_frame())):
        assert "\x1b" not in content
    assert escape_latex("~^") == r"\textasciitilde{}\textasciicircum{}"
    # At the beginning of a row these would be arguments of the end of the row before.
    assert escape_latex("[a] *") == "{[}a] {*}"
    assert escape_markdown("a_b [c]") == r"a_b \[c\]"
    assert escape_csv("-x") == "'-x"
    assert escape_csv("=(1)") == "'=(1)"
    assert [escape_csv(token) for token in ("-", "=", "--", "@-@")] == ["-", "=", "--", "@-@"]


def test_the_command_prints_and_writes(make_sweep, tmp_path, monkeypatch):
    monkeypatch.setattr("auxlearn.comparison.plots.plot_comparison", lambda *_: [])
    folder = make_sweep(right_by_method, grid=METHODS, seeds=3)
    out = tmp_path / "tables"
    done = call("compare", folder.path, "--power", "--output", out)
    assert done.exit_code == 0, done.output
    assert "detectable" in done.output
    assert "detectable" in (out / "scores.csv").read_text()
    assert {path.name for path in out.iterdir()} == {
        "table.md", "table.tex", "scores.csv", "pairs.csv",
    }  # fmt: skip
    before: list[str] = []  # what is printed, whose reader may go before its end
    with monkeypatch.context() as patch:
        patch.setattr(
            "auxlearn.results.console.print_results",
            lambda *_: before.extend(path.name for path in (tmp_path / "first").iterdir()),
        )
        call("compare", folder.path, "--output", tmp_path / "first")
    assert len(before) == 4
    monkeypatch.setattr("auxlearn.comparison.compare.minimum_detectable_difference", None)
    for kind in ("markdown", "latex", "csv"):  # nothing is simulated unless asked for
        done = call("compare", folder.path, "--format", kind)
        assert done.output == compare(folder.path).to_text(kind)
    done = call("compare", folder.path, "--format", "csv", "--show", "pairs")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "show: csv has a row for each method, and none for pairs" in done.stderr
    for form in ("html", ["csv"]):
        with one_line(ConfigError, f"form: write markdown, latex or csv, got {form!r}"):
            compare(folder.path).to_text(form)


def test_curves_are_means_over_the_runs_that_are_still_going():
    runs = [np.array([[1, 2, 3], [0.2, 0.6, 0.4]]), np.array([[1, 2], [0.4, 0.8]])]
    runs.append(np.array([[1.0], [0.6]]))
    points, means, spread = mean_curve(runs)
    assert points.tolist() == [1, 2]  # one of three runs reaches the third point
    assert means == pytest.approx([0.4, 0.7])
    assert spread == pytest.approx([0.2, np.std([0.6, 0.8], ddof=1)])


def test_the_plots_show_the_scores_and_epochs(make_sweep, tmp_path, monkeypatch):
    drawn = {}

    def keep(figure, path, dpi):
        drawn.setdefault(path.name.split("-")[0], figure)
        figure.draw_without_rendering()
        return path

    monkeypatch.setattr(plots, "save_figure", keep)
    grid = {"dataset": ["sst2", "qqp"]} | METHODS
    grid["method"] = METHODS["method"] | {"two": {"aux": "random_mlm", "epochs": 7}}

    def right(trial):
        return {"dev": 30, "test": 20 + 2 * list(grid["method"]).index(trial.cell["method"])}

    plot_comparison(compare(make_sweep(right, grid=grid, seeds=2).path).blocks, tmp_path)
    assert set(drawn) == {"scores", "ranks", "curves", "weights", "epochs"}
    panels = [axes for axes in drawn["scores"].axes if axes.get_visible()]
    assert [axes.get_title().split("\n")[0] for axes in panels] == ["sst2", "qqp", "average"]
    marks = [box.lines[0].get_xdata()[0] for box in panels[0].containers]
    assert marks == pytest.approx([50.0, 55.0, 60.0])
    said = {text.get_text() for text in drawn["ranks"].axes[0].texts}
    assert {"two  1.00", "RTM  2.00", "STL  3.00"} < said
    for kind in ("curves", "epochs"):  # a panel for each data set, one legend for all
        found = [axes for axes in drawn[kind].axes if axes.get_visible()]
        assert [axes.get_title().split("\n")[0] for axes in found] == ["sst2", "qqp"]
        assert len(drawn[kind].legends) == 1
    assert drawn["epochs"].axes[0].get_xlim()[0] == 0
    assert drawn["epochs"].get_size_inches()[0] == pytest.approx(3.3)


def test_no_plot_is_written_over_another(make_sweep, tmp_path, monkeypatch):
    names = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path, dpi: names.append(path.name))
    grid = {"dataset": ["cpp", "cs", "b"]} | METHODS
    folder = make_sweep(lambda trial: {"dev": 30, "test": 20}, grid=grid, seeds=2)
    found = compare(folder.path, names={"cpp": "C++", "cs": "C#", "b": "B"})
    plot_comparison(found.blocks, tmp_path)
    weights = [name for name in names if name.startswith("weights") and name.endswith(".pdf")]
    assert len({name.lower() for name in names}) == len(names)
    assert [name[-6:-4] for name in weights] == ["cy", "-2", "cy"]  # accuracy
