"""The shipped configurations of Mask-tuning: the paper's settings, and what sets them apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from auxlearn import RunConfig, load_config

CONFIGS = Path(__file__).parent.parent / "configs"


def settings(name):
    return load_config(CONFIGS / f"mask_tuning_{name}.yaml").resolved()


@pytest.mark.parametrize(
    ("name", "dataset", "alpha", "batch_size"),
    [("sst2", "sst2", 0.6, 16), ("mnli", "mnli", 0.7, 32), ("qqp", "qqp", 0.8, 32)],
)
def test_settings_of_the_paper(name, dataset, alpha, batch_size):
    config = settings(name)
    assert config.dataset == dataset
    assert config.aux[0].options["probability"] == 0.05
    assert config.weights.options["alpha"] == alpha
    assert (config.epochs, config.batch_size) == (3, batch_size)
    assert 2e-5 <= config.learning_rate <= 5e-5


@pytest.mark.parametrize(
    ("name", "different"),
    [
        ("learned", {"weights"}),
        ("finetuning", {"aux", "weights"}),
        ("augmented", {"aux", "weights", "perturbed_text"}),
        ("no_integrated_loss", {"weights"}),
        ("sequential", {"aux", "weights", "perturbed_text", "encoder"}),
    ],
)
def test_a_variant_differs_in_nothing_else(name, different):
    whole = settings("sst2").model_dump()
    variant = settings(f"sst2_{name}").model_dump()
    assert {key for key in whole if whole[key] != variant[key]} == different


def test_every_cell_of_the_grid_is_a_configuration():
    grid = yaml.safe_load((CONFIGS / "sweeps" / "mask_tuning_grid.yaml").read_text())
    cells = [
        RunConfig.model_validate({**grid["base"], "learning_rate": rate, "weights": weights})
        for rate in grid["grid"]["learning_rate"]
        for weights in grid["grid"]["weights"]
    ]
    assert len({cell.resolved().digest for cell in cells}) == 36
    assert sorted({cell.learning_rate for cell in cells}) == [2e-5, 3e-5, 4e-5, 5e-5]
    assert len(grid["seeds"]) == 5
    assert grid["select"]["metric"] == cells[0].metric
