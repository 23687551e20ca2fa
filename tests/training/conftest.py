"""A small data set and the configuration of a short run, for the tests of whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from auxlearn import RunConfig
    from auxlearn.results.record import RunResults


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


def probabilities_of(results: RunResults) -> np.ndarray:
    from tests import helpers

    rows = helpers.read_lines(results.folder / "predictions" / "test.jsonl")
    return np.array([row["probabilities"] for row in rows])


def starter(folder: Path, parts: dict[str, list[dict[str, str]]], **common: Any) -> Any:
    """Return a function that trains on these splits, into a folder beside them."""
    import auxlearn
    from tests import helpers

    data = helpers.write_splits(folder / "data", **parts)
    common = {"dataset": data, "batch_size": 6, "max_length": 16, "device": "cpu"} | common

    def run(name: str, reporter: Any = None, **settings: Any) -> RunResults:
        return auxlearn.train(reporter=reporter, output=folder / name, **common | settings)

    run.folder = folder
    return run


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
