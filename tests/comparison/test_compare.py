"""Comparison of sweeps and runs: what competes, what is chosen, what is missing or refused."""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

import auxlearn
from auxlearn.comparison.compare import compare
from auxlearn.comparison.runs import named_runs, run_names
from auxlearn.core.config import load_config
from auxlearn.core.errors import ConfigError, SweepError
from auxlearn.core.files import write_checked_json
from auxlearn.core.registry import KINDS
from auxlearn.executors.jobs import Outcome
from auxlearn.kinds.classification import Classification
from auxlearn.sweeps.plan import expand_cells, plan_trials
from tests.cli.helpers import error
from tests.comparison.conftest import METHODS, edited, right_by_method
from tests.helpers import one_line

refused = partial(error, "compare")


def test_a_method_with_its_own_encoder_competes_where_the_encoder_is_an_axis(make_sweep):
    """As the sequential row of Mask-tuning's Table III, trained on another encoder."""
    grid = {
        "encoder": {"tiny": {"encoder": "tiny"}},
        "dataset": {"pydocs": {"dataset": "pydocs"}},
        "method": {
            "STL": {"aux": []},
            "RTM": {"aux": "random_mlm", "encoder": "runs/mlm-{encoder}-{dataset}"},
        },
    }
    comparison = compare(make_sweep(right_by_method, grid=grid, seeds=2).path)
    (block,) = comparison.blocks
    assert block.methods == ["STL", "RTM"]


def test_hyper_parameters_are_chosen_on_dev_and_the_choice_is_reported(make_sweep):
    """The other learning rate would be far better on test; a value with a failure is not chosen."""

    def right(trial):
        if trial.cell["learning_rate"] == "0.01":
            return None if trial.seed else {"dev": 40, "test": 40}
        good = trial.cell["learning_rate"] == "0.001"
        return {"dev": 30 if good else 25, "test": 20 if good else 40}

    folder = make_sweep(
        right,
        grid=METHODS | {"learning_rate": [1e-2, 1e-3, 1e-4]},
        select={"over": ["learning_rate"]},
        seeds=2,
    )
    comparison = compare(folder.path)
    (block,) = comparison.blocks
    assert [one.chosen for one in block.datasets[0].methods] == [{"learning_rate": "0.001"}] * 2
    assert dict(block.columns[0].means) == {"STL": 0.5, "RTM": 0.5}
    text = comparison.to_markdown()
    assert "STL: learning_rate 0.001 (chosen on dev)" in text
    assert "read for the chosen value only" in text
    assert "is unfinished: the choice of learning_rate on dev may still change" in text
    assert "no scores for seed" not in text
    assert "STL: without 1 trial of other values to choose among (unfinished)" in text


def test_a_sweep_of_failures_says_so(make_sweep):
    """Also where a choice on dev is open because of them."""
    folder = make_sweep(
        lambda trial: None, grid={"learning_rate": [1, 2]}, select={"over": ["learning_rate"]}
    )
    sweep = folder.read_sweep()
    for trial in plan_trials(sweep, expand_cells(sweep)):
        folder.save_failure(trial, Outcome(trial.digest, "error", "no such column"))
    with pytest.raises(SweepError, match=r"10 of 10 trials have failed, the first by: no such col"):
        compare(folder.path)


def test_data_sets_are_columns_and_sweeps_are_joined(make_sweep):
    first = make_sweep(right_by_method, "one", grid={"dataset": ["sst2", "qqp"]} | METHODS, seeds=2)
    (block,) = compare(first.path, sets=["test"]).blocks
    assert [column.dataset for column in block.columns] == ["sst2", "qqp", "average"]
    base = {"dataset": "sst2", "epochs": 3}
    same = {"dev": 20, "test": 12}
    second = make_sweep(lambda trial: same, "two", name="one", base=base, grid=METHODS, seeds=2)
    (joined,) = compare(first.path, second.path).blocks
    label = f"(one: {second.path})"
    assert joined.methods == ["STL", "RTM", f"STL {label}", f"RTM {label}"]
    assert joined.columns[0].means[f"STL {label}"] == 0.3
    assert set(joined.columns[-1].means) == {"STL", "RTM"}  # the others lack a data set


