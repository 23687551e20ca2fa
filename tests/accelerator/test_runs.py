"""Whole runs on the pretend accelerator."""

from __future__ import annotations

import pytest

from auxlearn.registry import TASKS, Registry
from tests.accelerator import device as pretend
from tests.accelerator import runs
from tests.test_conformance import TASK_ROWS, WEIGHTING_ROWS


def builtin(registry: Registry) -> list[str]:
    """Names of the package's own plug-ins."""
    return [n for n in registry.names() if registry.get(n).__module__.startswith("auxlearn.")]


def places(report: runs.Report) -> list[str]:
    """Where the steps of a run waited, each place as often as it did."""
    return [f"{place} {what}" for waits in report["steps"] for what, place in waits]


@pytest.mark.parametrize("weighting", ["fixed", "meta"])
@pytest.mark.parametrize("task", builtin(TASKS))
def test_every_task(task, weighting, config, on_accelerator):
    report = on_accelerator(
        runs.train,
        config(
            aux=[{task: TASK_ROWS.get(task, {})}],
            weights={weighting: WEIGHTING_ROWS[weighting]},
        ),
    )
    assert report["results"]["steps"] == len(report["steps"]) == 3
    assert report["parameters"] == [pretend.NAME]
