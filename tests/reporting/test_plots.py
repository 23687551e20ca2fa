"""Plots of a run: which files are written, and which lines they show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from auxlearn.errors import UserError
from auxlearn.reporting.plots import plot_run
from auxlearn.reporting.style import COLOURS
from tests.reporting import examples


def pixels_of(path: Path, colour: str) -> int:
    """Count the pixels of exactly this colour."""
    image = imread(path)[:, :, :3]
    return int((np.abs(image - np.array(to_rgb(colour))).max(-1) < 1 / 255).sum())


AUX = ("l3mask", "random_mlm")


@pytest.fixture(scope="module")
def plots(tmp_path_factory) -> dict[str, Path]:
    """All plots of one run, by name."""
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


def test_a_run_without_auxiliary_task_has_no_weights(tmp_path):
    written = plot_run(examples.entries(), examples.results(), tmp_path)
    assert {path.name for path in written} == {"losses.png", "dev.png", "overview.png"}


@pytest.mark.parametrize("name", ["losses", "weights", "gradients"])
def test_an_objective_has_a_line_of_its_colour(plots, name):
    for colour in COLOURS[:3]:
        assert pixels_of(plots[name], colour) > 500
    assert pixels_of(plots[name], COLOURS[3]) == 0


def test_lines_are_in_the_order_of_their_losses(plots):
    # Entries list the losses last objective first; the colours follow the objectives nevertheless.
    image = imread(plots["losses"])[:, :800, :3]
    heights = []
    for colour in COLOURS[:3]:
        found = np.abs(image - np.array(to_rgb(colour))).max(-1) < 1 / 255
        heights.append(np.argwhere(found)[:, 0].mean())
    last = [one for one in examples.entries(*AUX) if one["kind"] == "train"][-1]
    losses = [last[f"loss/{name}"] for name in ("primary", *AUX)]
    assert losses == sorted(losses, reverse=True)
    assert heights == sorted(heights)  # rows of pixels count from the top


def test_a_single_entry_is_drawn(tmp_path):
    written = plot_run(examples.entries("l3mask")[:2], examples.results("l3mask"), tmp_path)
    assert "gradients.png" not in {path.name for path in written}  # none were recorded
    assert pixels_of(tmp_path / "losses.png", COLOURS[0]) > 50


def test_a_folder_that_cannot_be_written_is_named_in_the_error(tmp_path):
    (tmp_path / "plots").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"cannot write .*plots"):
        plot_run(examples.entries(), examples.results(), tmp_path / "plots")


def test_pyplot_and_its_global_state_are_not_used(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tests.reporting import examples\n"
        "from auxlearn.reporting.plots import plot_run\n"
        "plot_run(examples.entries(), examples.results(), Path(sys.argv[1]))\n"
        "assert 'matplotlib.figure' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=root)
