"""Rules that compare whole runs: which branches are trained, which is taken, and resuming."""

import numpy as np
import pytest
from safetensors.torch import load_file

import auxlearn
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, Interrupted, UserError
from auxlearn.results.record import RunResults
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.train import train_resolved
from auxlearn.training.whole_runs import branches
from auxlearn.training.whole_runs.branches import Gain, alone, best_of, search, together
from auxlearn.training.whole_runs.paired import Difference, ExampleLosses
from auxlearn.weighting.base import Branches
from tests.helpers import Messages, assert_same_files
from tests.sweeps.conftest import InlineExecutor


def train(config, reporter=None, executor=None):
    return train_resolved(config.resolved(), reporter, executor=executor)


RULE = Branches((0.3, 0.1, 0.5), "steps", 0.5)


def gain(mean, error=0.01, correct=0.0, correct_error=0.01):
    return Gain(Difference(mean, error), Difference(correct, correct_error))


def searched(tasks, gains):
    """Return the branches of each round, given the gain of each branch."""
    rounds, known = [], {}
    for found in search(tasks, RULE, known):
        rounds.append(found)
        known |= {one: gain(gains[one]) for one in found if one[0] < 1}
    return rounds


def test_the_second_share_is_higher_after_a_gain_and_lower_after_a_loss():
    one, low, high = ((1 - share, share) for share in (0.3, 0.1, 0.5))
    assert searched(1, {one: 0.001, high: 0.0}) == [[one, (1.0, 0.0)], [high]]
    assert searched(1, {one: -0.001, low: 0.0}) == [[one, (1.0, 0.0)], [low]]


def test_all_tasks_that_are_better_are_trained_together_at_last():
    gains = {alone(0, 0.3, 3): 0.02, alone(0, 0.5, 3): 0.03, alone(1, 0.3, 3): -1}
    gains |= {alone(1, 0.1, 3): -1, alone(2, 0.3, 3): 0.04, alone(2, 0.5, 3): 0.01}
    both = together([alone(0, 0.5, 3), alone(2, 0.3, 3)])
    assert searched(3, gains | {both: 0})[-1] == [both]
    assert both[2] == 0
    assert sum(both) == pytest.approx(1, abs=1e-15)
    assert both[1] / both[0] == pytest.approx(0.5 / 0.5, rel=1e-12)
    assert both[3] / both[0] == pytest.approx(0.3 / 0.7, rel=1e-12)
    none = dict.fromkeys(gains, -1) | {alone(task, 0.1, 3): -1 for task in range(3)}
    assert len(searched(3, none)) == 2


def test_a_branch_is_taken_by_its_log_loss_unless_its_metric_speaks_against_it():
    better, best, worse = (0.7, 0.3), (0.5, 0.5), (0.9, 0.1)
    gains = {better: gain(0.006), best: gain(0.02), worse: gain(0.004)}
    assert best_of(gains, 0.5) == best
    assert best_of({worse: gains[worse]}, 0.5) is None  # 0.4 standard errors
    assert best_of({worse: gains[worse]}, 0.3) == worse
    gains[best] = gain(0.02, correct=-0.011)
    assert best_of(gains, 0.5) == better
    gains[best] = gain(0.02, correct=-0.009)
    assert best_of(gains, 0.5) == best


@pytest.fixture
def config(fast_settings, tmp_path):
    def make(**settings):
        given = {"aux": ["random_mlm"], "weights": "meta", "output": str(tmp_path / "run")}
        return RunConfig.model_validate(fast_settings | given | settings)

    return make


def deciding(patch):
    """Return a function that decides which branches are better."""

    def decide(**better):
        def minus(self, other, balanced):
            return gain(other.better).loss, gain(other.better).correct

        def of(cls, path, results):
            share = path.name.replace("-", "_").replace(".", "").replace("+", "_and_")
            one = cls(np.zeros(1), np.zeros(1), np.zeros(1))
            object.__setattr__(one, "better", better.get(share, -1.0))
            return one

        patch.setattr(ExampleLosses, "of", classmethod(of))
        patch.setattr(ExampleLosses, "minus", minus)
        patch.setattr(branches._Training, "_learned", True)  # whatever these short runs have

    return decide


@pytest.fixture
def evidence(monkeypatch):
    return deciding(monkeypatch)


#: Evidence that takes the share of 0.3, and what a run with it has become.
FIRST_IS_BEST = {"random_mlm_03": 0.1, "random_mlm_05": 0.05}


@pytest.fixture(scope="module")
def whole(fast_settings, tmp_path_factory):
    output = str(tmp_path_factory.mktemp("whole") / "run")
    given = {"aux": ["random_mlm"], "weights": "meta", "output": output}
    with pytest.MonkeyPatch.context() as patch:
        deciding(patch)(**FIRST_IS_BEST)
        return train(RunConfig.model_validate(fast_settings | given))


