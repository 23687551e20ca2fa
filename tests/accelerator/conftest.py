"""A process of its own for the pretend accelerator.

Installing a backend changes a process for good, and it must happen before torch's first backward
pass. So the tests here send functions with plain arguments to one further process, which starts on
first use and ends with the session: a fork of that of the tests, which has imported what is needed,
with an autograd engine of its own. What a function raises is raised in the test, with the traceback
of the other process as its cause.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from tests import helpers
from tests.accelerator import runs

#: How the process starts: libraries of macOS do not survive a fork.
CONTEXT = get_context("fork" if sys.platform == "linux" else "spawn")


@pytest.fixture(scope="session")
def on_accelerator() -> Iterator[Callable[..., Any]]:
    """Call a function of a module in the process that has the pretend accelerator."""
    with ProcessPoolExecutor(1, CONTEXT, initializer=runs.begin) as pool:
        with warnings.catch_warnings():  # of threads, which later versions of Python do not expect
            warnings.filterwarnings("ignore", "This process", DeprecationWarning)
            pool.submit(int).result()

        def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            return pool.submit(runs.call, function, arguments, named).result()

        yield call


@pytest.fixture(scope="session")
def labelled(tmp_path_factory) -> Path:
    """Folder of a data set: 8 rows of train, 6 of dev, 6 of test, three classes."""
    rows = helpers.rows()
    return helpers.write_splits(
        tmp_path_factory.mktemp("labelled"), train=rows[:8], dev=rows[8:14], test=rows[14:20]
    )


@pytest.fixture
def config(labelled, encoder_folder, tmp_path) -> Callable[..., dict[str, Any]]:
    """Make a configuration of two steps on a tiny encoder; keywords change it."""

    def make(family: str = "bert", **changes: Any) -> dict[str, Any]:
        return {
            "dataset": str(labelled),
            "encoder": str(encoder_folder(family)),
            "epochs": 1,
            "batch_size": 4,
            "learning_rate": 1e-3,
            "output": str(tmp_path / "run"),
            "cache_dir": str(tmp_path / "cache"),
        } | changes

    return make
