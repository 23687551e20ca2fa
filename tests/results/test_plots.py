"""Plots of a run: which files are written, and which lines they show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from auxlearn.core.files import read_json
from auxlearn.core.metric_names import factor_table
from auxlearn.results.figures import (
    COLOURS,
    figure_of,
    legend_below,
    legend_name,
    save_figure,
)
from auxlearn.results.plots import RunPlots, draw, draw_smoothed, plot_run
from auxlearn.results.record import RunResults
from tests.results import examples


def pixels_of(path: Path, colour: str) -> int:
    image = imread(path)[:, :, :3]
    return int((np.abs(image - np.array(to_rgb(colour))).max(-1) < 1 / 255).sum())


def plotted(entries, results, path: Path) -> Path:
    """Write the plot of a run that the path is called after, and no other one."""
    return save_figure(draw(RunPlots(entries, results).figures()[path.stem], "a run"), path)


def names(entries, results) -> set[str]:
    """Names of the plots of a run, but for the overview."""
    return set(RunPlots(entries, results).figures())


AUX = ("l3mask", "random_mlm")


@pytest.fixture(scope="module")
def plots(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("run") / "plots"
    entries = examples.entries(*AUX, gradients=True)
    written = plot_run(entries, examples.results(*AUX), folder)
    assert sorted(written) == sorted(folder.iterdir())
    return {path.stem: path for path in written}


def test_a_run_with_auxiliary_tasks_has_every_plot(plots):
    assert set(plots) == {"losses", "weights", "dev", "overview", "gradients"}
    for path in plots.values():
        height, width, _ = imread(path).shape
        assert width == 1080
        assert height >= 400


def test_factors_have_a_panel_for_each_axis_and_a_line_for_each_value(tmp_path):
    entries = examples.entries("space")
    for number, entry in enumerate(entries):
        share = 0.2 + 0.5 * number / len(entries)
        entry |= {"factor/space/data/task": 1.0, "factor/space/output/denoise": share}
        entry |= {"factor/space/output/label": 1 - share}
    table = factor_table(entries)
    last = {"denoise": share, "label": 1 - share}
    assert table == {"space": {"data": {"task": 1.0}, "output": last}}
    results = replace(examples.results("space"), factors=table)
    written = plotted(entries, results, tmp_path / "factors.png")
    # One panel, for the axis with two values: the third colour is that of no line.
    assert [pixels_of(written, shown) > 500 for shown in COLOURS[:3]] == [True, True, False]
    results.save(tmp_path)
    assert RunResults.load(tmp_path).factors == table
    examples.results("space").save(tmp_path)
    assert "factors" not in read_json(tmp_path / "results.json")


def test_weights_that_stay_are_not_drawn():
    entries = examples.entries("l3mask")
    fixed = {"weight/primary": 0.5, "weight/l3mask": 0.5}
    entries = [one | (fixed if one["kind"] == "train" else {}) for one in entries]
    assert names(entries, examples.results("l3mask")) == {"losses", "dev"}


@pytest.mark.parametrize("name", ["losses", "weights", "gradients"])
def test_an_objective_has_a_line_of_its_colour(plots, name):
    for shown in COLOURS[:3]:
        assert pixels_of(plots[name], shown) > 500
    assert pixels_of(plots[name], COLOURS[3]) == 0


def test_a_noisy_series_is_averaged():
    from matplotlib.figure import Figure

    values = [(-1.0) ** step for step in range(60)]
    axes = Figure().subplots()
    draw_smoothed(axes, (list(range(60)), values), "noise", {"color": COLOURS[0]})
    points, line = axes.get_lines()
    assert list(points.get_ydata()) == values
    assert line.get_ydata()[30] == pytest.approx(sum(values[25:36]) / 11)
    assert line.get_ydata()[0] == pytest.approx(sum(values[:6]) / 6)


def test_a_name_that_begins_with_an_underscore_is_in_the_legend():
    figure, (axes,) = figure_of(3, 2)
    for name in ("_ours", "theirs"):
        axes.plot([0, 1], label=legend_name(name))
    legend_below(figure, [axes])
    assert [text.get_text().strip() for text in figure.legends[0].texts] == ["_ours", "theirs"]
