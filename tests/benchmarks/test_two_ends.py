"""The comparison of rules: points on lines, rules read from synthetic records, the tables."""

import argparse
import json
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel

from auxlearn.data.dataset import Split
from auxlearn.data.load import load_dataset
from auxlearn.training.whole_runs.branches import point, points
from benchmarks import two_ends
from benchmarks.beds import Setting, write_draw, write_split
from benchmarks.two_ends import SINGLE, Bed, Case, Draw, Run, View, read_all

FIRST, SECOND = "random_mlm, corpus", "simcse, corpus"
SETTINGS = tuple(
    Setting(f"pydocs 24, {name}", None, 24, tuple(name.split(",")[0].split(" + ")), "corpus")
    for name in (FIRST, SECOND, "random_mlm + simcse")
)
BED = Bed("tiny", range(1), SETTINGS, {"epochs": 4, "batch_size": 6, "encoder": "tiny"})


@cache
def pydocs():
    return load_dataset("pydocs")


def small_draw(setting, draw, data, folder):
    for name, count in (("train", 24), ("dev", 12), ("test", 12)):
        write_split(folder / f"{name}.jsonl", pydocs().split(name).select([*range(count)]))
    (folder / "unlabelled").mkdir(exist_ok=True)
    texts = pydocs().split("train").texts[30:60]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "unlabelled" / "corpus.jsonl").write_text(lines)


