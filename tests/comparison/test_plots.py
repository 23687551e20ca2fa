"""Plots of a comparison."""

from __future__ import annotations

import numpy as np
import pytest

from auxlearn.comparison import plots
from auxlearn.comparison.compare import compare
from auxlearn.comparison.plots import best_so_far, mean_curve, plot_comparison
from tests.comparison.conftest import METHODS


def test_curves_are_means_over_the_runs_that_are_still_going():
    runs = [np.array([[1, 2, 3], [0.2, 0.6, 0.4]]), np.array([[1, 2], [0.4, 0.8]])]
    runs.append(np.array([[1.0], [0.6]]))
    points, means, spread = mean_curve(runs)
    assert points.tolist() == [1, 2]  # one of three runs reaches the third point
    assert means == pytest.approx([0.4, 0.7])
    assert spread == pytest.approx([0.2, np.std([0.6, 0.8], ddof=1)])


def test_the_best_so_far_is_kept_after_a_run_has_ended():
    found = best_so_far([np.array([[1.0, 3.0], [0.5, 0.4]]), np.array([[2.0, 4.0], [0.1, 0.9]])], 1)
    assert [run.tolist() for run in found] == [
        [[2, 3, 4], [0.5, 0.5, 0.5]],
        [[2, 3, 4], [0.1, 0.1, 0.9]],
    ]


def test_the_plots_show_the_scores_and_epochs(make_sweep, tmp_path, monkeypatch):
    drawn = {}

    def keep(figure, path):
        drawn.setdefault(path.name.split("-")[0], figure)
        figure.draw_without_rendering()
        return [path]

    monkeypatch.setattr(plots, "save_print", keep)
    grid = {"dataset": ["sst2", "qqp"]} | METHODS
    grid["method"] = METHODS["method"] | {"two": {"aux": "random_mlm", "epochs": 7}}

    def right(trial):
        return {"dev": 30, "test": 20 + 2 * list(grid["method"]).index(trial.cell["method"])}

    plot_comparison(compare(make_sweep(right, grid=grid, seeds=2).path), tmp_path)
    assert set(drawn) == {"scores", "ranks", "curves", "time", "weights", "epochs"}
    panels = [axes for axes in drawn["scores"].axes if axes.get_visible()]
    assert [axes.get_title().split("\n")[0] for axes in panels] == ["sst2", "qqp", "average"]
    marks = [box.lines[0].get_xdata()[0] for box in panels[0].containers]
    assert marks == pytest.approx([50.0, 55.0, 60.0])
    said = {text.get_text() for text in drawn["ranks"].axes[0].texts}
    assert {"two  1.00", "RTM  2.00", "STL  3.00"} < said
    for kind in ("curves", "time", "epochs"):  # a panel for each data set, one legend for all
        found = [axes for axes in drawn[kind].axes if axes.get_visible()]
        assert [axes.get_title().split("\n")[0] for axes in found] == ["sst2", "qqp"]
        assert len(drawn[kind].legends) == 1
    assert drawn["epochs"].axes[0].get_xlim()[0] == 0
    assert drawn["epochs"].get_size_inches()[0] == pytest.approx(3.3)


def test_no_plot_is_written_over_another(make_sweep, tmp_path, monkeypatch):
    names = []
    monkeypatch.setattr(plots, "save_print", lambda figure, path: names.append(path.name) or [path])
    grid = {"dataset": ["cpp", "cs", "b"]} | METHODS
    folder = make_sweep(lambda trial: {"dev": 30, "test": 20}, grid=grid, seeds=2)
    found = compare(folder.path, names={"cpp": "C++", "cs": "C#", "b": "B"})
    written = plot_comparison(found, tmp_path)
    assert [path.name for path in written] == names
    weights = [name for name in names if name.startswith("weights")]
    assert len({name.lower() for name in names}) == len(names)
    assert [name[-2:] for name in weights] == ["cy", "-2", "cy"]  # accuracy
