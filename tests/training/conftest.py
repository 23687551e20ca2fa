"""A small data set and the configuration of a short run, for the tests of whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from auxlearn import RunConfig


@pytest.fixture(scope="session")
def dataset(tmp_path_factory) -> Path:
    """Lines of the tests' own text in three classes; one test text is also in train."""
    from tests import helpers

    rows = helpers.rows("", "again", "indeed")
    return helpers.write_splits(
        tmp_path_factory.mktemp("data"),
        train=rows[:48],
        dev=rows[48:60],
        test=[rows[0], *rows[60:72]],
    )


@pytest.fixture(scope="module")
def settings(dataset, encoder_folder):
    """Return a configuration of a run that takes less than a second; ``output`` is not set."""

    def make(**changes) -> RunConfig:
        from auxlearn import RunConfig

        defaults = {
            "dataset": str(dataset),
            "encoder": str(encoder_folder("bert")),
            "aux": ["l3mask"],
            "weights": {"meta": {"horizon": "steps", "warmup_steps": 2}},
            "epochs": 2,
            "batch_size": 8,
            "eval_steps": 4,
            "patience": 0,
            "learning_rate": 1e-3,
            "device": "cpu",
        }
        return RunConfig.model_validate(defaults | changes)

    return make


@pytest.fixture
def config(settings, tmp_path):
    """Return such a configuration of a run in the folder ``run``."""

    def make(**changes) -> RunConfig:
        return settings(**{"output": str(tmp_path / "run")} | changes)

    return make
