"""Experiments over draws: strategies of masking, the space of objectives, long texts."""

import argparse
import math
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from auxlearn.core.config import RunConfig
from auxlearn.core.registry import TASKS
from auxlearn.data.load import load_dataset
from benchmarks import masking
from benchmarks.horizon.bed import SINGLE
from benchmarks.horizon.record import Recorded
from benchmarks.long_texts import WAYS, report, write_draw
from benchmarks.masking import BEDS, SHARE, STRATEGIES
from benchmarks.space import CONTROL, LEARNED, VARIANTS, factors, gains, shares
from tests import helpers

#: Test examples of a hundred that a strategy is right on, in all settings.
RIGHT = {None: 50, "random_mlm": 60, "whole_word": 80, "frequency": 70, "span": 55}


def faked(trained):
    """Return a ``record`` whose runs are right on as many examples as their strategy says."""

    def record(settings, other, best):
        task = next(iter(settings["aux"][0])) if "aux" in settings else None
        trained.append((settings["dataset"], task))
        dataset = load_dataset(settings["dataset"])
        labels = [np.array(dataset.split(name).labels) for name in ("dev", "test")]
        found = Recorded(steps=[1], labels=labels, seconds=2.0 if task else 1.0)
        for own, kept in zip(labels, (found.dev, found.test), strict=True):
            right = np.arange(len(own)) % 100 < RIGHT[task]
            chosen = np.where(right, own, (own + 1) % 5)
            kept.append(0.8 * np.eye(5)[chosen] + 0.04)
        found.average = [found.dev[0], found.test[0]]
        return found

    return record


def run_masking(monkeypatch, folder, *arguments):
    places = ["--output", str(folder), "--results", str(folder / "masking.jsonl")]
    words = ["masking", *places, "--only", "pydocs", "--draws", "0", *arguments]
    monkeypatch.setattr(sys, "argv", words)
    return masking.main()


def test_what_is_trained_is_not_trained_again_and_ranks_are_by_test(tmp_path, monkeypatch, capsys):
    trained = []
    monkeypatch.setattr(masking, "record", faked(trained))
    strategies = ("--learned", "--strategies", "random", "whole word", "frequency")
    plot = tmp_path / "ranks.png"
    assert run_masking(monkeypatch, tmp_path, *strategies, "--plot", str(plot)) == 0
    text = capsys.readouterr().out
    # A setting trains the single task, and each strategy with two shares.
    assert len(trained) == 2 * (1 + 3 * 2)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    names = [row[0].removeprefix("| ") for row in rows[1:5]]
    assert names == ["whole word", "frequency", "random", "single task"]
    # Gains over the single task by setting; over random masking, which has 60, in all draws.
    assert rows[1][1:] == ["1.0", "1.0", "+30.0", "+30.0", "+20.0 ± 0.0", "0.00 |"]
    assert rows[4][1:5] == ["4.0", "4.0", "50.0", "50.0"]
    assert "The mean of all 3 strategies is +20.0 ± 0.0 points from the single task (p = " in text
    assert "Friedman's test over 2 settings" in text
    assert "Friedman's test over 2 draws" in text
    assert (tmp_path / "ranks_share.png").is_file()
    assert run_masking(monkeypatch, tmp_path, *strategies) == 0
    assert len(trained) == 2 * (1 + 3 * 2)
    assert run_masking(monkeypatch, tmp_path, *strategies, "--no-run") == 0
    again = capsys.readouterr().out
    assert text.split("With share")[1] in again
    assert "Of 6 learned weights: `steps 0.3` in 6." in again
    assert "100 to 999 times" in again
    # A strategy without learned weights does not keep the others out of their table.
    assert run_masking(monkeypatch, tmp_path, *strategies[1:], "span") == 0
    more = capsys.readouterr().out
    assert "The mean of all 4 strategies" in more
    assert "Of 6 learned weights: `steps 0.3` in 6." in more
    # A draw that lacks the second share of one strategy counts for the fixed share alone.
    next(tmp_path.glob("records/tiny/*/0/frequency/steps_0.5.npz")).unlink()
    (tmp_path / "masking.jsonl").unlink()
    assert run_masking(monkeypatch, tmp_path, *strategies, "--no-run") == 0
    without = capsys.readouterr().out
    assert "Friedman's test over 2 draws" in without
    assert "Of 3 learned weights: `steps 0.3` in 3." in without
    assert run_masking(monkeypatch, tmp_path, *strategies, "--no-run", "--draws", "9") == 0
    assert "No draw has all of" in capsys.readouterr().out


