"""Sweep files: the trials they expand to, and the errors they are refused with."""

import re

import pytest
import yaml

from auxlearn.core.errors import ConfigError, SweepError
from auxlearn.sweeps.plan import chosen_trials, expand_cells, number_of_trials, plan_trials, rounds
from auxlearn.sweeps.sweep_file import dump_sweep, label, read_sweep
from tests.helpers import write_splits


@pytest.fixture
def sweep_of(tmp_path):
    def read(**content):
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({"name": "s"} | content, sort_keys=False))
        return read_sweep(path)

    return read


def trials_of(sweep):
    return plan_trials(sweep, expand_cells(sweep))


@pytest.fixture
def trials(sweep_of):
    """The trials of a sweep with this content."""
    return lambda **content: trials_of(sweep_of(**content))


def test_trials_differ_in_their_labels_and_not_in_whether_a_model_is_kept(trials):
    grid = {"labels": [{}, {"good": [1, 2]}, {"good": 1}]}
    base = {"unknown_labels": "count", "text_window": "head+tail", "keep_model": False}
    found = trials(base=base, grid=grid, seeds=1)
    assert [trial.cell["labels"] for trial in found] == ["none", "good(1+2)", "good(1)"]
    renamed = [trial.config.renamed for trial in found]
    assert renamed == [{}, {"1": "good", "2": "good"}, {"1": "good"}]
    assert len({trial.digest for trial in found}) == 3
    for grid, named in (
        ({"keep_model": [True, False]}, ""),
        ({"method": {"a": {"epochs": 10}, "b": {}}}, "'a, seed 0' and 'b, seed 0' "),
    ):
        with pytest.raises(SweepError, match=f"{named}are the same run"):
            trials(grid=grid, seeds=1)


def test_options_of_a_weighting_need_an_auxiliary_task(trials):
    grid = {"weights.fixed.alpha": [0.1, 0.2]}
    with pytest.raises(ConfigError, match="alpha has no effect without an aux"):
        trials(grid=grid, seeds=1)
    assert len(trials(base={"aux": ["random_mlm"]}, grid=grid, seeds=1)) == 2


def test_the_kind_of_labels_is_found_as_a_single_run_finds_it(trials, tmp_path):
    for name, labels in {"one": ("a", "b"), "several": (["a"], ["a", "b"])}.items():
        rows = [{"text": f"text {i}", "label": labels[i % 2]} for i in range(4)]
        write_splits(tmp_path / name, train=rows)
    folders = [str(tmp_path / name) for name in ("one", "several")]
    found = [trial.config for trial in trials(grid={"dataset": folders}, seeds=1)]
    kinds = [(config.kind, config.metric) for config in found]
    assert kinds == [(None, "accuracy"), ("multi_label", "micro_f1")]


def test_a_grid_is_the_product_of_its_axes_and_the_seeds(sweep_of):
    sweep = sweep_of(
        base={"epochs": 2},
        grid={
            "learning_rate": [1e-3, 1e-4],
            "method": {"STL": {"aux": []}, "RTM": {"aux": "random_mlm", "weights": "equal"}},
        },
        cases=[{"name": "short", "max_length": 16}, {"name": "long", "max_length": 64}],
        seeds=3,
    )
    trials = trials_of(sweep)
    assert len(trials) == 2 * 2 * 2 * 3 == number_of_trials(sweep)
    assert len({trial.digest for trial in trials}) == 24
    found = trials[-1]
    assert found.title == "0.0001, RTM, long, seed 2"
    expected = {"epochs": 2, "learning_rate": 1e-4, "max_length": 64, "seed": 2}
    assert found.config.model_dump(include=set(expected)) == expected
    assert found.config.aux[0].name == "random_mlm"


def test_a_trial_is_identified_by_its_resolved_configuration(trials):
    """An explicit default gives the same trial; another value of any setting gives another one."""
    (plain,) = trials(base={"aux": "random_mlm"}, seeds=1)
    (spelled,) = trials(base={"aux": {"random_mlm": {"probability": 0.15}}}, seeds=[0])
    (other,) = trials(base={"aux": {"random_mlm": {"probability": 0.2}}}, seeds=1)
    assert plain.digest == spelled.digest == plain.config.digest
    assert plain.digest != other.digest


def test_excluded_combinations_are_left_out(trials):
    found = trials(
        grid={"encoder": ["bert", "scibert"], "dataset": ["acl_arc", "imdb", "sst2"]},
        exclude=[{"encoder": "scibert", "dataset": ["imdb", "sst2"]}],
        seeds=1,
    )
    of_bert = [("bert", name) for name in ("acl_arc", "imdb", "sst2")]
    assert [tuple(trial.cell.values()) for trial in found] == [*of_bert, ("scibert", "acl_arc")]
    for excluded in ([], [[]]):  # no tasks are one value
        (left,) = trials(grid={"aux": [[], "simcse"]}, exclude=[{"aux": excluded}], seeds=1)
        assert left.cell == {"aux": "simcse"}


