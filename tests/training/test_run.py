"""Whole runs on a small data set: run folder, resuming, early stopping, gates, frozen parts."""

from __future__ import annotations

import os
import shutil
import signal
from itertools import count

import pytest
import torch
from safetensors.torch import load_file

from auxlearn import report, train
from auxlearn.core.errors import ConfigError, Interrupted, TrainingDiverged
from auxlearn.core.registry import TASKS
from auxlearn.encoders.load import load_encoder
from auxlearn.results.record import BestCheckpoint, RunResults
from auxlearn.tasks.l3mask import L3Mask
from auxlearn.training.loop import TrainingLoop
from tests import helpers

#: Settings of a run without an auxiliary task, for what does not depend on one.
PLAIN = {"aux": [], "weights": "fixed"}


@pytest.fixture(scope="module")
def uninterrupted(settings, tmp_path_factory, without_plots):
    """A whole run, plots included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("auxlearn.results.plots.plot_run", without_plots)
        return train(settings(output=str(tmp_path_factory.mktemp("uninterrupted") / "run")))


def test_a_run_leaves_a_complete_folder(uninterrupted):
    results, folder = uninterrupted, uninterrupted.folder
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
    messages = helpers.Messages()
    assert train(config(output=str(uninterrupted.folder)), messages, jobs=2) == uninterrupted
    assert messages.lines[0] == "jobs has no effect: one run is trained, in this process"
    helpers.forbid_writing(monkeypatch)
    assert train(config(output=str(uninterrupted.folder))) == uninterrupted


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
    resumed = train(config())
    assert resumed.reproducible() == uninterrupted.reproducible()
    helpers.assert_same_files(resumed.folder, uninterrupted.folder)


def test_a_nan_loss_is_reported_with_step_objective_and_learning_rate(
    config, monkeypatch, tmp_path
):
    real, calls = L3Mask.loss, count(1)

    def loss(self, encoder, batch, generator):
        return real(self, encoder, batch, generator) * (torch.nan if next(calls) == 5 else 1.0)

    monkeypatch.setattr(L3Mask, "loss", loss)
    for norm, advice in {1.0: "a smaller max_grad_norm", 0.0: "max_grad_norm 1"}.items():
        calls = count(1)
        message = "the loss of 'l3mask' became nan at step 5, learning rate "
        with helpers.one_line(TrainingDiverged, message, f"learning_rate or {advice}"):
            train(config(max_grad_norm=norm, output=str(tmp_path / str(norm))))


def test_validation_examples_held_out_of_train_are_not_trained_on(config):
    weights = {"meta": {"horizon": "steps", "split": "train:0.2"}}
    step = helpers.first_step(config(weights=weights, metric="macro_f1"))
    train, held = step.primary.texts, step.validation.texts
    assert len(train) + len(held) == 48
    assert 7 <= len(held) <= 12

    def texts(tokens):
        return {tuple(part.tolist()) for part in tokens.input_ids.split(tokens.lengths.tolist())}

    assert not texts(train) & texts(held)


EPOCHS = {"eval_steps": 6, "min_epochs": 0}
#: Two further epochs on the primary task alone, after one of six steps.
FINAL = {"epochs": 1, "final_epochs": 2, "final_learning_rate": 1e-3, "aux": ["l3mask"]}
#: Dev accuracies, settings; the step and accuracy of the best checkpoint, the number of steps, and
#: why the run, and its primary-only phase, ended. A third of dev is of the majority class of train.
ENDINGS = {
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
def test_which_checkpoint_is_kept_and_why_a_run_ends(config, one_layer, monkeypatch, name):
    accuracies, settings, (step, value, steps, *ended) = ENDINGS[name]
    values = iter(accuracies)
    monkeypatch.setattr(
        "auxlearn.evaluation.evaluator.Evaluator.dev_metrics",
        lambda self, surrogate: {"accuracy": next(values), "macro_f1": 0.0, "loss": 0.0},
    )
    results = train(config(**PLAIN | {"encoder": str(one_layer), "keep_model": False} | settings))
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
    assert results.degenerate == "predicts 'background' for every example"
    (warning,) = results.warnings()
    assert "learned nothing: on dev the best checkpoint predicts 'background' for" in warning
    assert warning in (results.folder / "model" / "README.md").read_text()
    assert RunResults.load(results.folder).warnings() == [warning]


def test_attention_is_differentiated_in_single_precision(config, monkeypatch):
    types = set()
    ordinary = torch.nn.functional.scaled_dot_product_attention

    def attention(query, *arguments, **settings):
        if query.requires_grad:
            types.add(query.dtype)
        return ordinary(query, *arguments, **settings)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    helpers.kill_before_step(3, config(precision="bf16", attention_dropout=0.0))
    assert types == {torch.float32}


#: Weights are learned in the first half of the steps; no evidence can raise one to the gate.
GATED = {"horizon": "steps", "warmup_steps": 1, "learn_share": 0.5, "gate": 0.9, "floor": 0}


def test_a_run_below_the_gate_is_single_task_training_and_a_closed_gate_costs_nothing(
    config, tmp_path, monkeypatch
):
    """The same model, whatever is learned meanwhile; then no loss of the task, and no moments and
    averages in checkpoints. A run resumes without them.
    """
    task = "mask_tuning"
    cls, steps = TASKS.get(task), []
    run, killed = tmp_path / "run", tmp_path / "killed"
    made = helpers.copy_before_step(monkeypatch, 9, killed)  # a checkpoint is made after eight
    loss = cls.loss

    def noted(self, *given):
        steps.append(made[-1])
        return loss(self, *given)

    monkeypatch.setattr(cls, "loss", noted)
    settings = config(aux=[task], weights={"meta": GATED})
    whole = train(settings)
    assert whole.steps == 12
    assert steps == list(range(6))
    rows = helpers.read_lines(run / "metrics.jsonl")
    trained = {row["step"]: row for row in rows if row["kind"] == "train"}
    computed = {number: f"loss/{task}" in row for number, row in trained.items()}
    assert computed == {4: True, 8: True, 10: False, 12: False}
    assert all("loss/primary" in row for row in trained.values())
    assert report(run).exists()

    alone = train(config(aux=[], weights="fixed", output=str(tmp_path / "alone")))
    assert whole.weights == {"primary": 1.0, task: 0.0}
    assert any(warning.startswith(f"{task}: not applied in ") for warning in whole.warnings())
    assert whole.evaluations == alone.evaluations
    first, second = (load_file(run.folder / "model/model.safetensors") for run in (alone, whole))
    assert first.keys() <= second.keys()
    assert all(first[name].equal(second[name]) for name in first)

    (folder,) = (killed / "checkpoint").glob("step-*")
    state = load_file(folder / "weighting.safetensors")
    assert "logits" in state
    # neither moments nor moving averages
    assert not [name for name in state if "exp_avg" in name or name.endswith("count")]

    run.rename(tmp_path / "whole")
    killed.rename(run)
    resumed = train(settings)
    assert made[-4:] == [8, 9, 10, 11]
    assert steps == list(range(6))
    assert resumed.reproducible() == whole.reproducible()
    helpers.assert_same_files(run, tmp_path / "whole")


UNROLLED = {"meta": {"horizon": "steps", "unroll": 2, "mix": "gradients", "warmup_steps": 0}}
#: The conformance tests have steps of every weighting with frozen parts and with adapters.
PARTS = [({"freeze": "1"}, UNROLLED), ({"lora_rank": 2}, "fixed")]


@pytest.mark.parametrize(("part", "weights"), PARTS, ids=str)
def test_what_is_frozen_stays_as_pretrained(config, tmp_path, part, weights):
    one = config(weights=weights, epochs=1, **part)
    results = train(one)
    before = load_encoder(one.encoder, helpers.LABELS).classifier.state_dict()
    after = load_file(tmp_path / "run" / "model" / "model.safetensors")
    same = {name for name in after if torch.equal(after[name], before[name])}
    layer = ".0." if "freeze" in part else "word_embeddings"
    frozen = {name for name in after if layer in name or "embeddings" in name}
    assert frozen
    assert frozen <= same
    assert any(".1." in name and name not in same for name in after)
    assert results.steps == 6


def test_objectives_that_compare_dropout_need_some(config, encoder_folder, tmp_path):
    without = helpers.copy_without_dropout(encoder_folder("bert"), tmp_path / "still")
    given = {"aux": [], "loss": "r_drop", "weights": "fixed", "epochs": 1}
    with pytest.raises(ConfigError, match=r"^r_drop compares passes .* are 0: "):
        train(config(encoder=without, **given))
    adapted = {"lora_rank": 2, "lora_dropout": 0.1}
    train(config(encoder=without, output=str(tmp_path / "lora"), **given, **adapted))
