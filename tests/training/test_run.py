"""Whole runs on a small data set: the run folder, resuming, early stopping."""

import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import count

import pytest
import torch

from auxlearn import train
from auxlearn.core.errors import ConfigError, Interrupted, TrainingDiverged
from auxlearn.results.record import BestCheckpoint, RunResults
from auxlearn.tasks.l3mask import L3Mask
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.validation import ValidationObjective
from tests import helpers

#: Settings of a run without an auxiliary task, for what does not depend on one.
PLAIN = {"aux": [], "weights": "fixed"}


@pytest.fixture(scope="module")
def uninterrupted(settings, tmp_path_factory):
    return train(settings(output=str(tmp_path_factory.mktemp("uninterrupted") / "run")))


def test_a_run_leaves_a_complete_folder(config, tmp_path, plots):
    results = train(config())
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir() if not path.name.startswith(".")} == {
        "config.yaml",
        "inputs.json",
        "environment.json",
        "metrics.jsonl",
        "results.json",
        "model",
        "heads",
        "plots",
        "predictions",
    }
    assert results.steps == 12
    assert results.evaluations["test"].seen_examples == 1
    assert results.evaluations["test"].unseen.examples == 12
    assert sum(results.weights.values()) == pytest.approx(1)
    assert results.weights["l3mask"] != 0.5, "the weights were never updated"
    rows = helpers.read_lines(folder / "metrics.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "eval"] == [4, 8, 12]
    assert results.environment.peak_memory_mb > 50
    assert results.environment.peak_gpu_memory_mb is None


def test_a_finished_run_returns_its_results_without_training(uninterrupted, config, monkeypatch):
    helpers.stop_before_step(monkeypatch, 0, AssertionError("it trained again"))
    assert train(config(output=str(uninterrupted.folder))) == uninterrupted


@pytest.mark.parametrize(
    "steps", [7, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (1, 4, 11))]
)
def test_a_killed_run_resumes_to_the_results_of_an_uninterrupted_one(uninterrupted, config, steps):
    helpers.kill_before_step(steps, config())
    resumed = train(config())
    expected, found = uninterrupted.reproducible(), resumed.reproducible()
    expected["config"].pop("output"), found["config"].pop("output")
    assert found == expected
    helpers.assert_same_files(resumed.folder, uninterrupted.folder)


@pytest.mark.slow
def test_a_run_killed_by_the_system_resumes(config, tmp_path):
    settings = config(eval_steps=2, epochs=4)
    uninterrupted = train(settings.model_copy(update={"output": str(tmp_path / "uninterrupted")}))
    file = tmp_path / "config.yaml"
    file.write_text(settings.to_yaml())
    command = [sys.executable, "-m", "auxlearn", "train", "--config", str(file)]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoint = tmp_path / "run" / "checkpoint" / "latest.json"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert checkpoint.exists()
    assert not (tmp_path / "run" / "results.json").exists()
    resumed = train(settings)
    assert resumed.evaluations == uninterrupted.evaluations
    assert resumed.weights == uninterrupted.weights


def test_ctrl_c_saves_a_checkpoint_and_says_how_to_resume(uninterrupted, config, monkeypatch):
    real = TrainingLoop.run_step
    before = signal.getsignal(signal.SIGINT)

    def step(self):
        real(self)
        if self.state.step == 6:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "run_step", step)
        with pytest.raises(Interrupted, match="step 6 of 12: run the same command again"):
            train(config())
    assert signal.getsignal(signal.SIGINT) is before
    assert train(config()).evaluations == uninterrupted.evaluations


def test_a_nan_loss_is_reported_with_step_objective_and_learning_rate(config, monkeypatch):
    real, calls = L3Mask.loss, count(1)

    def loss(self, encoder, batch, generator):
        return real(self, encoder, batch, generator) * (torch.nan if next(calls) == 5 else 1.0)

    monkeypatch.setattr(L3Mask, "loss", loss)
    message = r"the loss of 'l3mask' became nan at step 5, learning rate .*e?-?0?"
    with pytest.raises(TrainingDiverged, match=message):
        train(config())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_requested_but_unavailable(config):
    with pytest.raises(ConfigError, match="CUDA is not available"):
        train(config(device="cuda"))


def test_validation_examples_held_out_of_train_are_not_trained_on(config):
    weights = {"meta": {"horizon": "steps", "split": "train:0.2"}}
    step = helpers.first_step(config(weights=weights, metric="macro_f1"))
    train, held = step.primary.texts, step.validation.texts
    assert len(train) + len(held) == 48
    assert 7 <= len(held) <= 12

    def texts(tokens):
        return {tuple(part.tolist()) for part in tokens.input_ids.split(tokens.lengths.tolist())}

    assert not texts(train) & texts(held)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"meta": {"horizon": "steps", "gate_share": 1}}, 4),
        ({"meta": {"horizon": "steps", "gate_share": 1, "batch_size": 3}}, 3),
        ({"tartan": {}}, 6),  # of 12 dev examples; a head is fitted to the other half
    ],
)
def test_validation_batches_of_meta_have_half_the_training_batch_size(
    config, monkeypatch, weights, expected
):
    batches, examples = [], ValidationObjective._examples

    def record(validation, number):
        batches.append(examples(validation, number))
        return batches[-1]

    monkeypatch.setattr(ValidationObjective, "_examples", record)
    train(config(weights=weights, epochs=1))
    assert batches
    assert {len(batch) for batch in batches} == {expected}