def test_options_of_plugins_can_be_axes_and_later_settings_win(trials):
    found = trials(
        base={"aux": "l3mask", "weights.fixed.alpha": 0.1},
        grid={"aux.l3mask.score": ["complement", "surprisal"], "weights.fixed.alpha": [0.2]},
        seeds=1,
    )
    scores = [trial.config.aux[0].options["score"] for trial in found]
    assert scores == ["complement", "surprisal"]
    assert found[0].config.weights.options["alpha"] == 0.2


def test_a_task_that_is_chosen_twice_stays_two_tasks(trials):
    """Options reach the task they name: the second has the number that it has in the results."""
    aux = [{"random_mlm": {"corpus": "texts"}}, "l3mask", "random_mlm"]
    first, second = trials(
        base={"aux": aux, "aux.l3mask.score": "surprisal"},
        grid={"aux.random_mlm.probability": [0.1], "aux.random_mlm_2.probability": [0.2, 0.3]},
        seeds=1,
    )
    for trial, last in ((first, 0.2), (second, 0.3)):
        names, options = zip(*((one.name, one.options) for one in trial.config.aux), strict=True)
        assert names == ("random_mlm", "l3mask", "random_mlm")
        assert [one["probability"] for one in options] == [0.1, 0.15, last]
        assert [one.get("corpus") for one in options] == ["texts", None, None]
        assert options[1]["score"] == "surprisal"
    with pytest.raises(ConfigError, match=r"not chosen here \(random_mlm, l3mask, random_mlm_2\)"):
        trials(base={"aux": aux, "aux.random_mlm_3.probability": 0.1})


def test_axes_in_braces_are_replaced_by_their_labels_at_any_depth(sweep_of):
    corpus = [{"random_mlm": {"corpus": "texts/{dataset}.txt"}}]
    sweep = sweep_of(
        base={"encoder": "runs/{dataset}-{method}", "aux": corpus},
        grid={"dataset": ["a", "b"], "method": {"x y": {}}},
    )
    found = [cell.settings for cell in expand_cells(sweep)]
    assert [one["encoder"] for one in found] == ["runs/a-x y", "runs/b-x y"]
    corpora = [one["aux"][0]["random_mlm"]["corpus"] for one in found]
    assert corpora == ["texts/a.txt", "texts/b.txt"]


