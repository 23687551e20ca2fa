"""The benchmark of whole runs: its draws of data, and what rules choose among recorded runs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from auxlearn.core.config import RunConfig
from auxlearn.data.load import load_dataset
from benchmarks.horizon import bed, record, scores
from benchmarks.horizon.bed import (
    FALLING,
    FOR_KIND,
    LEARNED,
    SETTINGS,
    SINGLE,
    Setting,
    Variant,
    settings_of,
)
from benchmarks.horizon.merging import merged_run
from benchmarks.horizon.report import page
from benchmarks.horizon.scores import Summary, by_draw, gain, is_positive, restarts, taken, tried
from tests.weighting.fakes import RecordingStep

SMALL = Setting("pydocs 60", None, 60, ("random_mlm",), "corpus")


@pytest.fixture(scope="module")
def draws(tmp_path_factory):
    """A folder for draws, whose built-in data are read once."""
    return tmp_path_factory.mktemp("draws")


def test_a_draw_divides_the_union_of_train_and_dev(draws):
    bed.write_draw(SMALL, 0, None, draws / "0")
    bed.write_draw(SMALL, 1, None, draws / "1")
    whole = load_dataset("pydocs", cache_dir=draws / "cache")
    pool = {*whole.split("train").texts, *whole.split("dev").texts}
    drawn = []
    for draw in ("0", "1"):
        found = load_dataset(str(draws / draw))
        train, dev = found.split("train").texts, found.split("dev").texts
        lines = (draws / draw / "unlabelled" / "corpus.jsonl").read_text().splitlines()
        rest = [json.loads(line)["text"] for line in lines]
        assert {*train, *dev, *rest} == pool
        assert len(train) + len(dev) + len(rest) == 1300
        assert abs(len(train) - 60) <= 3
        assert abs(len(dev) - 300) <= 3
        drawn.append(train)
        assert found.split("test").texts == whole.split("test").texts
    assert drawn[0] != drawn[1]


def test_related_sets_are_the_other_examples_with_their_labels(draws):
    place = draws / "related"
    bed.write_draw(Setting("related", None, 60, ("supervised",), "related"), 0, None, place)
    related, drawn = (load_dataset(str(path)) for path in (place / "related", place))
    assert not {*related.split("train").texts} & {*drawn.split("train").texts}
    assert related.split("train").labels is not None


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.name)
def test_settings_are_settings_of_runs(setting):
    for variant in (SINGLE[2], Variant(0.3), Variant(0.1, "scaled"), *FALLING, *LEARNED):
        settings = settings_of(setting, 4, variant, Path("data"), {"epochs": 2})
        config = RunConfig(**settings)
        assert config.seed == 4 + 1000 * variant.restart
        assert len(config.aux) == (len(setting.aux) if variant.share else 0)


def test_a_falling_share_is_constant_and_then_falls():
    fake = RecordingStep()
    fake.total_steps = 100
    seen = []
    rule = record.Falling(record.Falling.Options(alpha=0.4), ("primary", "first", "second"))
    rule.mixture.step = lambda step, weights: seen.append(weights)
    for fake.number in (0, 50, 65, 80, 99):
        rule.step(fake)
    shares = torch.stack(seen)[:, 1:].sum(1)
    torch.testing.assert_close(shares, torch.tensor([0.4, 0.4, 0.2, 0, 0], dtype=torch.float64))
    assert all(float(one.sum()) == pytest.approx(1) for one in seen)


@pytest.fixture(scope="module")
def small(draws):
    """Settings of a run of 16 steps, and what was recorded of it."""
    folder = draws / "small"
    for name, count in (("train", 24), ("dev", 12), ("test", 12)):
        split = load_dataset("pydocs", cache_dir=draws / "cache").split(name)
        bed.write_split(folder / f"{name}.jsonl", split.select(list(range(count))))
    base = {"encoder": "tiny", "epochs": 4, "batch_size": 6, "max_length": 16, "device": "cpu"}
    settings = settings_of(SMALL, 0, SINGLE[0], folder, {**base, "cache_dir": str(draws)})
    return settings, record.record(settings, {})


def test_the_best_checkpoint_alone_predicts_the_same(small):
    settings, whole = small
    best = record.record(settings, {}, best=True)
    place = int(np.argmax([(one.argmax(1) == best.labels[0]).mean() for one in whole.dev]))
    for found, expected in ((best.dev, whole.dev), (best.test, whole.test)):
        assert [not np.isnan(one).any() for one in found] == [at == place for at in range(4)]
        np.testing.assert_array_equal(found[place], expected[place])


def test_merging_a_branch_with_itself_changes_nothing(small):
    settings, alone = small
    merged = merged_run(settings, settings)
    assert merged.steps == alone.steps == [4, 8, 12, 16]
    np.testing.assert_array_equal(merged.dev, alone.dev)
    np.testing.assert_array_equal(merged.test[-1], alone.test[-1])


def summary(variant, test, dev=0.5, gains=None, draw=0):
    views = {"best": test}
    found = {"best": {score: [0.0, 0.01] for score in scores.SCORES} | (gains or {})}
    named = {} if variant.startswith("single") else found
    return Summary("tiny", "a", draw, variant, 10.0, {"best": dev}, views, named)


def one_draw(first, lower=0.0, higher=0.0):
    made = [
        summary("single 0", 0.60),
        summary("steps 0.1", 0.61, gains={"calibrated": [lower, 0.01]}),
        summary("steps 0.3", 0.63, gains={"calibrated": [first, 0.01]}),
        summary("steps 0.5", 0.66, gains={"calibrated": [higher, 0.01]}),
    ]
    return {one.variant: one for one in made}


def test_the_rule_of_the_benchmark_is_that_of_meta():
    """The same runs are tried and taken as ``branches.search`` of the package tries them."""
    order = scores.DEFAULT_ORDER
    up = one_draw(0.02, higher=0.03)
    assert tried(up, order, "calibrated", "best") == ["steps 0.3", "steps 0.5"]
    assert taken(up, order, "calibrated", "best", 0.5) == "steps 0.5"
    down = one_draw(-0.02, lower=0.02, higher=9)
    assert tried(down, order, "calibrated", "best") == ["steps 0.3", "steps 0.1"]
    assert taken(down, order, "calibrated", "best", 0.5) == "steps 0.1"
    assert taken(one_draw(0.004), order, "calibrated", "best", 0.5) == "single 0"
    assert gain(up, "steps 0.5", "best") == pytest.approx(6)
    fewer = one_draw(0.02)
    fewer["steps 0.3"].gains["best"]["accuracy"] = [-0.02, 0.01]
    assert taken(fewer, order, "calibrated", "best", 0.5) == "single 0"


def test_restarts_are_the_best_by_dev_of_every_choice():
    draw = {
        f"single {number}": summary(f"single {number}", test, dev)
        for number, (test, dev) in enumerate([(0.6, 0.5), (0.7, 0.6), (0.5, 0.7)])
    }
    assert restarts(draw, "best", 3) == pytest.approx(100 * (0.5 - 0.6))
    assert restarts(draw, "best", 2) == pytest.approx(100 * ((0.7 + 0.5 + 0.5) / 3 - 0.6))


def test_what_meta_takes_is_compared_with_five_restarts_by_draw():
    def run(variant, dev, test, number=0):
        better = {key: [0.1, 0.01] for key in scores.SCORES}
        gains = {} if variant.startswith("single") else {"best": better}
        setting = "pydocs 300, l3mask"
        return Summary("tiny", setting, number, variant, 1.0, {"best": dev}, {"best": test}, gains)

    found = []
    for draw, test in ((0, 0.70), (1, 0.66)):
        found += [run(f"steps {share}", 0.8, test, draw) for share in (0.1, 0.3, 0.5)]
        # The best of five on dev is the third.
        singles = enumerate(((0.5, 0.5), (0.6, 0.9), (0.7, 0.6), (0.1, 0.1), (0.2, 0.2)))
        found += [run(f"single {n}", *both, draw) for n, both in singles]
    text = "\n".join(page(found))
    expected = "`meta` minus the best of 5 restarts, all settings with masked language modelling: "
    assert f"{expected}+8.0 ± 2.0 points over 2 draws." in text
    assert "| +8.0 ± 2.0 |\n" in text.replace("|\n\n", "|\n")


def test_settings_of_the_same_labelled_examples_share_restarts():
    own = replace(summary("single 0", 0.6), setting="pydocs 150, shuffled_labels")
    same = replace(summary("single 1", 0.5), setting="pydocs 150, random_mlm, corpus")
    other = replace(summary("single 2", 0.4), setting="pydocs 300, l3mask")
    draws = by_draw([own, same, other], "tiny", ["single 0"])
    shared = {0: {"single 0": own, "single 1": same}}
    assert draws == {own.setting: shared, same.setting: shared}


@pytest.mark.parametrize(("spread", "positive"), [(0.001, True), (0.2, False)])
def test_a_setting_is_positive_by_draws_of_its_own(spread, positive):
    draws = {}
    for place, number in enumerate(FOR_KIND[:3]):
        draws[number] = {
            "single 0": summary("single 0", 0.6),
            "steps 0.3": summary("steps 0.3", 0.63 + spread * (place - 1)),
        }
    assert is_positive(draws, "best", ["steps 0.3"]) is positive
    assert is_positive({0: draws[FOR_KIND[0]]}, "best", ["steps 0.3"]) is None


def test_the_best_evaluation_is_the_first_that_predicted_on_test():
    right = np.stack([np.eye(2)] * 3)
    run = {"dev": right, "test": right.copy(), "labels_dev": np.array([0, 1])}
    run["test"][0] = np.nan
    run["test"][2] *= 2
    np.testing.assert_array_equal(scores.predictions(run)["best"][1], right[1])


def test_a_record_becomes_a_summary_and_a_page(tmp_path):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 40)

    def run(correct):
        towards = np.where(draw.random((4, 40)) < correct, labels, 1 - labels)
        dev = np.where(towards[..., None] == np.arange(2), 0.8, 0.2)
        known = {"steps": np.arange(4), "seconds": np.array(3.0)}
        for name in ("dev", "test"):
            known |= {name: dev, f"average_{name}": dev[-1], f"labels_{name}": labels}
        return known

    better = {"steps_0.1": 0.6, "steps_0.3": 0.8, "steps_0.5": 0.95, "single_1": 0.5}
    ways = {f"steps_{share}_{way}": 0.7 for share in (0.3, 0.5) for way in ("falling", "merged")}
    for name, correct in {"single_0": 0.6, "single_2": 0.5, **better, **ways}.items():
        np.savez(tmp_path / f"{name}.npz", **run(correct))
    found = scores.summarise(tmp_path, "tiny", "a", 0)
    assert len(found) == 10
    by_name = {one.variant: one for one in found}
    mean, error = by_name["steps 0.5"].gains["best"]["accuracy"]
    both = by_name["steps 0.5"].dev["best"], by_name["single 0"].dev["best"]
    assert mean == pytest.approx(both[0] - both[1], abs=1e-6)
    assert error > 0
    assert by_draw(found, "tiny", ["single 0", "no such"]) == {}
    text = "\n\n".join(page(found))
    assert "| a | not decided | 1 |" in text
    falling = text.split("that stay or fall")[1].splitlines()[4].split(" | ")
    assert falling[3] == f"{gain(by_name, 'steps 0.3 falling', 'best'):+.1f}"
    assert scores.summarise(tmp_path / "none", "tiny", "a", 0) == []
