"""How benchmarks measure: the device, turns, warm-up, memory."""

from __future__ import annotations

import argparse
from functools import partial

import pytest
import torch

from benchmarks.common import Stopwatch, check_device, contest


class Device:
    """A CUDA device that needs no GPU: work is done when it is waited for."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.allocated = 100
        self.peak = 100

    def work(self, name: str, memory: int = 0):
        def run() -> None:
            self.events.append(name)
            self.peak = max(self.peak, self.allocated + memory)

        return run

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.allocated


@pytest.fixture
def device(monkeypatch) -> Device:
    pretended = Device()
    pretend = partial(monkeypatch.setattr, torch.cuda)
    pretend("synchronize", lambda: pretended.events.append("wait"))
    pretend("reset_peak_memory_stats", pretended.reset_peak_memory_stats)
    pretend("memory_allocated", lambda: pretended.allocated)
    pretend("max_memory_allocated", lambda: pretended.peak)
    return pretended


@pytest.mark.parametrize(
    ("available", "clock", "names"), [(False, "wall", "no CUDA"), (True, "cpu", "--clock wall")]
)
def test_a_device_that_cannot_be_measured_is_refused(available, clock, names, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SystemExit):
        check_device(argparse.ArgumentParser(), argparse.Namespace(device="cuda", clock=clock))
    assert names in capsys.readouterr().err


def test_cuda_is_timed_from_idle_to_idle(device):
    contest({"a": device.work("a"), "b": device.work("b")}, 1, Stopwatch("wall", "cuda"), False)
    assert device.events == ["wait", "a", "wait", "wait", "b", "wait"]


def test_contestants_take_turns_with_every_call_after_a_warm_up(device):
    works = {name: device.work(name) for name in "ab"}
    results = contest(works, 2, Stopwatch(), calls=3)
    assert "".join(device.events) == "ababab" * 3
    assert [len(results[name]["seconds"]) for name in "ab"] == [2, 2]