def test_all_errors_of_a_file_are_reported_at_once_with_suggestions(sweep_of):
    content = {
        "base": {"epoch": 3, "seed": 1, "output": "x"},
        "grid": {"learningrate": [1], "method": {"A": {"axu": []}}, "epochs": []},
        "cases": [{"name": "a"}, {"name": "a"}, {"epochs": 1}],
        "select": {"over": ["metod"]},
        "exclude": [{"datset": 1}],
    }
    with pytest.raises(ConfigError, match=r"(?s)a seed occurs twice.*'bose': did you mean 'base'"):
        sweep_of(bose={}, seeds=[1, 1], **content)
    with pytest.raises(ConfigError) as caught:
        sweep_of(**content)
    for part in (
        "base: unknown setting 'epoch': did you mean 'epochs'?",
        "'seed' is set by 'seeds'",
        "'output' is not part of a sweep file",
        "unknown setting 'learningrate': did you mean 'learning_rate'?",
        "grid.method.A: unknown setting 'axu': did you mean 'aux'?",
        "grid.epochs has no values",
        "the name 'a' occurs twice",
        "entry 3 has no name",
        "select.over: there is no axis 'metod': did you mean 'method'?",
        "exclude: there is no axis 'datset'",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"seeds": "3"}, "seeds: write their number, or a list of them, got '3'"),
        ({"seeds": True}, "seeds: write their number, or a list of them, got True"),
        ({"grid": {"method": {1: {}}}}, "grid: 1: a name is a quoted text, without blanks"),
        ({"grid": {1: {"a": {}}}}, "grid: 1: a name is a quoted text, without blanks"),
        (
            {"grid": {"m": {"STL": {}, "STL ": {}}}},
            "grid: 'STL ': a name is a quoted text, without",
        ),
        ({"cases": [{"name": " a"}]}, "cases: entry 1 has a name with blanks around it"),
        ({"search": {"space": {}}}, "search.space is empty: name a setting with its values"),
        ({"folds": 1}, "folds: "),
        ({"base": {"fold": "1/5"}}, "base: 'fold' is set by 'folds'"),
        ({"grid": {"fold": ["1/5"]}}, "grid.fold: that name is taken, use 'folds'"),
        ({"grid": {"state": {"a": {}}}}, "grid.state: that name is taken, use 'states'"),
        ({"folds": 5, "compare": ["fold"]}, "compare: folds are means, not methods"),
    ],
)
def test_a_fault_of_a_sweep_file_is_said_in_its_own_words(sweep_of, content, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        sweep_of(**content)


def test_all_invalid_cells_are_named(trials):
    methods = {"a": {"aux": "random_mln"}, "b": {"epochs": 0}, "c": {"weights.meta.every": 2}}
    with pytest.raises(ConfigError) as caught:
        trials(grid={"method": methods})
    for part in (
        "did you mean 'random_mlm'?",
        "b: epochs",
        "weights.meta.every: 'meta' is not chosen here (fixed)",
    ):
        assert part in str(caught.value)


def test_competing_and_chosen_axes(sweep_of):
    grid = {"encoder": ["bert", "tiny"], "method": {"a": {}, "b": {"aux": "l3mask"}}}
    sweep = sweep_of(grid=grid | {"epochs": [1, 2]}, select={"over": ["epochs"]})
    assert sweep.competing_axes == ("method",)
    assert sweep.chosen_axes == ("epochs",)
    assert sweep_of(grid={"encoder": ["bert", "tiny"]}).competing_axes == ("encoder",)
    assert sweep_of(grid=grid, compare=["encoder"]).competing_axes == ("encoder",)


def test_a_sweep_file_reads_back(sweep_of, tmp_path):
    sweep = sweep_of(
        grid={"learning_rate": [1e-3], "m": {"a": {"aux": []}}},
        search={
            "trials": 3,
            "space": {"batch_size": [8, 16], "warmup_ratio": {"low": 0.0, "high": 0.2}},
        },
        seeds=[3, 5],
        folds=3,
        select={"over": ["learning_rate"]},
    )
    (tmp_path / "copy.yaml").write_text(dump_sweep(sweep))
    assert read_sweep(tmp_path / "copy.yaml") == sweep


@pytest.mark.parametrize("value", [1e-5, 0.123456789, 1e-5 / 3])
def test_labels_of_numbers_have_full_precision(value):
    assert float(label(value)) == value


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_search_that_is_started_again_suggests_the_same_points(sweep_of, sampler):
    """So a sweep that is started again finds its trials finished. The best value is 1e-3."""
    sweep = sweep_of(
        grid={"method": {"a": {"aux": []}, "b": {"aux": "random_mlm"}}},
        search={
            "sampler": sampler,
            "trials": 12,
            "batch": 3,
            "space": {"learning_rate": {"low": 1e-5, "high": 1e-1, "log": True}},
        },
        seeds=2,
    )

    def score(trials):
        rate = trials[0].config.learning_rate
        return None if rate > 0.05 else -abs(rate - 1e-3)

    first, second = (list(rounds(sweep, score)) for _ in range(2))
    assert [[t.digest for t in r] for r in first] == [[t.digest for t in r] for r in second]
    assert len(first) == 4
    trials = [trial for members in first for trial in members]
    assert len(trials) == number_of_trials(sweep) == 2 * 12 * 2
    by_method = {name: [t for t in trials if t.cell["method"] == name] for name in "ab"}
    rates = [[t.config.learning_rate for t in found] for found in by_method.values()]
    assert rates[0] != rates[1]  # each cell has a study of its own
    assert all(1e-5 <= rate <= 1e-1 for found in rates for rate in found)


def test_folds_are_an_axis_that_does_not_compete(sweep_of):
    grid = {"method": {"STL": {"aux": []}, "RTM": {"aux": "random_mlm"}}, "epochs": [1, 2]}
    sweep = sweep_of(grid=grid, folds=3, seeds=2, select={"over": ["epochs"]})
    trials = trials_of(sweep)
    assert len(trials) == 2 * 2 * 3 * 2 == number_of_trials(sweep)
    assert sweep.competing_axes == ("method",)
    assert trials[0].title == "STL, 1, fold 1/3, seed 0"
    assert {trial.config.fold for trial in trials} == {"1/3", "2/3", "3/3"}
    # Each fold chooses on its own dev, as dev of another fold may be tested on in this one.
    dev = {t.digest: {"accuracy": float(t.config.epochs == int(t.cell["fold"][0]))} for t in trials}
    chosen = [trial for trial in trials if trial.digest in chosen_trials(sweep, trials, dev.get)]
    assert {(t.cell["fold"], t.config.epochs) for t in chosen} == {
        ("1/3", 1), ("2/3", 2), ("3/3", 1),
    }  # fmt: skip