def test_the_average_is_that_of_the_data_sets(make_sweep):
    def right(trial):
        return {"dev": 20, "test": {"sst2": 20, "qqp": 30}[trial.cell["dataset"]] + trial.seed}

    folder = make_sweep(right, grid={"dataset": ["sst2", "qqp"]} | METHODS, seeds=3)
    comparison = compare(folder.path, against="STL")
    (block,) = comparison.blocks
    assert block.columns[-1].means["RTM"] == pytest.approx((21 / 40 + 31 / 40) / 2)
    assert block.columns[-1].scores["RTM"] == pytest.approx({0: 0.625, 1: 0.65, 2: 0.675})
    assert block.across[0].records == {"STL": (0, 2, 0), "RTM": (0, 2, 0)}
    assert block.across[0].ranks.ranks == {"STL": 1.5, "RTM": 1.5}
    assert "average 65.0" in repr(comparison) or "STL 65.0" in repr(comparison)


def test_single_runs_are_methods_by_their_settings(make_sweep, tmp_path):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=3)
    paths = []
    for number, record in enumerate(folder.load_plan()):
        paths.append(tmp_path / "runs" / str(number))
        shutil.copytree(folder.run(record.digest).path, paths[-1])
    comparison = auxlearn.compare(*paths, names={"single task": "STL"})
    (block,) = comparison.blocks
    assert block.methods == ["STL", "random_mlm, fixed"]
    assert block.columns[0].scores["STL"] == pytest.approx({0: 0.5, 1: 0.525, 2: 0.5})
    (paths[-1] / "results.json").unlink()
    comparison = auxlearn.compare(*paths)
    assert comparison.notes == [f"left out, as they have not finished: {paths[-1]}"]
    text = auxlearn.compare(paths[0], paths[-2]).to_markdown(show=["pairs"])
    assert "| single task - random_mlm, fixed | - | - | - | 1.000 |" in text
    os.mkfifo(paths[-1] / "results.json")
    assert "results.json is neither a file nor a folder" in refused(*paths)
    (paths[-1] / "results.json").unlink()
    # A sweep and a run of another place are compared with each other.
    (block,) = auxlearn.compare(folder.path, paths[0]).blocks
    assert block.methods == ["STL", "RTM", "single task"]
    shutil.copytree(paths[0], tmp_path / "again")
    assert "are both 'single task' with seed 0: leave one out" in refused(
        paths[0], tmp_path / "again"
    )
    assert f"write {tmp_path / 'runs'}/*" in refused(tmp_path / "runs")
    assert "nothing to compare" in refused(paths[-1])
    for wrong, what in {"decimals": True, "show": "seeds"}.items():
        for write in (comparison.to_markdown, comparison.to_latex):
            with one_line(ConfigError, f"{wrong}: "):
                write(**{wrong: what})


@pytest.fixture
def six(make_sweep, tmp_path):
    """Six runs with the same settings and seeds 0 to 5."""
    folder = make_sweep(lambda trial: {"dev": 30, "test": 20 + trial.seed}, "six", seeds=6)
    paths = []
    for seed, record in enumerate(folder.load_plan()):
        paths.append(tmp_path / "six" / f"run-{seed}")
        folder.run(record.digest).path.rename(paths[-1])
    return paths


def change(run, **entries):
    """Change entries of results.json: a mapping in it is extended."""
    with edited(run / "results.json") as content:
        for key, values in entries.items():
            content[key] |= values


def record_inputs(run, **inputs):
    write_checked_json(run / "inputs.json", {"inputs": inputs, "files": {}, "datasets": {}})


def test_data_of_one_name_are_told_apart_by_their_fingerprint(six, make_sweep):
    for run in six[3:]:
        change(run, dataset={"fingerprint": "0123456789abcdef"})
    (block,) = compare(*six).blocks
    both = ["pydocs (feedface)", "pydocs (01234567)"]
    assert [one.name for one in block.datasets] == both
    assert [list(c.scores["single task"]) for c in block.columns[:2]] == [[0, 1, 2], [3, 4, 5]]
    assert [run.setting[0][1] for run in named_runs(six).runs[2:4]] == both
    # A sweep on one of them has its name.
    sweep = make_sweep(lambda trial: {"dev": 30, "test": 20}, "other", seeds=2)
    (block,) = compare(sweep.path, *six[3:]).blocks
    assert [one.name for one in block.datasets] == both


