"""Event files of TensorBoard, read back by TensorBoard itself."""

from __future__ import annotations

import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from auxlearn.errors import ConfigError
from auxlearn.reporting.reporter import Reporter
from auxlearn.reporting.tensorboard import TensorBoardReporter
from tests.reporting import examples


class Listener(Reporter):
    """Records the calls."""

    def __init__(self) -> None:
        self.received: list[object] = []

    def message(self, text: str) -> None:
        self.received.append(text)

    def log(self, entry: dict[str, object]) -> None:
        self.received.append(entry)


def read(folder, name):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {event.step: pytest.approx(event.value) for event in events.Scalars(name)}


def test_entries_are_written_and_forwarded(tmp_path):
    listener, entries = Listener(), examples.entries("l3mask")
    reporter = TensorBoardReporter(listener, tmp_path)
    assert not any(tmp_path.iterdir())
    reporter.message("hello")
    with reporter.progress("training", 40):
        for entry in entries:
            reporter.log(entry)
    assert listener.received == ["hello", *entries]
    assert read(tmp_path, "loss/l3mask") == {10: 1.75, 20: 1.5, 30: 1.25, 40: 1.0}
    assert read(tmp_path, "dev/accuracy") == {10: 0.65, 20: 0.75, 30: 0.65, 40: 0.55}


def test_a_resumed_run_replaces_the_steps_that_it_repeats(tmp_path):
    for steps, value in (((1, 2, 3), 1.0), ((2, 3, 4), 2.0)):
        reporter = TensorBoardReporter(Reporter(), tmp_path)
        with reporter.progress("training", 4):
            for step in steps:
                reporter.log({"kind": "train", "step": step, "loss/primary": value})
    assert read(tmp_path, "loss/primary") == {1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0}


def test_the_error_without_tensorboard_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'auxlearn\[tensorboard\]'"):
        TensorBoardReporter(Reporter(), tmp_path)
