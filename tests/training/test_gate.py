"""An auxiliary task without evidence leaves a run as the primary task alone makes it."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file

from auxlearn import report, train
from auxlearn.core.registry import TASKS
from tests import helpers

#: Weights are learned in the first half of the steps; no evidence can raise one to the gate.
GATED = {"horizon": "steps", "warmup_steps": 1, "learn_share": 0.5, "gate": 0.9, "floor": 0}


@pytest.mark.parametrize(
    "task", [pytest.param("random_mlm", marks=pytest.mark.slow), "mask_tuning"]
)
def test_a_run_below_the_gate_ends_with_the_very_model_of_single_task_training(
    config, tmp_path, task
):
    """In all phases: before the weights are learned, while they are, and afterwards."""
    alone = train(config(aux=[], weights="fixed", output=str(tmp_path / "alone")))
    gated = train(config(aux=[task], weights={"meta": GATED}, output=str(tmp_path / "gated")))
    assert gated.weights == {"primary": 1.0, task: 0.0}
    assert any(warning.startswith(f"{task}: not applied; ") for warning in gated.warnings())
    assert gated.evaluations == alone.evaluations
    model = "model/model.safetensors"
    first, second = (load_file(tmp_path / name / model) for name in ("alone", "gated"))
    assert first.keys() <= second.keys()
    assert all(first[name].equal(second[name]) for name in first)

    applied = {"meta": {"horizon": "steps", "warmup_steps": 1, "learn_share": 0.5, "gate": 0}}
    other = train(config(aux=[task], weights=applied, output=str(tmp_path / "open")))
    assert other.weights[task] > 0
    assert not any("not applied" in warning for warning in other.warnings())
    third = load_file(tmp_path / "open" / model)
    assert not all(first[name].equal(third[name]) for name in first)


@pytest.mark.parametrize(
    "task", [pytest.param("random_mlm", marks=pytest.mark.slow), "mask_tuning"]
)
def test_a_closed_gate_costs_nothing(config, tmp_path, monkeypatch, task):
    """No loss of the task, no moments and averages in checkpoints; a run resumes without them."""
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

    (folder,) = (killed / "checkpoint").glob("step-*")
    state = load_file(folder / "weighting.safetensors")
    assert "logits" in state
    # neither moments nor moving averages
    assert {name for name in state if "/" in name} == {"mixture/averages"}

    run.rename(tmp_path / "whole")
    killed.rename(run)
    resumed = train(settings)
    assert made[12:] == [8, 9, 10, 11]
    assert steps == list(range(6))
    assert resumed.reproducible() == whole.reproducible()
    helpers.assert_same_files(run, tmp_path / "whole")