def test_encoders_of_one_name_are_told_apart_by_their_content(six):
    for seed, run in enumerate(six[1:]):  # the first has recorded none
        record_inputs(run, encoder={"model.safetensors": "a" if seed < 2 else "b"})
    settings = [dict(run.setting)["encoder"] for run in named_runs(six).runs]
    assert settings[0] == "tiny"
    assert settings[1] == settings[2] != settings[3] == settings[4] == settings[5]
    assert all(name.startswith("tiny (") for name in settings[1:])


def test_settings_of_labels_and_the_content_of_plug_ins_are_of_the_method(six):
    for seed, run in enumerate(six):
        plugin = {"plug-in file my.py": {"content": "one" if seed < 3 else "two"}}
        corpus = {"file texts.txt that random_mlm reads": {"content": str(seed == 5)}}
        record_inputs(run, **plugin | corpus)
    change(six[0], config={"unknown_labels": "count"})
    names = [run.method for run in named_runs(six).runs]
    assert names[1] == names[2] != names[3] == names[4] != names[5]
    assert "plug-in file my.py" in names[1]
    assert "texts.txt" in names[5]
    assert "unknown_labels count" in names[0]


def test_folds_of_one_name_and_size_but_of_other_data_are_apart(six):
    """Each run is of one fold of three; the data of the last two are others."""
    for number, run in enumerate(six):
        folds = "a" * 16 if number < 4 else "b" * 16
        data = {"fingerprint": str(number) * 16, "folds": folds}
        change(run, config={"fold": f"{number % 2 + 1}/2"}, dataset=data)
    (block,) = compare(*six).blocks
    assert block.folds == 2
    names = [one.name for one in block.datasets]
    assert names == ["pydocs (aaaaaaaa)", "pydocs (bbbbbbbb)"]
    (block,) = compare(*six[:4]).blocks
    assert [one.name for one in block.datasets] == ["pydocs"]


def test_names_of_runs_say_in_what_they_differ():
    base = {"dataset": "a", "encoder": "b", "metric": "c", "seed": 1, "epochs": 3}
    aux = [{"l3mask": {"score": "plt"}}, {"l3mask": {"score": "surprisal"}}]
    configs = [
        {**base, "aux": [one], "weights": {"meta": {"horizon": "steps", "every": 1}}} for one in aux
    ]
    configs.append({**base, "dataset": "d", "aux": [], "weights": {"fixed": {}}, "epochs": 9})
    assert run_names(configs) == [
        "l3mask, meta, l3mask.score plt",
        "l3mask, meta, l3mask.score surprisal",
        "single task",
    ]
    alone, beside = ({"fixed": {"alpha": alpha}} for alpha in (0.3, 0.2))
    configs = [{**base, "aux": [], "weights": alone}, {**base, "aux": [aux[0]], "weights": beside}]
    assert run_names(configs) == ["single task", "l3mask, fixed"]


@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("against", [None, "STL"])
def test_without_enough_seeds_to_test_nothing_is_marked(make_sweep, seeds, against):
    """A gap of 31 points beside a mark would read as no difference."""
    folder = make_sweep(lambda _: {"dev": 30, "test": 20}, grid=METHODS, seeds=seeds)
    found = compare(folder.path, against=against)
    assert list(found.to_frame()["best"]) == [True, True]
    assert list(found.to_frame()["may_equal_best"]) == [False, False]
    text = found.to_markdown()
    lines = [line for line in text.splitlines() if "50.0" in line]
    assert len(lines) == 2
    assert sum("≈" in line for line in lines) == (seeds == 3 and against is not None)
    assert sum("**" in line for line in lines) == 2 * (against is None)


def test_an_unfinished_sweep_is_compared_and_what_is_missing_is_named(make_sweep):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=4)
    (folder.path / "results.json").unlink()
    trials = {f"{r.cell['method']} {r.seed}": r.digest for r in folder.load_plan()}
    (folder.run(trials["RTM 1"]).path / "results.json").unlink()
    (folder.run(trials["RTM 2"]).path / "results.json").write_text('{"config":')
    text = compare(folder.path).to_markdown()
    assert "RTM: no scores for seed 1 (unfinished)" in text
    assert "RTM: no scores for seed 2 (" in text
    assert "results.json is damaged" in text
    assert "at least 3 are needed" in text
    (folder.path / "plan.json").write_text('{"trials": [{"digest": "../../x"}]}')
    assert "plan.json is damaged" in refused(folder.path)
    (folder.path / "plan.json").unlink()
    assert (
        "holds no plan.json: no sweep has begun in it; if one was stopped there, run the"
        in refused(folder.path)
    )