def test_what_has_a_result_is_not_trained_on_another_machine(tmp_path, monkeypatch, capsys):
    trained = []
    monkeypatch.setattr(masking, "record", faked(trained))
    assert run_masking(monkeypatch, tmp_path, "--strategies", "random", "whole word") == 0
    shutil.rmtree(tmp_path / "records")
    results = (tmp_path / "masking.jsonl").read_text()
    trained.clear()
    assert run_masking(monkeypatch, tmp_path, "--strategies", "random", "whole word") == 0
    assert not trained
    assert (tmp_path / "masking.jsonl").read_text() == results
    # What is new is compared with a single task that is trained here.
    again = ("--strategies", "random", "whole word", "frequency")
    assert run_masking(monkeypatch, tmp_path, *again) == 0
    assert [task for _, task in trained] == 2 * [None, "frequency"]
    assert set(results.splitlines()) < set((tmp_path / "masking.jsonl").read_text().splitlines())
    trained.clear()
    assert run_masking(monkeypatch, tmp_path, "--learned", "--strategies", "whole word") == 0
    assert [task for _, task in trained] == 2 * ["whole_word"]
    assert "Of 2 learned weights: `steps 0.3` in 2." in capsys.readouterr().out


def test_the_page_of_costs_has_a_row_for_each_strategy(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- masking costs -->\nold\n<!-- /masking costs -->\nafter\n")
    given = (
        "--costs",
        str(page),
        "--max-length",
        "8",
        "--strategies",
        "random",
        "difference",
        "pmi",
    )
    assert run_masking(monkeypatch, tmp_path, *given) == 0
    before, _, head, _, *rows, _, after = page.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert head == "| strategy | preparing, s | a batch of 32, ms |"
    costs = {name: cells for _, name, *cells, _ in (row.split("|") for row in rows)}
    # Without --data there are no texts that `difference` could compare with.
    assert [*costs] == [" random ", " pmi ", " loss and gradient of the last "]
    assert float(costs[" random "][0]) < float(costs[" pmi "][0])
    assert all(float(cells[1]) > 0 for cells in costs.values())
    assert not (tmp_path / "masking.jsonl").exists()


def test_differences_are_tested_in_pairs_over_all_draws():
    first = {"a": [60.0, 62.0, 64.5], "b": [70.0, 71.0]}
    other = {"a": [59.0, 62.5, 61.0], "b": [68.0, 70.5]}
    mean, error, p = masking.against(first, other)
    own, others = np.concatenate([*first.values()]), np.concatenate([*other.values()])
    expected = scipy.stats.ttest_rel(own, others)
    assert mean == pytest.approx((own - others).mean())
    assert error == pytest.approx(scipy.stats.sem(own - others))
    assert p == pytest.approx(expected.pvalue, rel=1e-9)


def test_random_masking_has_the_records_of_the_horizons(tmp_path):
    options = argparse.Namespace(output=tmp_path, encoder="tiny", label=None, data=None)
    own, first = (masking.Case(options, BEDS[0], 0, one).folder for one in ("random", "span"))
    assert own == masking.record_folder(options, BEDS[0], 0)
    assert first == own / "span"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_are_settings_of_runs(tmp_path, strategy):
    options = argparse.Namespace(
        **{"output": tmp_path, "encoder": "tiny", "data": None, "epochs": 2, "eval_epochs": 2},
        **{"batch_size": 16, "max_length": 64, "learning_rate": None, "precision": "fp32"},
    )
    bed = next(one for one in BEDS if one.data)
    case = masking.Case(options, bed, 3, strategy)
    case.data.mkdir(parents=True)
    (case.data / "background.txt").write_text("a text\n")
    given = case.settings(SHARE)
    config = RunConfig(**given).resolved()
    assert config.seed == 3
    assert config.eval_steps == 2 * -(-bed.train // 16)
    ((_, settings),) = config.model_dump(mode="json")["aux"][0].items()
    assert settings["probability"] == (0.4 if "40%" in strategy else 0.15)
    assert "corpus" in given["aux"][0][STRATEGIES[strategy][0]]
    assert "aux" not in masking.Case(options, bed, 3).settings(SINGLE[0])


def test_every_masking_task_is_a_strategy_of_the_benchmark():
    from auxlearn.tasks.base import MaskedLanguageModelling

    ours = {n for n in TASKS.names() if TASKS.get(n).__module__.startswith("auxlearn.tasks.")}
    masks = {name for name in ours if issubclass(TASKS.get(name), MaskedLanguageModelling)}
    assert masks == {task for task, _ in STRATEGIES.values()}


def record(draw, variant, test, **more):
    return {"draw": draw, "variant": variant, "dev": 0.5, "test": test, **more}


def test_gains_are_those_of_the_same_draw_with_their_standard_error():
    name = "`space`, n = 3, `aang`"
    records = [
        *(record(draw, "single 0", test) for draw, test in ((0, 0.50), (1, 0.60), (2, 0.40))),
        *(record(draw, name, test) for draw, test in ((0, 0.51), (1, 0.63), (5, 0.99))),
    ]
    error = math.sqrt(((1 - 2) ** 2 + (3 - 2) ** 2) / 1 / 2)  # of the gains 1 and 3
    assert error == pytest.approx(1.0)
    p = 1 - 2 / math.pi * math.atan(2.0 / error)  # Student's t with one degree of freedom
    (row,) = [line for line in gains(records, [0, 1, 2, 5]).splitlines() if name in line]
    assert row == f"| {name} | 2 | 57.0 |  | +2.0 ± 1.0 | {p:.2f} |  |"


def test_gains_are_compared_with_the_learned_weight_and_corrected_for_their_number():
    name = "`space`, n = 3, `aang`"
    records = [
        *(record(draw, "single 0", test) for draw, test in ((0, 0.50), (1, 0.60))),
        *(record(draw, LEARNED, test) for draw, test in ((0, 0.52), (1, 0.60))),
        *(record(draw, name, test) for draw, test in ((0, 0.51), (1, 0.63))),
    ]
    first, second = gains(records, [0, 1]).splitlines()[2:]
    # Gains 2 and 0, t = 1, and 1 and 3, t = 2; by Holm twice the smaller p, the other is no less.
    p = 2 * (1 - 2 / math.pi * math.atan(2.0))
    assert first == f"| {LEARNED} | 2 | 56.0 |  | +1.0 ± 1.0 | {p:.2f} |  |"
    assert second == f"| {name} | 2 | 57.0 |  | +2.0 ± 1.0 | {p:.2f} | +1.0 ± 2.0 |"


def test_restarts_of_equal_cost_come_first():
    name = "`space`, n = 3, `meta`"
    records = [
        record(draw, variant, test)
        for variant, tests in (
            ("single 0", (0.5, 0.5)),
            (CONTROL, (0.52, 0.56)),
            (name, (0.6, 0.6)),
        )
        for draw, test in enumerate(tests)
    ]
    head, _, control, row = gains(records, [0, 1]).splitlines()
    assert head.startswith("| method | draws | test accuracy | minus best of 5 restarts | minus")
    assert control.startswith("| best of 5 restarts | 2 | 54.0 |  | +4.0 ± 2.0 |")
    assert row.startswith(f"| {name} | 2 | 60.0 | +6.0 ± 2.0 | +10.0 ± 0.0 |")


def test_shares_are_those_of_meta_alone():
    learned = [0.5, 0.1, 0.5]
    records = [
        *(record(0, "`space`, n = 3, `meta`", 0.5, weights={"space": one}) for one in learned),
        record(0, "`space`, n = 3, share 0.3", 0.5, weights={"space": 0.3}),
    ]
    assert shares(records) == "Of 3 shares that `meta` learned: 0.5 in 2, 0.1 in 1."


def test_factors_stand_beside_their_weights_at_first():
    name = next(iter(one for one in VARIANTS if "aang" in one))
    data = ({"task": 0.2, "corpus": 0.8}, {"task": 0.4, "corpus": 0.6})
    axes = {
        "transform": dict.fromkeys(("none", "mask", "replace", "bert"), 0.25),
        "representation": dict.fromkeys(
            ("bidirectional", "left_to_right", "right_to_left", "random"), 0.25
        ),
        "output": {"denoise": 1.0, "label": 0.0},
    }
    records = [
        record(draw, name, 0.5, factors={"space": {"data": one, **axes}})
        for draw, one in enumerate(data)
    ]
    lines = factors(records).splitlines()
    assert lines[2] == "| data `task` | 0.60 | 0.30 ± 0.14 |"  # 24 of 40 objectives
    assert lines[-1] == "| output `label` | 0.20 | 0.00 ± 0.00 |"


def write_data(folder, more):
    splits = {
        name: [{"text": f"{name} {n} {more}", "label": "ab"[n % 2]} for n in range(count)]
        for name, count in {"train": 40, "test": 9}.items()
    }
    helpers.write_splits(folder, **splits)


def test_draws_differ_in_train_and_dev_and_have_one_test(tmp_path):
    write_data(tmp_path, " ")
    options = argparse.Namespace(
        dataset=str(tmp_path), output=tmp_path / "out", train=20, dev=10, test=5
    )
    found = []
    for draw in (0, 1):
        folder = write_draw(options, draw)
        texts = {
            name: [row["text"] for row in helpers.read_lines(folder / f"{name}.jsonl")]
            for name in ("train", "dev", "test")
        }
        assert [len(texts[name]) for name in texts] == [20, 10, 5]
        assert not set(texts["train"]) & set(texts["dev"])
        found.append(texts)
    assert found[0]["train"] != found[1]["train"]
    assert found[0]["test"] == found[1]["test"]


def test_the_table_has_differences_of_draws_with_their_standard_error():
    def results(accuracy, seconds):
        test = SimpleNamespace(all=SimpleNamespace(accuracy=accuracy), loss=0.5)
        return SimpleNamespace(evaluations={"test": test}, steps=80, seconds={"training": seconds})

    draws = [(0.5, 0.75), (0.6, 0.75), (0.55, 0.7)]  # differences 25, 15 and 15
    found = [
        {way: results(one if way == "head" else other, 2) for way in WAYS} for one, other in draws
    ]
    options = argparse.Namespace(encoder="tiny", train=300, dataset="data")
    lines = report(options, found).splitlines()
    assert lines[0] == "tiny, 3 draws of 300 texts of data"
    (head,) = [line for line in lines if line.startswith("| head |")]
    assert head.split("|")[2:4] == [" 55.0 ", "  "]
    (mean,) = [line for line in lines if line.startswith("| windows, mean |")]
    assert " +18.3 ± 3.3 " in mean  # the standard deviation 5.77, divided by the root of 3


@pytest.mark.slow
def test_the_program_trains_every_way_once(tmp_path, monkeypatch, capsys):
    from benchmarks import long_texts

    write_data(tmp_path / "data", "of many words " * 20)
    arguments = ["--dataset", tmp_path / "data", "--output", tmp_path / "out", "--max-length", "16"]
    arguments += ["--train", "20", "--dev", "10", "--epochs", "1", "--draws", "0", "1"]
    monkeypatch.setattr("sys.argv", ["long_texts", *map(str, arguments)])
    assert long_texts.main() == 0
    first = capsys.readouterr()
    assert len(first.err.splitlines()) >= 2 * len(WAYS)
    assert long_texts.main() == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "draw" not in again.err
