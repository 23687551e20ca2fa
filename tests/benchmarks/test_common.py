"""How benchmarks measure: the device, turns, warm-up, limits of time and memory."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import benchmarks
from benchmarks import common
from benchmarks.common import Stopwatch, check_device, command, contest, gpu, peak_bytes

#: Modules that read the options of contests; `gpu` is tested by itself.
MODULES = [
    path.stem
    for path in sorted(Path(benchmarks.__file__).parent.glob("*.py"))
    if re.search(r"\b(arguments|check_device)\(", path.read_text("utf-8"))
    and path.stem not in ("common", "gpu")
]
assert len(MODULES) >= 5


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

    def synchronize(self) -> None:
        self.events.append("wait")

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.allocated


@pytest.fixture
def device(monkeypatch) -> Device:
    pretended = Device()
    pretend = partial(monkeypatch.setattr, torch.cuda)
    pretend("synchronize", pretended.synchronize)
    pretend("reset_peak_memory_stats", pretended.reset_peak_memory_stats)
    pretend("memory_allocated", lambda: pretended.allocated)
    pretend("max_memory_allocated", lambda: pretended.peak)
    return pretended


@pytest.mark.parametrize("name", MODULES)
def test_every_benchmark_refuses_a_device_that_is_not_there(name, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--device", "cuda"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2
    assert "--device cuda: this machine offers no CUDA" in capsys.readouterr().err


def test_a_gpu_is_not_measured_by_the_clock_of_the_process(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(SystemExit):
        check_device(argparse.ArgumentParser(), argparse.Namespace(device="cuda", clock="cpu"))
    assert "--clock wall" in capsys.readouterr().err


def test_cuda_is_timed_from_idle_to_idle(device):
    contest({"a": device.work("a"), "b": device.work("b")}, 1, Stopwatch("wall", "cuda"), False)
    assert device.events == ["wait", "a", "wait", "wait", "b", "wait"]


def test_the_cpu_is_not_waited_for(device):
    contest({"a": device.work("a")}, 2, Stopwatch(), False)
    assert device.events == ["a", "a"]


def test_contestants_take_turns_with_every_call_after_a_warm_up():
    events: list[str] = []
    found = contest(
        {name: lambda name=name: events.append(name) for name in "ab"}, 2, Stopwatch(), calls=3
    )
    assert "".join(events) == "ababab" * 3
    assert [len(found[name]["seconds"]) for name in "ab"] == [2, 2]


def test_the_warm_up_counts_the_memory_of_each_contestant(device):
    works = {"big": device.work("big", 70), "small": device.work("small", 30)}
    found = contest(works, 1, Stopwatch("wall", "cuda"))
    peaks = {name: result["peak bytes"] for name, result in found.items()}
    assert peaks == {"big": 70, "small": 30}


def test_no_round_begins_after_the_limit_and_one_always_counts(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(Stopwatch, "now", lambda self: next(clock))  # every call takes a second

    def rounds(seconds):
        found = contest({"a": int, "b": int}, 9, Stopwatch(), seconds=seconds)
        return len(found["a"]["seconds"])

    assert [rounds(limit) for limit in (0.5, 2, 3, 5, None)] == [1, 1, 2, 3, 9]


def test_who_runs_out_of_memory_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def too_big() -> None:
        raise torch.OutOfMemoryError

    found = contest({"a": int, "huge": too_big, "b": int}, 2, Stopwatch())
    assert list(found) == ["a", "b"]
    assert len(found["b"]["seconds"]) == 2
    assert "huge: out of memory" in capsys.readouterr().out


def test_peak_on_the_cpu_is_what_is_held_at_once():
    def run() -> None:
        first = torch.empty(1000, dtype=torch.uint8)
        del first
        second, third = (torch.empty(2000, dtype=torch.uint8) for _ in range(2))
        del second, third

    assert peak_bytes(run, "cpu") == 4000


def test_the_gpu_is_described_only_where_it_is_measured(monkeypatch):
    card = SimpleNamespace(name="Card", total_memory=2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: card)
    assert gpu(argparse.Namespace(device="cpu")) is None
    found = gpu(argparse.Namespace(device="cuda"))
    assert found is not None
    assert found["name"] == "Card"
    assert found["capability"] == [9, 0]
    assert {"cuda", "products in float32"} <= set(found)


def test_results_are_known_by_what_was_measured():
    argv = ["/x/scoring.py", "--texts", "3", "--seconds", "9", "--output", "o.json", "--device"]
    assert command([*argv, "cuda"]) == ["scoring", "--texts", "3", "--device", "cuda"]


def test_a_package_that_is_not_installed_has_no_version():
    assert common.version("auxlearn")
    assert common.version("no-such-package-here") is None