def test_the_run_of_another_trial_is_damage(make_sweep):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=2)
    compare(folder.path)
    first, second = (folder.run(one.digest).path for one in folder.load_plan()[:2])
    for name in ("config.yaml", "results.json"):
        shutil.copy(first / name, second / name)
    assert f"{second} is the run of another trial" in refused(folder.path)


def test_methods_metrics_sets_and_names_are_chosen(make_sweep):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=2)
    comparison = compare(
        folder.path,
        metrics=["mcc", "f1:yes"],
        sets=["away", "dev"],
        methods=["base", "RTM"],
        names={"STL": "base"},
    )
    (block,) = comparison.blocks
    assert block.methods == ["base", "RTM"]
    assert [(one.set, one.metric) for one in block.columns] == [
        ("away", "mcc"), ("away", "f1:yes"), ("dev", "mcc"), ("dev", "f1:yes"),
    ]  # fmt: skip
    assert compare(folder.path, without=["RTM"]).blocks[0].methods == ["STL"]
    path = folder.path
    for line, *words in (
        ("there is no method 'RTN': did you mean 'RTM'?", "--method", "RTN"),
        ("there is no method 'STL'", "--name", "STL=b", "--against", "STL"),
        ("did you mean 'away'", "--set", "awy"),
        ("did you mean 'macro_f1'", "--metric", "macrof1"),
        ("no scores for f1:maybe", "--metric", "f1:maybe"),
        ("write OLD=NEW", "--name", "STL="),
        ("there is no 'pydoc': did you mean 'pydocs'?", "--name", "pydoc=b"),
        ("'STL' is given no new name", "--name", "STL= "),
        ("'STL' is given two new names", "--name", "STL=a", "--name", "STL=b"),
        ("two methods would be named 'RTM'", "--name", "STL=RTM"),
        ("known: seeds", "--show", "everything"),
        ("is given twice", f"{path}/../{path.name}"),
        ("is part of a sweep that is given as well", *map(str, path.glob("trials/*"))),
    ):
        assert line in refused(path, *words)


def test_methods_that_applied_no_task_are_named(make_sweep):
    """Their row is that of the single task, which has no weights to be 0."""
    folder = make_sweep(right_by_method, grid=METHODS, seeds=3)
    for record in folder.load_plan():
        with edited(folder.run(record.digest).path / "results.json") as content:
            content["weights"] = {"primary": 1.0}
            if record.cell["method"] == "RTM":
                content["weights"]["random_mlm"] = 0.0 if record.seed else 0.02
    text = compare(folder.path).to_markdown()
    assert "RTM: no auxiliary task applied at the end in 2 of 3 runs" in text
    assert "STL: no auxiliary" not in text


def test_runs_evaluated_on_different_examples_are_an_error(make_sweep):
    folder = make_sweep(right_by_method, grid=METHODS, seeds=1)
    run = folder.run(folder.load_plan()[0].digest).path
    path = run / "predictions" / "test.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert "different examples of 'test'" in refused(folder.path)


def test_runs_of_two_kinds_are_an_error(make_sweep, monkeypatch):
    class Ranks(Classification):
        name = "ranks"

    monkeypatch.setitem(KINDS._registered, "ranks", Ranks)
    methods = {"STL": {"aux": [], "kind": "ranks"}, "RTM": {"aux": "random_mlm"}}
    folder = make_sweep(right_by_method, grid={"method": methods}, seeds=1)
    assert "compare the runs of one kind" in refused(folder.path)


def test_the_runs_of_a_method_are_those_of_one_setting(make_sweep):
    """Runs that a table keeps apart have no mean."""
    folder = make_sweep(right_by_method, grid={"dataset": ["sst2", "qqp"]} | METHODS, seeds=2)
    line = error("ensemble", folder.path, "--method", "RTM")
    assert "has 'RTM' in 2 settings (sst2, tiny, accuracy; qqp, tiny, accuracy)" in line
    configs = [load_config(Path(run) / "config.yaml") for run in line.split(": ")[-1].split()]
    assert [(config.dataset, config.seed) for config in configs] == [("sst2", 0), ("sst2", 1)]
