"""Each benchmark runs at a size that takes a moment."""

import sys

import pytest
import torch

from auxlearn.core.errors import ConfigError
from auxlearn.core.processes import Processes
from auxlearn.scoring import pseudo_likelihood
from benchmarks import objectives, processes, report, scoring, training, weighting
from benchmarks.common import Stopwatch, arguments, classes_of, encoder_of_size, long_texts_of


@pytest.fixture
def bert(encoder_folder):
    return str(encoder_folder("bert"))


def test_training_with_more_classes_than_the_built_in_set(benchmark, bert, seven_classes):
    options = f"--encoder {bert} --rounds 1 --steps 1 --no-compile --texts 8".split()
    found = benchmark("training", *options, "--dataset", seven_classes)
    whole = found["against Trainer"]
    assert set(whole) == {"transformers Trainer", "one task", training.PASSES}
    limit = whole["transformers Trainer"]["median"] / whole[training.PASSES]["median"]
    assert found["ratios"]["of passes alone, the limit"] == limit
    assert "AdamW not fused over the default" in found["ratios"]
    assert found["seconds of compilation"] is None
    assert found["machine"]["gpu"] is None
    assert found["settings"]["dataset"] == seven_classes.rsplit("/", 1)[-1]
    assert found["command"][:3] == ["training", "--encoder", bert]


def test_objectives(benchmark, bert, seven_classes, monkeypatch):
    monkeypatch.setattr(objectives, "CONTESTS", {bert: (1, 2)})
    found = benchmark("objectives", "--rounds", "1", "--dataset", seven_classes)
    assert found["encoders"][bert]["over one"]["2"]["operations"] > 1.5


@pytest.fixture
def quick_scoring(monkeypatch):
    monkeypatch.setattr(scoring, "product_rate", lambda *given, **more: 1e9)
    monkeypatch.setitem(scoring.BUDGETS, "cpu", (256,))


@pytest.mark.usefixtures("quick_scoring")
def test_scoring_by_length_gives_each_contestant_its_share(benchmark, bert, seven_classes):
    options = f"--encoder {bert} --rounds 1 --texts 4 --length 16 --fill 0.005".split()
    found = benchmark("scoring", *options, "--dataset", seven_classes)
    results = found["contestants"]
    exact, few = results["packed weights (default)"], results["4 passes"]
    assert results["minicons"]["speed-up"] == 1.0
    assert exact["tokens"] == results["minicons"]["tokens"] < few["tokens"] <= found["tokens"]
    assert exact["operations"] == pytest.approx(0.005 * 1e9, rel=0.5)  # whole texts
    assert exact["share of the limit"] == pytest.approx(exact["operations"] / exact["median"] / 1e9)
    assert results["batches of equal length"]["largest difference"] < 1e-4


@pytest.mark.usefixtures("quick_scoring")
def test_scoring_without_minicons(benchmark, bert, seven_classes, monkeypatch):
    monkeypatch.setattr(scoring, "version", lambda package: None)
    options = f"--encoder {bert} --rounds 1 --texts 2".split()
    found = benchmark("scoring", *options, "--dataset", seven_classes)
    assert "minicons" not in found["contestants"]
    assert "speed-up" not in found["contestants"]["bf16"]


def options_of_processes(bert, seven_classes):
    given = f"--encoder {bert} --rounds 1 --steps 1 --texts 8 --dataset {seven_classes}"
    return given.split()


def test_steps_of_one_process_and_of_all_are_timed_in_turn(bert, seven_classes, monkeypatch):
    given = [*options_of_processes(bert, seven_classes), "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["processes", *given])
    options = arguments("", add=processes.add_options)
    found = processes.measure(options, Processes())
    assert set(found["rules"]) == set(processes.RULES)
    for one in found["rules"].values():
        seconds = {name: each["seconds"] for name, each in one["contestants"].items()}
        assert list(seconds) == ["one process", "one process, all threads", "all processes"]
        (alone,), _, (together,) = seconds.values()
        assert one["times faster"]["over one process"] == alone / together
    results = {"steps": 1, "contests": {"1": found}}
    (said,) = report.processes(results)
    assert said.splitlines()[0].count("times faster than") == 2
    assert "| gcs |" in said


@pytest.mark.slow
def test_the_benchmark_of_processes_starts_them(benchmark, bert, seven_classes):
    found = benchmark("processes", *options_of_processes(bert, seven_classes), "--processes", "2")
    one = found["contests"]["2"]["rules"]["fixed"]["contestants"]["all processes"]
    assert one["median"] > 0
    assert found["machine"]["gpu"] is None


def test_every_registered_rule_takes_part():
    choices = weighting.contestants()
    assert set(weighting.WEIGHTINGS.names()) <= set(choices)
    assert len(choices) > 12
    assert next(iter(choices)) == "fixed"
    meta = choices["meta"]
    assert meta is not None
    # a step in which the weights are held fixed costs less
    assert meta[1] == {"warmup_steps": 0, "horizon": "steps"}


def test_a_rule_that_cannot_be_made_is_left_out(monkeypatch, capsys):
    def refuse(self, *given):
        raise ConfigError("its library is not installed")

    monkeypatch.setattr(weighting.WEIGHTINGS.get("gcs"), "__init__", refuse)
    assert "gcs" not in weighting.contestants()
    assert "gcs is left out: its library is not" in capsys.readouterr().out


def test_weighting_compares_rules_with_fixed(benchmark, monkeypatch):
    monkeypatch.setitem(weighting.SIZES, "minilm", (1, 16, 2, 32))
    monkeypatch.setitem(weighting.BATCH["cpu"], "minilm", 2)
    monkeypatch.setattr(weighting, "LENGTH", 8)
    monkeypatch.setattr(weighting, "ROWS", 8)
    monkeypatch.setattr(weighting, "QUICK", ("fixed", weighting.SINGLE))
    found = benchmark("weighting", "--quick", "--rounds", "1")
    results = found["sizes"]["minilm"]
    timed = results["contestants"]
    assert list(timed) == ["fixed", "single task", "validation pass"]
    assert timed["fixed"]["time_ratio"] == 1.0
    assert timed["fixed"]["memory_over_fixed_in_parameter_copies"] == 0
    assert timed["single task"]["peak_bytes"] < timed["fixed"]["peak_bytes"]
    assert results["floor"] == 1 + timed["validation pass"]["time_ratio"]


def test_classes_are_those_of_the_data_set(seven_classes, bert):
    assert classes_of(seven_classes) == 7
    assert encoder_of_size(bert, 7).config.num_labels == 7


def test_long_texts_fill_the_length(seven_classes, bert):
    texts, raw = long_texts_of(encoder_of_size(bert), seven_classes, 3, 20)
    assert texts.lengths.tolist() == [20, 20, 20]
    assert len(set(raw)) == 3


def test_product_rate_counts_a_product_and_a_sum(monkeypatch):
    times = iter((0.0, 2.0))
    monkeypatch.setattr(
        scoring, "contest", lambda *given: {"product": {"seconds": [next(times) + 2.0]}}
    )
    found = scoring.product_rate(torch.float32, (3, 5, 7), Stopwatch(), 1, repeats=4)
    assert found == 4 * 2 * 3 * 5 * 7 / 2.0


def test_every_device_with_budgets_has_one_in_scoring():
    keys = {pseudo_likelihood.budget_key(device) for device in scoring.BUDGETS}
    assert keys == set(pseudo_likelihood.TOKEN_BUDGET)
