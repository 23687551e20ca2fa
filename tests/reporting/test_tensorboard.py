"""Event files, read back by TensorBoard itself."""

from __future__ import annotations

import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from auxlearn.errors import ConfigError
from auxlearn.reporting.reporter import Reporter
from auxlearn.reporting.tensorboard import TensorBoardReporter
from tests.reporting import examples


class Listener(Reporter):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def message(self, text: str) -> None:
        self.told.append(text)

    def row(self, row: dict[str, object]) -> None:
        self.told.append(row)


def read(folder, name):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {event.step: pytest.approx(event.value) for event in events.Scalars(name)}


def test_rows_come_back_and_are_passed_on(tmp_path):
    listener, rows = Listener(), examples.rows("l3mask")
    reporter = TensorBoardReporter(listener, tmp_path)
    assert not any(tmp_path.iterdir())
    reporter.message("hello")
    with reporter.progress("training", 40):
        for row in rows:
            reporter.row(row)
    assert listener.told == ["hello", *rows]
    assert read(tmp_path, "loss/l3mask") == {10: 1.75, 20: 1.5, 30: 1.25, 40: 1.0}
    assert read(tmp_path, "dev/accuracy") == {10: 0.65, 20: 0.75, 30: 0.65, 40: 0.55}


def test_a_resumed_run_replaces_the_steps_it_makes_again(tmp_path):
    for steps, value in (((1, 2, 3), 1.0), ((2, 3, 4), 2.0)):
        reporter = TensorBoardReporter(Reporter(), tmp_path)
        with reporter.progress("training", 4):
            for step in steps:
                reporter.row({"kind": "train", "step": step, "loss/primary": value})
    assert read(tmp_path, "loss/primary") == {1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0}


def test_a_missing_tensorboard_is_named_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'auxlearn\[tensorboard\]'"):
        TensorBoardReporter(Reporter(), tmp_path)
