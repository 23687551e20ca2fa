"""Rules that compare whole runs: their branches and points, which is taken, and resuming."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import auxlearn
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, Interrupted, UserError
from auxlearn.executors.jobs import Outcome
from auxlearn.results.record import RunResults
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.train import train_resolved
from auxlearn.training.whole_runs import branches
from auxlearn.training.whole_runs.branches import (
    folder_name,
    is_trained,
    point,
    points,
    weights_of,
)
from tests.helpers import Messages, assert_same_files
from tests.sweeps.conftest import InlineExecutor


def train(config, reporter=None, executor=None):
    return train_resolved(config.resolved(), reporter, executor=executor)


def test_points_from_the_single_task_on():
    assert points(1) == [(0.0,), (0.5,), (1.0,)]
    found = points(2)
    assert len(found) == 9
    assert found[:4] == [(0.0, 0.0), (0.0, 0.5), (0.5, 0.0), (0.0, 1.0)]
    assert {one for one in points(3) if is_trained(one)} == {(0, 0, 0), *map(tuple, np.eye(3))}


def test_weights_of_a_point_keep_the_ratios_of_its_steps():
    assert weights_of((0.0, 0.0), 0.5) == (1.0, 0.0, 0.0)
    assert weights_of((0.0, 1.0), 0.3) == (0.7, 0.0, 0.3)
    primary, first, second = weights_of((0.5, 1.0), 0.3)
    assert primary + first + second == pytest.approx(1, abs=1e-15)
    assert first / primary == pytest.approx(0.5 * 0.3 / 0.7, rel=1e-12)
    assert second / primary == pytest.approx(0.3 / 0.7, rel=1e-12)


def test_the_parameters_of_a_point():
    single = {"body": torch.tensor([1.0, 2.0]), "ids": torch.arange(2)}
    first = {"body": torch.tensor([3.0, 0.0]), "ids": torch.arange(2), "own": torch.ones(1)}
    second = {"body": torch.tensor([1.0, 4.0]), "ids": torch.arange(2), "own": torch.zeros(1)}
    found = point((0.5, 1.0), single, {0: first, 1: second})
    assert found["body"].tolist() == [2.0, 3.0]
    assert found["ids"].equal(torch.arange(2))
    assert found["own"].item() == pytest.approx(1 / 3)
    assert point((0.5, 0.0), single, {0: first})["own"].item() == 1


def test_branches_whose_names_are_long_and_begin_alike_have_folders_of_their_own():
    assert folder_name("half of a 0.5 + b 0.5", 3) == "half-of-a-0.5+b-0.5"
    long = " + ".join(f"half of {'a' * 30}{number} 0.5" for number in range(4))
    names = {folder_name(title, number) for number, title in enumerate((long, long + " + b 0.5"))}
    assert len(names) == 2
    assert all(len(name) < 120 for name in names)


@pytest.fixture
def config(fast_settings, tmp_path):
    def make(**settings):
        given = {"aux": ["random_mlm"], "weights": "meta", "output": str(tmp_path / "run")}
        return RunConfig.model_validate(fast_settings | given | settings)

    return make


def deciding(patch):
    """Return a function that decides which point of the one task is the best on dev."""

    def decide(level):
        patch.setattr(branches._Training, "_best", lambda training, every: (level,))
        patch.setattr(branches._Training, "_learned", True)  # whatever these short runs have

    return decide


@pytest.fixture
def decide(monkeypatch):
    return deciding(monkeypatch)


@pytest.fixture(scope="module")
def whole(fast_settings, tmp_path_factory):
    output = str(tmp_path_factory.mktemp("whole") / "run")
    given = {"aux": ["random_mlm"], "weights": "meta", "output": output}
    with pytest.MonkeyPatch.context() as patch:
        deciding(patch)(0.5)
        return train(RunConfig.model_validate(fast_settings | given))


def test_no_branch_is_taken_when_none_has_learned_anything(config):
    results = train(config(learning_rate=1e-9, epochs=1))
    assert all(RunResults.load(results.folder / one.folder).degenerate for one in results.branches)
    assert results.weights == {"primary": 1.0, "random_mlm": 0.0}
    assert results.account["random_mlm"].startswith("random_mlm: left out, and nothing is known")
    assert results.warnings() == [*results.warnings()[:1], results.account["random_mlm"]]
    card = (results.folder / "model" / "README.md").read_text()
    assert "learned nothing" in card
    assert "nothing is known of it" in card


def test_the_run_is_the_point_that_is_taken(whole, config, tmp_path):
    """Half-way: its model is the mean of those of two ordinary runs."""
    results, folder = whole, whole.folder
    assert [one.title for one in results.branches] == [
        *("random_mlm 0.5", "single task", "half of random_mlm 0.5")
    ]
    assert [one.taken for one in results.branches] == [False, False, True]
    assert results.weights == pytest.approx({"primary": 2 / 3, "random_mlm": 1 / 3})
    assert results.steps == 0
    fixed = {"fixed": {"alpha": 0.5, "mix": "steps"}}
    ends = [
        train(config(aux=[], weights="fixed", output=str(tmp_path / "single"))),
        train(config(weights=fixed, output=str(tmp_path / "fixed"))),
    ]
    first, second = (load_file(one.folder / "model" / "model.safetensors") for one in ends)
    found = load_file(folder / "model" / "model.safetensors")
    for name, tensor in found.items():
        expected = (first[name].double() + second[name].double()) / 2
        torch.testing.assert_close(tensor.double(), expected, rtol=1e-6, atol=1e-7)
    texts = auxlearn.load_dataset(results.config["dataset"]).split("test").texts
    predicted = list(auxlearn.predict(folder, list(texts))["predicted_label"])
    stored = (folder / "predictions" / "test.jsonl").read_text().splitlines()
    assert predicted == [json.loads(line)["predicted"] for line in stored]
    by_title = {one.title: one for one in results.branches}
    for branch, end in zip(("single task", "random_mlm 0.5"), ends, strict=True):
        assert by_title[branch].value == end.best.value
        assert [step for step, _ in by_title[branch].course] == [3, 6]
    assert results.config["weights"] == {"meta": results.config["weights"]["meta"]}
    assert RunResults.load(folder) == results
    assert (folder / "heads").is_dir()
    for branch in results.branches:
        assert RunResults.load(folder / branch.folder).best.value == branch.value
        assert not (folder / branch.folder / "model").exists()
    assert not list((folder / "branches").glob("*.safetensors"))
    assert "applied; half of random_mlm 0.5 has" in results.account["random_mlm"]
    card = (folder / "model" / "README.md").read_text()
    assert "`meta`" in card
    assert "| half of random_mlm 0.5 |" in card
    assert "- parameters: half of random_mlm 0.5, a point between the runs below, chosen" in card
    plots = {path.name for path in (folder / "plots").iterdir()}
    # A point has no steps, so that there is no course of its losses and metrics.
    assert plots == {"branches.png", "overview.png"}
    runs = [RunResults.load(folder / one.folder) for one in results.branches]
    total = sum(sum(run.seconds.values()) for run in runs)
    assert sum(results.seconds.values()) == pytest.approx(total)


def test_the_run_is_the_run_with_the_task_or_without(config, decide, tmp_path):
    for level, settings in (
        (1.0, {"weights": {"fixed": {"alpha": 0.5, "mix": "steps"}}}),
        (0.0, {"aux": [], "weights": "fixed"}),
    ):
        decide(level)
        results = train(config(output=str(tmp_path / f"run {level}")))
        other = train(config(**settings, output=str(tmp_path / f"other {level}")))
        assert results.weights == {"primary": 1 - level / 2, "random_mlm": level / 2}
        assert results.evaluations == other.evaluations
        assert results.best == other.best
        first, second = (
            load_file(one.folder / "model" / "model.safetensors") for one in (results, other)
        )
        assert all(first[name].equal(second[name]) for name in second)
    (*_, line) = results.warnings()  # that nothing was learned may come first
    assert line.startswith("random_mlm: left out; ")
    assert train(config(output=str(tmp_path / "run 0.0"))) == results
    loaded = auxlearn.load_run(tmp_path / "run 0.0")
    assert loaded.to_frame().equals(results.to_frame())


def test_of_equal_metrics_the_point_nearest_to_the_single_task_is_taken(config, monkeypatch):
    monkeypatch.setattr(branches._Training, "_learned", True)
    results = train(config(epochs=1))
    values = {one.title: one.value for one in results.branches}
    order = ["single task", "half of random_mlm 0.5", "random_mlm 0.5"]
    taken = next(one.title for one in results.branches if one.taken)
    assert taken == max(order, key=values.get)


def test_more_tasks_than_can_be_compared(config):
    aux = ["random_mlm", "l3mask", "simcse", "span", "whole_word"]
    with pytest.raises(ConfigError, match="at most 4 auxiliary tasks, not 5"):
        train(config(aux=aux))


class _KilledError(Exception):
    pass


def test_a_killed_run_ends_with_the_same_bytes(whole, config, decide, monkeypatch, tmp_path):
    """Killed in its second branch, and then when all is written and models are to be deleted."""
    decide(0.5)
    steps = 0
    step = TrainingLoop.run_step

    def counted(loop):
        nonlocal steps
        steps += 1
        if steps == 11:
            raise _KilledError
        step(loop)

    def killed(*arguments):
        raise _KilledError

    for owner, name, change in (
        (TrainingLoop, "run_step", counted), (branches, "_delete_models", killed),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, change)
            with pytest.raises(_KilledError):
                train(config())
    resumed = train(config())
    assert resumed.reproducible() == whole.reproducible()
    files = ("model/model.safetensors", "metrics.jsonl", "predictions/test.jsonl")
    assert_same_files(tmp_path / "run", whole.folder, *files)
    assert not list((tmp_path / "run").rglob("branches/*/model"))
    assert not list((tmp_path / "run").rglob("*.part"))


def test_executors_give_the_same_results(whole, config, decide, tmp_path):
    decide(0.5)
    here, there = Messages(), Messages()
    train(config(output=str(tmp_path / "here")), here)
    other = train(config(output=str(tmp_path / "other")), there, InlineExecutor())
    assert other.reproducible() == whole.reproducible()
    # What the processes say is said here, once, but for what these add.
    said = {line for line in here.lines if not line.startswith("branch: ")}
    assert any(line.startswith("tokens per text of ") for line in said)
    assert said <= {*there.lines}
    assert len({*there.lines}) == len(there.lines)
    logs = sorted(path.name for path in (tmp_path / "other" / "branches").glob("*.log"))
    assert logs == ["half-of-random_mlm-0.5.log", "random_mlm-0.5.log", "single-task.log"]


def test_a_failed_branch_of_an_executor_is_named(config):
    with pytest.raises(UserError, match=r"branch supervised 0\.5: supervised needs a labelled"):
        train(config(aux=["supervised"]), executor=InlineExecutor())

    class Killed(InlineExecutor):
        def submit(self, job):
            self._ended.append(Outcome(job.digest, "killed", "it was killed"))

    with pytest.raises(UserError, match="it was killed: run the same command again to resume"):
        train(config(), executor=Killed())


def test_without_auxiliary_tasks_there_is_one_run(config, tmp_path):
    results = train(config(aux=[]))
    assert results.branches == []
    assert not (tmp_path / "run" / "branches").exists()


def test_a_run_after_mistakes_and_an_interruption_takes_a_branch_by_real_predictions(
    config, monkeypatch, tmp_path
):
    with pytest.raises(UserError, match="supervised needs a labelled data set"):
        train(config(aux=["supervised"]))
    assert not (tmp_path / "run" / "config.yaml").exists()
    assert not (tmp_path / "run" / "branches").exists()
    step = TrainingLoop.run_step

    def interrupted(loop):
        step(loop)
        raise Interrupted("stopped at step 1 of 6: run the same command again to resume")

    corpus = tmp_path / "corpus.txt"
    corpus.write_text("one text\nanother text\n")
    aux = [{"random_mlm": {"corpus": str(corpus)}}]
    settings = config(epochs=1, keep_model=False, aux=aux)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "run_step", interrupted)
        with pytest.raises(Interrupted, match="run the same command again"):
            train(settings)
    shown = Messages()
    results = train(settings, shown)
    assert len(results.branches) == 3
    assert all(one.gain is None or one.correct_error >= 0 for one in results.branches)
    assert sum(one.taken for one in results.branches) == 1
    assert len(shown.lines) == len(set(shown.lines))
    assert sum(line.startswith("branch: ") for line in shown.lines) == 3
    assert not list((tmp_path / "run").rglob("model.safetensors"))
    assert train(settings) == results
    # Inputs of the run are those of its branches.
    assert str(corpus) in (tmp_path / "run" / "inputs.json").read_text()
    corpus.write_text("one text\nyet another text\n")
    with pytest.raises(UserError, match=r"that random_mlm reads \(content\) has changed"):
        train(settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": 0}, "gate: only with horizon steps"),
        ({"split": "train:0.2", "every": 3}, "split, every: only with horizon steps"),
        ({"horizon": "steps", "share": 0.3}, "share: only with horizon run"),
        ({"shares": [0.3, 0.1, 0.5]}, "did you mean 'share'?"),
        ({"share": 1.0}, "share"),
        ({"horizon": "epoch"}, "horizon"),
    ],
)
def test_options_that_do_not_go_together(config, options, message):
    with pytest.raises(ConfigError) as caught:
        config(weights={"meta": options}).resolved()
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
