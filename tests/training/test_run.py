"""Whole runs on a small data set: the run folder, resuming, early stopping."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
import torch

from auxlearn import train
from auxlearn.core.errors import (
    ConfigError,
    DataError,
    Interrupted,
    RunError,
    TrainingDiverged,
    UserError,
)
from auxlearn.results.record import BestCheckpoint, RunResults
from auxlearn.tasks.l3mask import L3Mask
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.validation import ValidationObjective
from tests import helpers

#: Settings of a run without an auxiliary task, for what does not depend on one.
PLAIN = {"aux": [], "weights": "fixed"}


@pytest.fixture(scope="module")
def uninterrupted(settings, tmp_path_factory):
    """A finished run with the settings of ``config``."""
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
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "eval"] == [4, 8, 12]
    assert results.environment.peak_memory_mb > 50
    assert results.environment.peak_gpu_memory_mb is None


def test_a_finished_run_returns_its_results_without_training(uninterrupted, config, monkeypatch):
    helpers.stop_before_step(monkeypatch, 0, AssertionError("it trained again"))
    assert train(config(output=str(uninterrupted.folder))) == uninterrupted


def test_two_runs_agree_to_the_last_digit(uninterrupted, config):
    again = train(config())
    assert again.evaluations == uninterrupted.evaluations
    assert again.weights == uninterrupted.weights
    metrics = [(one.folder / "metrics.jsonl").read_bytes() for one in (again, uninterrupted)]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize(
    "steps", [4, 7, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (1, 11))]
)
def test_a_killed_run_resumes_to_the_results_of_an_uninterrupted_one(
    uninterrupted, config, monkeypatch, steps
):
    with monkeypatch.context() as patch:
        helpers.stop_before_step(patch, steps)
        with pytest.raises(SystemExit):
            train(config())
    resumed = train(config())
    expected, found = uninterrupted.reproducible(), resumed.reproducible()
    expected["config"].pop("output"), found["config"].pop("output")
    assert found == expected
    metrics = [(one.folder / "metrics.jsonl").read_bytes() for one in (resumed, uninterrupted)]
    assert metrics[0] == metrics[1]


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


def test_another_configuration_does_not_touch_the_folder(uninterrupted, config):
    before = (uninterrupted.folder / "results.json").read_bytes()
    with pytest.raises(RunError, match="holds the run of another configuration"):
        train(config(seed=1, output=str(uninterrupted.folder)))
    assert (uninterrupted.folder / "results.json").read_bytes() == before


def test_a_folder_with_other_files_is_refused(config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match="is not empty and is not a run folder"):
        train(config())
    assert os.listdir(tmp_path / "run") == ["thesis.tex"]


def test_changed_data_are_noticed_on_resuming(config, monkeypatch, dataset, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    settings = config(dataset=str(copy))
    with monkeypatch.context() as patch:
        helpers.stop_before_step(patch, 5)
        with pytest.raises(SystemExit):
            train(settings)
    with (copy / "train.jsonl").open("a") as file:
        file.write(json.dumps({"text": "one more", "label": helpers.LABELS[0]}) + "\n")
    with pytest.raises(
        RunError, match=r"cannot be resumed, as the data set \(train\) has changed since it began"
    ):
        train(settings)


def test_a_full_disk_is_one_line_and_the_run_resumes_later(uninterrupted, config, monkeypatch):
    real = os.fsync
    writes = []

    def fsync(handle):
        writes.append(handle)
        if len(writes) == 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(UserError, match=r"cannot write .* \(No space left on device\): free"):
            train(config())
    assert train(config()).evaluations == uninterrupted.evaluations


def test_no_folder_is_made_before_the_settings_are_checked(config, tmp_path):
    with pytest.raises(ConfigError, match=r"alpha 1.5 is outside \(0, 1\)"):
        train(config(weights={"fixed": {"alpha": 1.5}}))
    with pytest.raises(ConfigError, match="unknown auxiliary task 'l3msk': did you mean 'l3mask'"):
        train(config(aux=["l3msk"]))
    with pytest.raises(DataError):
        train(config(dataset=str(tmp_path / "nowhere")))
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_requested_but_unavailable(config):
    with pytest.raises(ConfigError, match="CUDA is not available"):
        train(config(device="cuda"))


def test_validation_examples_held_out_of_train_are_not_trained_on(config, monkeypatch):
    seen = {}
    real = TrainingLoop.run

    def run(self):
        seen["train"] = self.training_step.primary.texts
        seen["validation"] = self.training_step.validation.texts
        return real(self)

    monkeypatch.setattr(TrainingLoop, "run", run)
    train(config(weights={"meta": {"horizon": "steps", "split": "train:0.2"}}, metric="macro_f1"))
    assert len(seen["train"]) + len(seen["validation"]) == 48
    assert 7 <= len(seen["validation"]) <= 12

    def texts(tokens):
        return {tuple(part.tolist()) for part in tokens.input_ids.split(tokens.lengths.tolist())}

    assert not texts(seen["train"]) & texts(seen["validation"])


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


def test_patience_ends_a_run_and_the_best_checkpoint_is_exported(config, monkeypatch):
    helpers.fake_dev_accuracies(monkeypatch, 0.2, 0.9, 0.5, 0.4, 0.3)
    results = train(config(patience=2, epochs=3, min_epochs=0, **PLAIN))
    assert results.best == BestCheckpoint(8, 8 / 6, "accuracy", 0.9)
    assert results.stopped == "patience"
    assert results.steps == 16


def test_patience_waits_for_the_dev_metric_to_leave_the_majority_baseline(config, monkeypatch):
    # A third of the dev examples belong to the majority class of train.
    helpers.fake_dev_accuracies(monkeypatch, 1 / 3, 1 / 3, 1 / 3, 0.2, 0.5, 0.4, 0.4)
    results = train(config(patience=2, epochs=10, eval_steps=6, min_epochs=0, **PLAIN))
    assert results.best.value == 0.5
    assert results.stopped == "patience"
    assert results.steps == 7 * 6


def test_a_run_that_never_leaves_the_majority_baseline_uses_all_epochs(config, monkeypatch):
    helpers.fake_dev_accuracies(monkeypatch, *[1 / 3] * 5)
    results = train(config(patience=2, epochs=5, eval_steps=6, min_epochs=0, **PLAIN))
    assert (results.steps, results.stopped) == (30, "epochs")


def test_early_stopping_does_not_count_within_the_first_epochs(config, monkeypatch):
    helpers.fake_dev_accuracies(monkeypatch, 0.9, *[0.5] * 9)
    results = train(config(patience=2, epochs=10, eval_steps=6, min_epochs=4, **PLAIN))
    # The evaluations after epochs 4 and 5 are the first two that count.
    assert (results.steps, results.stopped) == (5 * 6, "patience")


def test_a_degenerate_run_is_reported(config, dataset, tmp_path):
    skewed = tmp_path / "skewed"
    shutil.copytree(dataset, skewed)
    rows = [json.loads(line) for line in (skewed / "train.jsonl").read_text().splitlines()]
    for row in rows[3:]:
        row["label"] = "background"
    (skewed / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = train(config(dataset=str(skewed), learning_rate=1e-2, weights="fixed"))
    assert results.degenerate == "background"
    (warning,) = results.warnings()
    assert "predicts 'background' for every dev example" in warning
    assert warning in (Path(results.config["output"]) / "model" / "README.md").read_text()
    assert RunResults.load(Path(results.config["output"])).warnings() == [warning]


def test_precisions_can_follow_each_other_in_one_process(config, tmp_path):
    first = train(config(output=str(tmp_path / "a"), precision="bf16", epochs=1))
    second = train(config(output=str(tmp_path / "b"), epochs=1))
    assert first.steps == second.steps == 6


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_attention_is_differentiated_in_single_precision(config, precision, monkeypatch):
    types = set()
    ordinary = torch.nn.functional.scaled_dot_product_attention

    def attention(query, *arguments, **settings):
        if query.requires_grad:
            types.add(query.dtype)
        return ordinary(query, *arguments, **settings)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    train(config(precision=precision, attention_dropout=0.0, epochs=1))
    assert types == {torch.float32}