EPOCHS = {"eval_steps": 6, "min_epochs": 0}
#: Two further epochs on the primary task alone, after one of six steps.
FINAL = {"epochs": 1, "final_epochs": 2, "final_learning_rate": 1e-3, "aux": ["l3mask"]}
#: Dev accuracies, settings; the step and accuracy of the best checkpoint, the number of steps, and
#: why the run, and its primary-only phase, ended. A third of dev is of the majority class of train.
ENDINGS = {
    "patience": (
        (0.2, 0.9, 0.5, 0.4, 0.3),
        {"patience": 2, "epochs": 3, "min_epochs": 0},
        (8, 0.9, 16, "patience", None),
    ),
    "patience waits for the metric to leave the majority baseline": (
        (1 / 3, 1 / 3, 1 / 3, 0.2, 0.5, 0.4, 0.4),
        {"patience": 2, "epochs": 10, **EPOCHS},
        (30, 0.5, 7 * 6, "patience", None),
    ),
    "a run that never leaves it uses all epochs": (
        [1 / 3] * 5,
        {"patience": 2, "epochs": 5, **EPOCHS},
        (6, 1 / 3, 30, "epochs", None),
    ),
    "the evaluations after epochs 4 and 5 are the first two that count": (
        (0.9, *[0.5] * 9),
        {"patience": 2, "epochs": 10, **EPOCHS, "min_epochs": 4},
        (6, 0.9, 5 * 6, "patience", None),
    ),
    "no step is left as patience runs out": (
        (0.9, 0.6, 0.5),
        {"patience": 2, "min_epochs": 0},
        (4, 0.9, 12, "epochs", None),
    ),
    "steps are left as patience runs out": (
        (0.9, 0.6, 0.5),
        {"patience": 2, "min_epochs": 0, "epochs": 3},
        (4, 0.9, 12, "patience", None),
    ),
    "the earlier of two ties": ((0.2, 0.6, 0.6), {}, (8, 0.6, 12, "epochs", None)),
    "the later of two ties": ((0.2, 0.6, 0.6), {"ties": "later"}, (12, 0.6, 12, "epochs", None)),
    "a phase without an improvement": (
        (0.2, 0.6, 0.5, 0.4, 0.3, 0.1),
        {**FINAL, "final_patience": 2},
        (6, 0.6, 12, "epochs", "patience"),
    ),
    "later ties do not keep a phase without an improvement": (
        (0.2, 0.6, 0.6, 0.6, 0.6, 0.6),
        {**FINAL, "ties": "later"},
        (6, 0.6, 16, "epochs", "patience"),
    ),
    "later ties of a phase with an improvement": (
        (0.2, 0.6, 0.7, 0.7, 0.6, 0.5),
        {**FINAL, "ties": "later"},
        (12, 0.7, 18, "epochs", "epochs"),
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_which_checkpoint_is_kept_and_why_a_run_ends(config, monkeypatch, name):
    accuracies, settings, (step, value, steps, *ended) = ENDINGS[name]
    helpers.fake_dev_accuracies(monkeypatch, *accuracies)
    results = train(config(**PLAIN | settings))
    assert results.best == BestCheckpoint(step, step / 6, "accuracy", value)
    assert results.steps == steps
    assert [results.stopped, results.final_stopped] == ended
    assert RunResults.load(results.folder) == results


def test_a_degenerate_run_is_reported(config, dataset, tmp_path):
    skewed = tmp_path / "skewed"
    shutil.copytree(dataset, skewed)
    rows = helpers.read_lines(skewed / "train.jsonl")
    rows[3:] = [row | {"label": "background"} for row in rows[3:]]
    helpers.write_splits(skewed, train=rows)
    results = train(config(dataset=str(skewed), learning_rate=1e-2, weights="fixed"))
    assert results.degenerate == "background"
    (warning,) = results.warnings()
    assert "predicts 'background' for every dev example" in warning
    assert warning in (results.folder / "model" / "README.md").read_text()
    assert RunResults.load(results.folder).warnings() == [warning]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_attention_is_differentiated_in_single_precision(config, precision, monkeypatch):
    types = set()
    ordinary = torch.nn.functional.scaled_dot_product_attention

    def attention(query, *arguments, **settings):
        if query.requires_grad:
            types.add(query.dtype)
        return ordinary(query, *arguments, **settings)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    helpers.kill_before_step(3, config(precision=precision, attention_dropout=0.0))
    assert types == {torch.float32}