def test_no_branch_is_taken_when_none_has_learned_anything(config):
    results = train(config(learning_rate=1e-9, weights={"meta": {"evidence": -1e9}}, epochs=1))
    assert all(RunResults.load(results.folder / one.folder).degenerate for one in results.branches)
    assert results.weights == {"primary": 1.0, "random_mlm": 0.0}
    assert results.account["random_mlm"].startswith("random_mlm: left out, and nothing is known")
    assert results.warnings() == [*results.warnings()[:1], results.account["random_mlm"]]
    card = (results.folder / "model" / "README.md").read_text()
    assert "learned nothing" in card
    assert "nothing is known of it" in card


def test_the_run_is_the_branch_that_is_taken(whole, config, tmp_path):
    results, folder = whole, whole.folder
    assert [one.title for one in results.branches] == [
        *("random_mlm 0.3", "single task", "random_mlm 0.5")
    ]
    assert [one.taken for one in results.branches] == [True, False, False]
    assert results.weights == {"primary": 0.7, "random_mlm": 0.3}
    fixed = {"fixed": {"alpha": 0.3, "mix": "steps"}}
    other = train(config(weights=fixed, output=str(tmp_path / "fixed")))
    assert results.evaluations == other.evaluations
    assert results.best == other.best
    files = ("model/model.safetensors", "predictions/dev.jsonl", "predictions/test.jsonl")
    assert_same_files(folder, tmp_path / "fixed", *files)
    assert results.config["weights"] == {"meta": results.config["weights"]["meta"]}
    assert RunResults.load(folder) == results
    assert (folder / "heads").is_dir()
    for branch in results.branches:
        assert RunResults.load(folder / branch.folder).best.value == branch.value
        assert not (folder / branch.folder / "model").exists()
        assert [step for step, _ in branch.course] == [3, 6]
    assert "applied with share 0.3" in results.account["random_mlm"]
    card = (folder / "model" / "README.md").read_text()
    assert "`meta`" in card
    assert "| random_mlm 0.3 |" in card
    plots = {path.name for path in (folder / "plots").iterdir()}
    assert "branches.png" in plots
    assert "weights.png" not in plots
    assert len(auxlearn.predict(folder, ["a text"])) == 1  # the manifest fits the card
    runs = [RunResults.load(folder / one.folder) for one in results.branches]
    total = sum(sum(run.seconds.values()) for run in runs)
    assert sum(results.seconds.values()) == pytest.approx(total)


def test_without_evidence_the_run_is_the_single_task(config, evidence, tmp_path):
    evidence()
    results = train(config())
    single = train(config(aux=[], weights="fixed", output=str(tmp_path / "single")))
    assert results.weights == {"primary": 1.0, "random_mlm": 0.0}
    assert results.evaluations == single.evaluations
    first, second = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("run", "single")
    )
    assert all(first[name].equal(second[name]) for name in second)
    (*_, line) = results.warnings()  # that nothing was learned may come first
    assert line.startswith("random_mlm: left out; ")
    again = train(config())
    assert again == results
    assert auxlearn.load_run(tmp_path / "run").to_frame().equals(results.to_frame())


class _KilledError(Exception):
    pass


def test_a_killed_run_ends_with_the_same_bytes(whole, config, evidence, monkeypatch, tmp_path):
    """Killed in its second branch, and then when all is written and models are to be deleted."""
    evidence(**FIRST_IS_BEST)
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


def test_executors_give_the_same_results(whole, config, evidence, tmp_path):
    evidence(**FIRST_IS_BEST)
    other = train(config(output=str(tmp_path / "other")), executor=InlineExecutor())
    assert other.reproducible() == whole.reproducible()
    logs = sorted(path.name for path in (tmp_path / "other" / "branches").glob("*.log"))
    assert logs == ["random_mlm-0.3.log", "random_mlm-0.5.log", "single-task.log"]


def test_a_failed_branch_of_an_executor_is_named(config):
    with pytest.raises(UserError, match=r"branch supervised 0\.3: supervised needs a labelled"):
        train(config(aux=["supervised"]), executor=InlineExecutor())


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
    assert all(one.gain is None or one.gain_error > 0 for one in results.branches)
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
        ({"horizon": "steps", "evidence": 2}, "evidence: only with horizon run"),
        ({"shares": [0.3, 0.4, 0.5]}, "the second is lower than the first"),
        ({"shares": [0.3, 0.1, 1.0]}, "all are above 0 and below 1"),
        ({"horizon": "epoch"}, "horizon"),
    ],
)
def test_options_that_do_not_go_together(config, options, message):
    with pytest.raises(ConfigError) as caught:
        config(weights={"meta": options}).resolved()
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
