"""Plots of a comparison."""

from __future__ import annotations

import numpy as np
import pytest

from auxlearn.comparison import plots
from auxlearn.comparison.compare import compare_sweeps
from auxlearn.comparison.plots import plot_comparison
from tests.comparison.conftest import METHODS, right_by_method


def test_the_plots_show_the_mean_scores_and_epochs(make_sweep, tmp_path, monkeypatch):
    """The bars' heights and the epochs' marks are the means of the runs."""
    drawn = {}
    monkeypatch.setattr(
        plots,
        "save_figure",
        lambda figure, path: drawn.setdefault(path.name.split("-")[0], figure),
    )
    plot_comparison(compare_sweeps([make_sweep(right_by_method, grid=METHODS, seeds=2)]), tmp_path)
    heights = [bar.get_height() for bar in drawn["scores"].axes[0].patches]
    assert heights == pytest.approx([51.25, 50.0, 70.0, 61.25, 50.0, 80.0])
    marks = [line.get_xydata()[0] for line in drawn["epochs"].axes[0].lines if line.get_label()]
    assert any(np.allclose(mark, (4.5, 61.25)) for mark in marks)
    assert drawn["epochs"].axes[0].get_xlim()[0] == 0
    assert all(float(tick).is_integer() for tick in drawn["epochs"].axes[0].get_xticks())
    # The two panels have the same methods in the same colours: one legend.
    assert [axes.get_legend() is not None for axes in drawn["scores"].axes] == [True, False]
