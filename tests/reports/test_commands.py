"""``train --report`` and ``sweep --report``, and the contrast of the colours by WCAG 2.2."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from auxlearn.core.registry import EXECUTORS
from auxlearn.executors.jobs import Outcome
from auxlearn.reports.page import FILE
from auxlearn.results.record import RunResults
from auxlearn.sweeps.plan import expand_cells, plan_trials
from tests.cli.helpers import call
from tests.reports import runs
from tests.sweeps.conftest import InlineOfSweep


@pytest.fixture(autouse=True)
def without_plots_of_runs(monkeypatch):
    monkeypatch.setattr("auxlearn.reports.page.MOST_PLOTS", 0)


def test_train_writes_the_report_of_its_run(tmp_path, monkeypatch):
    data = runs.write_data(tmp_path / "data")
    run = tmp_path / "run"

    def train(config, reporter, dataset=None, executor=None):
        return RunResults.load(runs.write_run(run, data))

    monkeypatch.setattr("auxlearn.training.train.train_resolved", train)
    arguments = ["train", "--dataset", data, "--output", run]
    assert call(*arguments).exit_code == 0
    assert not (run / FILE).exists()
    assert f"report:     {run / FILE}" in call(*arguments, "--report").stdout
    assert (run / FILE).is_file()


@pytest.mark.parametrize("finished", [True, False])
def test_sweep_writes_the_report_also_after_failures(tmp_path, monkeypatch, finished):
    data = runs.write_data(tmp_path / "data")
    folder = tmp_path / "out"
    runs.write_sweep(folder, data)

    def run_sweep(sweep, place, executor, **options):
        if finished:
            return [place.record(one, True) for one in place.load_plan()]
        for trial in plan_trials(sweep, expand_cells(sweep)):
            (place.run(trial.digest).path / "results.json").unlink()
            place.save_failure(trial, Outcome(trial.digest, "out of memory", "<b>"))
        return [place.record(one, False) for one in place.load_plan()]

    monkeypatch.setattr("auxlearn.sweeps.execute.run_sweep", run_sweep)
    EXECUTORS.get("local")
    monkeypatch.setitem(EXECUTORS._registered, "local", InlineOfSweep)
    result = call("sweep", tmp_path / "sweep.yaml", "--output", folder, "--report")
    assert result.exit_code == (0 if finished else 1), result.output
    text = (folder / FILE).read_text(encoding="utf-8")
    assert ("No trial has finished." in text) == (not finished)
    assert ("out of memory: &lt;b&gt;" in text) == (not finished)


#: Contrast of text that level AA asks for.
TEXT = 4.5


def themes() -> dict[str, dict[str, str]]:
    css = files("auxlearn.reports").joinpath("templates/page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w+)", light))
    return {"light": colours, "dark": colours | dict(re.findall(r"--(\w+): (#\w+)", dark))}


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_every_background(theme):
    colours = themes()[theme]
    grounds = ["bg", "panel", "warn", "kept", *(n for n in colours if re.fullmatch(r"[hm]\d", n))]
    assert len(grounds) == 13
    pairs = [("ink", ground) for ground in grounds]
    pairs += [(text, ground) for text in ("soft", "link") for ground in ("bg", "panel")]
    pairs += [(text, "bg") for text in ("old", "new")]
    low = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs}
    assert {pair: value for pair, value in low.items() if value < TEXT} == {}