@pytest.mark.slow
def test_a_draw_divides_the_union_of_train_and_dev(tmp_path):
    pool = {*pydocs().split("train").texts, *pydocs().split("dev").texts}
    drawn = []
    for draw in ("0", "1"):
        write_draw(SETTINGS[0], int(draw), None, tmp_path / draw)
        dataset = load_dataset(str(tmp_path / draw))
        train, dev = dataset.split("train").texts, dataset.split("dev").texts
        lines = (tmp_path / draw / "unlabelled" / "corpus.jsonl").read_text().splitlines()
        rest = [json.loads(line)["text"] for line in lines]
        assert {*train, *dev, *rest} == pool
        assert len(train) + len(dev) + len(rest) == 1300
        assert abs(len(train) - 24) <= 3
        drawn.append(train)
        assert dataset.split("test").texts == pydocs().split("test").texts
    assert drawn[0] != drawn[1]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Shares 0 and 0.5 of two tasks, as recorded, and the settings of their runs."""
    output = tmp_path_factory.mktemp("two_ends")
    options = argparse.Namespace(output=output, results=output / "r.jsonl", data=None, encoder=None)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_ends, "TINY", BED)
        patch.setattr(two_ends, "write_draw", small_draw)
        record = two_ends.train_run

        def train_run(settings, *rest):
            seen.append(settings)
            return record(settings, *rest)

        patch.setattr(two_ends, "train_run", train_run)
        for what in (SINGLE, 0.5):
            for setting in SETTINGS:
                Case(options, BED, setting, 0).train_missing(what)
            if what == SINGLE:  # models that are gone are trained again
                two_ends.shutil.rmtree(Case(options, BED, SETTINGS[0], 0).models)
    return output, seen


@pytest.mark.slow
def test_runs_are_recorded_once_and_models_deleted(recorded):
    output, seen = recorded
    records = [json.loads(one) for one in (output / "r.jsonl").read_text().splitlines()]
    assert [one["run"] for one in records] == [SINGLE, f"{FIRST} 0.5", f"{SECOND} 0.5"]
    assert len(seen) == 4
    assert not list(output.glob("models/*/*/*"))
    assert {*records[2]["views"]} == {"best", "late", "middle", "0.5 0.5", "0.5 1", "1 0.5", "1 1"}


COUNT = 40


def view(loss, right, noise=0.0):
    """A view with this mean loss on dev, and so many of 40 examples right on dev and test."""
    spread = noise * np.tile([1.0, -1.0], COUNT // 2)
    hits = np.arange(COUNT) < right
    return View(loss + spread, hits, np.full(COUNT, 0.5), hits)


def one_draw(single=(1.0, 20), middle=(0.9, 21), end=(0.8, 22), noise=0.05, **runs):
    views = {
        SINGLE: {"best": view(*single), "late": view(1.0, 23)},
        "a 0.5": {"best": view(*end, noise), "middle": view(*middle, noise), "late": view(0.7, 24)},
    }
    for name, one in runs.items():
        views[f"a {name.replace('_', '.')}"] = {"best": view(*one, noise)}
    seconds = {SINGLE: 10.0}
    return Draw({run: Run(found, seconds.get(run, 20.0)) for run, found in views.items()}, ("a",))


END, MIDDLE, THIRD = ("a 0.5", "best"), ("a 0.5", "middle"), ("a 0.3", "best")


@pytest.mark.parametrize(
    ("rule", "draw", "taken", "runs"),
    [
        ("line, accuracy", {}, END, 2),
        ("line, accuracy", {"middle": (0.9, 22)}, MIDDLE, 2),  # a tie: the smaller l
        ("line, accuracy", {"single": (1.0, 22)}, (SINGLE, "best"), 2),
        ("ends, loss", {"middle": (0.1, 40)}, END, 2),
        ("line, loss", {"middle": (0.7, 21)}, MIDDLE, 2),
        (
            "line, loss",
            {"end": (0.99, 22), "middle": (0.999, 22), "noise": 0.2},
            (SINGLE, "best"),
            2,
        ),
        ("line, loss", {"end": (0.8, 10), "middle": (0.9, 20)}, MIDDLE, 2),  # too few are right
        ("ends, loss, guard", {"0_3": (0.1, 30)}, END, 2),  # no barrier and a clear gain
        ("ends, loss, guard", {"middle": (0.95, 21), "0_3": (0.1, 30)}, THIRD, 3),  # a barrier
        ("line, accuracy, guard", {"middle": (0.95, 21), "0_3": (0.1, 22)}, THIRD, 3),  # before T
        ("line, loss, guard", {"end": (0.99, 20), "noise": 0.2, "0_3": (0.5, 20)}, THIRD, 3),
        ("ends, loss, late", {}, ("a 0.5", "late"), 2),
        ("single, late", {}, (SINGLE, "late"), 1),
        ("single, best or late", {"single": (1.0, 23)}, (SINGLE, "best"), 1),
    ],
)
def test_rules_of_lines(rule, draw, taken, runs):
    point, trained = two_ends.TABLES[2][1][rule](one_draw(**draw))
    assert point == taken
    assert trained == [SINGLE, "a 0.5", "a 0.3"][:runs]


@pytest.mark.parametrize("seed", range(20))
def test_the_line_by_accuracy_is_that_of_the_library(seed):
    """Two tasks with many ties: the same point is taken."""
    draw, tasks = np.random.default_rng(seed), ("a", "b")
    values = {levels: draw.integers(18, 22) for levels in points(2)}
    runs = {SINGLE: Run({"best": view(1.0, values[0.0, 0.0])})}
    for number, task in enumerate(tasks):
        levels = {name: [0.0, 0.0] for name in ("middle", "best")}
        levels["middle"][number], levels["best"][number] = 0.5, 1.0
        views = {name: view(1.0, values[tuple(one)]) for name, one in levels.items()}
        runs[f"{task} 0.5"] = Run(views)
    for levels in values:
        if all(levels):
            name = " ".join(f"{level:g}" for level in levels)
            runs["b 0.5"].views[name] = view(1.0, values[levels])
    (run, name), trained = two_ends.LINES["line, accuracy"](Draw(runs, tasks))
    taken = {"best": 1.0, "middle": 0.5}.get(name)
    expected = max(points(2), key=values.get)
    if run == SINGLE:
        assert expected == (0.0, 0.0)
    elif taken is None:
        assert expected == tuple(map(float, name.split()))
    else:
        assert expected == tuple(taken * (run == f"{task} 0.5") for task in tasks)
    assert trained == [SINGLE, "a 0.5", "b 0.5"]


def test_points_are_those_of_the_library():
    draw = np.random.default_rng(0)
    single, *ends = (
        {name: torch.tensor(draw.normal(size=5), dtype=torch.float32) for name in ("x", "y")}
        for _ in range(3)
    )
    for levels in points(2):
        found = point(levels, single, dict(enumerate(ends)))
        expected = two_ends.on_line(single, ends, levels)
        assert all(found[name].equal(expected[name]) for name in single)


@pytest.mark.parametrize(("loss", "second"), [(0.7, "0.5"), (1.2, "0.1")])
def test_the_share_that_no_rule_reads_is_neither_trained_nor_needed(loss, second, tmp_path):
    bed = Bed("tiny", range(1), SETTINGS[:1], {})
    case = Case(argparse.Namespace(output=tmp_path, results=tmp_path / "r"), bed, SETTINGS[0], 0)
    runs = {
        run.replace("a ", f"{FIRST} "): one
        for run, one in one_draw(**{"0_3": (loss, 20)}).runs.items()
    }
    trained = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_ends, "read_all", lambda path: {case.key: runs})
        patch.setattr(Case, "train", lambda case, run, weights: trained.append((run, weights)))
        case.train_missing(0.1)
    assert trained == [(f"{FIRST} {second}", ())] * (second == "0.1")
    scored = two_ends.score_all({case.key: runs}, bed, bed.settings, two_ends.SHARED, (0.3, 0.5), 1)
    assert bool(scored) == (second == "0.5")


def test_tables_give_gain_cost_and_a_test_that_is_no_milder_than_one_over_draws():
    records, hits = {}, [(20, 24), (21, 23), (19, 25), (22, 27)]
    bed = Bed("tiny", range(4), SETTINGS[:1], {})
    for number, (single, end) in enumerate(hits):
        runs = one_draw((1.0, single), (0.9, single), (0.8, end)).runs
        records["tiny", "pydocs 24", number] = {SINGLE: runs[SINGLE], f"{FIRST} 0.5": runs["a 0.5"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_ends, "BEDS", (bed,))
        title, settings, _, rules = two_ends.tables(records)
    assert title.startswith("**Rules of two runs, tiny**")
    gains = [100 * (end - single) / COUNT for single, end in hits]
    error = np.std(gains, ddof=1) / 2
    cell = f"{np.mean(gains):+.1f} ± {error:.1f}"
    head, _, row = (line.strip("| ").split(" | ") for line in settings.splitlines())
    assert dict(zip(head, row, strict=True))["ends, loss"] == cell
    row = next(one for one in rules.splitlines() if one.startswith("| ends, loss |"))
    assert f"{np.mean(gains):+.2f} | 1.50 | {cell}" in row
    scored = {
        "a": {
            n: {"x": (np.arange(COUNT) < b, 1.0), "y": (np.arange(COUNT) < a, 1.0)}
            for n, (a, b) in enumerate(hits)
        }
    }
    mean, noise = two_ends.compared(scored, ("x", "y"))
    assert mean == pytest.approx(np.mean(gains))
    expected = ttest_rel(*np.transpose(hits)[::-1])
    assert 0.05 > max(noise.test(mean)) >= expected.pvalue
    interval = expected.confidence_interval()
    assert noise.half_width() >= 100 * (interval.high - interval.low) / 2 / COUNT


def test_the_pages_show_what_is_recorded():
    records = read_all(two_ends.RESULTS / "two_ends.jsonl")
    assert f"\n{two_ends.on_real_sets(records)}\n" in two_ends.README.read_text()
    page = two_ends.PAGE.read_text()
    assert f"\n{two_ends.decision(records)}\n" in page
    assert all(f"\n{part}\n" in page for part in two_ends.tables(records))


def test_repeats_and_texts_with_two_labels_are_left_out():
    texts = ("One.", "one", "Two", "Two!", "three", "four")
    split = Split("train", texts, (0, 0, 0, 1, 1, 0), ("x", "y"))
    test = Split("test", ("THREE",), (1,), ("x", "y"))
    assert two_ends.without_repeats(split, test).texts == ("One.", "four")
