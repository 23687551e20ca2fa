"""An auxiliary task without evidence leaves a run as the primary task alone makes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

from auxlearn import train


@pytest.mark.parametrize("task", ["random_mlm", "mask_tuning"])
def test_a_run_below_the_gate_ends_with_the_very_model_of_single_task_training(
    config, tmp_path, task
):
    """In all phases: before the weights are learned, while they are, and afterwards."""
    alone = train(config(aux=[], weights="fixed", output=str(tmp_path / "alone")))
    weights = {"meta": {"horizon": "steps", "warmup_steps": 1, "learn_share": 0.5, "gate": 0.9}}
    gated = train(config(aux=[task], weights=weights, output=str(tmp_path / "gated")))
    assert gated.weights == {"primary": 1.0, task: 0.0}
    assert any(warning.startswith(f"{task}: not applied; ") for warning in gated.warnings())
    assert gated.evaluations == alone.evaluations
    (first, second) = (_tensors(tmp_path / name) for name in ("alone", "gated"))
    assert first.keys() <= second.keys()
    assert all(first[name].equal(second[name]) for name in first)

    applied = {"meta": {"horizon": "steps", "warmup_steps": 1, "learn_share": 0.5, "gate": 0}}
    other = train(config(aux=[task], weights=applied, output=str(tmp_path / "open")))
    assert other.weights[task] > 0
    assert not any("not applied" in warning for warning in other.warnings())
    third = _tensors(tmp_path / "open")
    assert not all(first[name].equal(third[name]) for name in first)


def _tensors(run: Path):
    return load_file(run / "model" / "model.safetensors")
