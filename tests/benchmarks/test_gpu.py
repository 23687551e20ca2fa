"""The benchmarks of a GPU: what is there is kept, every part keeps to its share of the time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.common import command
from benchmarks.gpu import PARTS, Contest, Part, is_there, main, run_parts, run_process, shares


class Runner:
    """Pretends to run contests; each takes a number of seconds of a clock of its own."""

    def __init__(self, seconds: dict[str, float], failing: tuple[str, ...] = ()) -> None:
        self.seconds = seconds
        self.failing = failing
        self.time = 0.0
        self.limits: dict[str, tuple[float, float]] = {}

    def now(self) -> float:
        return self.time

    def __call__(self, contest: Contest, path: Path, limit: float, seconds: float) -> str | None:
        self.limits[contest.name] = (limit, seconds)
        took = self.seconds.get(contest.name, 1.0)
        self.time += min(took, limit)
        if took > limit:
            return "ended"
        if contest.name in self.failing:
            return "failed"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"command": contest.command}))
        return None


def part(name: str, share: float, *names: str) -> Part:
    return Part(name, share, tuple(Contest(one, "scoring", ("--encoder", one)) for one in names))


TWO = (part("first", 0.5, "a", "b"), part("second", 0.5, "c", "d"))


def became(folder: Path, runner: Runner, seconds: float = 1000.0, overwrite: bool = False):
    return run_parts(TWO, folder, seconds, overwrite, runner, runner.now)


def test_the_parts_share_all_of_the_time():
    assert sum(one.share for one in PARTS) == pytest.approx(1.0)
    contests = [contest for one in PARTS for contest in one.contests]
    assert len(contests) >= 12
    assert len({contest.name for contest in contests}) == len(contests)
    for contest in contests:  # what the results will be known by
        assert command([f"{contest.module}.py", *contest.command[1:]]) == contest.command


@pytest.mark.parametrize(
    "contest", [c for one in PARTS for c in one.contests], ids=lambda c: c.name
)
def test_the_options_of_every_contest_are_known(contest, monkeypatch, capsys):
    """They are read, and then refused because there is no CUDA here."""
    import importlib

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "argv", [*contest.command, "--seconds", "3", "--output", "x.json"])
    with pytest.raises(SystemExit):
        importlib.import_module(f"benchmarks.{contest.module}").main()
    assert "this machine offers no CUDA" in capsys.readouterr().err


def test_what_is_there_is_not_measured_again(tmp_path):
    first = Runner({}, failing=("b",))
    assert became(tmp_path, first) == {"a": "done", "b": "failed", "c": "done", "d": "done"}
    again = Runner({})
    assert became(tmp_path, again) == dict.fromkeys("abcd", "was there") | {"b": "done"}
    assert list(again.limits) == ["b"]
    runner = Runner({})
    assert set(became(tmp_path, runner, overwrite=True).values()) == {"done"}
    assert list(runner.limits) == ["a", "b", "c", "d"]


def test_results_of_other_options_do_not_count(tmp_path):
    contest = Contest("a", "scoring", ("--texts", "3"))
    path = tmp_path / "a.json"
    assert not is_there(path, contest)
    path.write_text(json.dumps({"command": [*contest.command, "--length", "9"]}))
    assert not is_there(path, contest)
    path.write_text('{"command": [')
    assert not is_there(path, contest)
    path.write_text(json.dumps({"command": contest.command}))
    assert is_there(path, contest)


def test_a_part_that_overruns_takes_nothing_from_the_next(tmp_path):
    runner = Runner({"a": 10_000.0, "b": 10_000.0})
    found = became(tmp_path, runner)
    assert found == {"a": "ended", "b": "no time left", "c": "done", "d": "done"}
    assert runner.limits["a"][0] == pytest.approx(500.0)
    assert runner.limits["c"][0] == pytest.approx(500.0)
    assert runner.time <= 1000.0


def test_what_a_contest_leaves_over_goes_to_the_next_of_its_part(tmp_path):
    runner = Runner({"a": 50.0})
    became(tmp_path, runner)
    assert runner.limits["b"] == (450.0, 225.0)


def test_nothing_is_begun_without_time(tmp_path):
    runner = Runner({})
    assert set(became(tmp_path, runner, seconds=30.0).values()) == {"no time left"}
    assert runner.limits == {}


def test_shares():
    assert shares(left=120.0, contests=3, pieces=2) == (80.0, 10.0)
    assert shares(left=30.0, contests=1, pieces=1) == (30.0, 15.0)  # never more than is left


def test_a_contest_is_a_process_with_its_limits(tmp_path, monkeypatch):
    seen = {}

    def run(given, **settings):
        seen.update(settings, command=given)
        settings["stdout"].write("Traceback\nOops: it broke\n")
        settings["stdout"].flush()
        if fails:
            raise fails

    monkeypatch.setattr(subprocess, "run", run)
    contest = Contest("a", "scoring", ("--texts", "3"))
    fails = None
    assert run_process(contest, tmp_path / "a.json", 90.0, 12.0) is None
    assert seen["timeout"] == 90.0
    assert seen["env"]["HF_HUB_OFFLINE"] == "1"
    wanted = "-m benchmarks.scoring --texts 3 --device cuda --seconds 12 --output"
    assert " ".join(seen["command"][1:]) == f"{wanted} {tmp_path / 'a.json'}"
    assert not (tmp_path / "a.log").exists()
    fails = subprocess.CalledProcessError(1, "x")
    assert "failed: Oops: it broke" in (run_process(contest, tmp_path / "a.json", 9.0, 1.0) or "")
    assert "Traceback" in (tmp_path / "a.log").read_text()
    fails = subprocess.TimeoutExpired("x", 9.0)
    assert "ended after 9 s" in (run_process(contest, tmp_path / "a.json", 9.0, 1.0) or "")


def test_the_program_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    given = {}

    def parts(chosen, folder, seconds, overwrite):
        given.update(names=[one.name for one in chosen], folder=folder, seconds=seconds)
        return {"weighting-base-fp32": "done", "weighting-base-bf16": "no time left"}

    monkeypatch.setattr(gpu, "run_parts", parts)
    assert main(["--only", "weighting", "--minutes", "2", "--output", str(tmp_path)]) == 1
    assert given == {"names": ["weighting"], "folder": tmp_path, "seconds": 120.0}
    said = capsys.readouterr().out
    assert "missing: weighting-base-bf16: no time left" in said
    assert "1 of 2 contests have results" in said


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "offers no CUDA" in capsys.readouterr().err
