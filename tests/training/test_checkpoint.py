"""Checkpoints: complete or absent, and restored in full."""

from __future__ import annotations

import json

import pytest
import torch

from auxlearn.core import files
from auxlearn.core.errors import RunError
from auxlearn.training.checkpoint import (
    CheckpointFolder,
    TrainingState,
    load_optimizer_tensors,
    optimizer_tensors,
    write_tensors,
)
from tests.helpers import snapshot

TENSORS = {
    "encoder": {"a.weight": torch.ones(2, 3), "a.bias": torch.zeros(2)},
    "optimizer": {"0/step": torch.tensor(3.0)},
    "weighting": {},
}


def state_at(step, best=-1):
    return TrainingState(
        step=step,
        best_step=best,
        best_value=0.5 if best >= 0 else float("-inf"),
        evaluations_since_best=2,
        seconds=1.5,
        pending_metrics=[(step, {"primary": 0.25})],
    )


def same(found, expected):
    assert found.keys() == expected.keys()
    for group, tensors in expected.items():
        assert found[group].keys() == tensors.keys()
        assert all(torch.equal(found[group][name], tensor) for name, tensor in tensors.items())


def test_a_checkpoint_is_loaded_as_it_was_saved(tmp_path):
    folder = CheckpointFolder(tmp_path / "checkpoint")
    assert folder.load() is None
    folder.save_best(1, TENSORS["encoder"])
    folder.save(state_at(4, best=1), TENSORS)
    found, tensors = folder.load()
    assert found.step == 4
    assert (found.best_step, found.best_value, found.evaluations_since_best) == (1, 0.5, 2)
    assert found.seconds == 1.5
    assert [(step, losses) for step, losses in found.pending_metrics] == [(4, {"primary": 0.25})]
    same(tensors, TENSORS)
    same({"best": folder.load_best(1)}, {"best": TENSORS["encoder"]})


def test_a_run_without_an_evaluation_yet(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save(TrainingState(step=1), TENSORS)
    found, _ = folder.load()
    assert found.best_value == float("-inf")
    assert found == TrainingState(step=1)


def test_only_the_latest_and_the_best_are_kept(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step, best in [(1, 1), (2, 1), (3, 3)]:
        if step == best:
            folder.save_best(step, {"x": torch.tensor(float(step))})
        folder.save(state_at(step, best), TENSORS)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["best-00000003.safetensors", "latest.json", "step-00000003"]
    folder.delete()
    assert not tmp_path.exists()
    folder.delete()


def test_a_kill_while_writing_leaves_the_previous_checkpoint(tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path)
    folder.save(state_at(1), TENSORS)
    later = {**TENSORS, "encoder": {"a.weight": torch.full((2, 3), 7.0)}}
    writes = files.os.replace
    for allowed in range(len(TENSORS) + 1):  # the pointer is the last
        left = [allowed]

        def limited(source, target, left=left):
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            writes(source, target)

        monkeypatch.setattr(files.os, "replace", limited)
        with pytest.raises(KeyboardInterrupt):
            folder.save(state_at(2), later)
        monkeypatch.undo()
        found, tensors = folder.load()
        assert found.step == 1
        same(tensors, TENSORS)
    folder.save(state_at(2), later)
    found, tensors = folder.load()
    assert found.step == 2
    same(tensors, later)


def damage(folder, what):
    latest = folder / "latest.json"
    weights = folder / "step-00000004" / "encoder.safetensors"
    if what == "pointer":
        latest.write_text("{")
    elif what == "pointer to nothing":
        content = json.loads(latest.read_text())
        latest.write_text(json.dumps({**content, "folder": "step-00000099"}))
    elif what == "other keys":
        content = json.loads(latest.read_text())
        latest.write_text(json.dumps({**content, "state": {"steps": 4}}))
    elif what == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif what == "empty":
        weights.write_bytes(b"")
    elif what == "missing":
        weights.unlink()


@pytest.mark.parametrize(
    "what", ["pointer", "pointer to nothing", "other keys", "truncated", "empty", "missing"]
)
def test_a_damaged_checkpoint_is_one_line(tmp_path, what):
    folder = CheckpointFolder(tmp_path)
    folder.save(state_at(4), TENSORS)
    damage(tmp_path, what)
    with pytest.raises(RunError, match="is damaged") as caught:
        folder.load()
    assert "delete that folder to start the run again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_encoder_is_restored(tiny_bert, tmp_path):
    before = snapshot(tiny_bert)
    folder = CheckpointFolder(tmp_path)
    folder.save(state_at(1), {"encoder": tiny_bert.tensors()})
    with torch.no_grad():
        for parameter in tiny_bert.parameters():
            parameter.add_(1.0)
    _, tensors = folder.load()
    tiny_bert.load_tensors(tensors["encoder"])
    same({"encoder": snapshot(tiny_bert)}, {"encoder": before})


def optimizers():
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(3, 2, generator=generator), torch.randn(4, generator=generator)]
    parameters.append(torch.zeros(2))  # never has a gradient

    def adamw(params):
        return torch.optim.AdamW(
            [{"params": params[:1], "weight_decay": 0.1}, {"params": params[1:]}]
        )

    def sgd(params):
        return torch.optim.SGD(params, lr=0.1, momentum=0.9)

    def plain(params):
        return torch.optim.SGD(params, lr=0.1)

    return parameters, {"adamw": adamw, "sgd": sgd, "plain": plain}


@pytest.mark.parametrize("kind", ["adamw", "sgd", "plain"])
@pytest.mark.parametrize("stopped", [0, 4])
def test_a_resumed_optimizer_continues_as_if_never_interrupted(tmp_path, kind, stopped):
    start, kinds = optimizers()

    def step(params, optimizer, number):
        for index, parameter in enumerate(params[:2]):
            generator = torch.Generator().manual_seed(10 * number + index)
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()

    params = [p.clone().requires_grad_() for p in start]
    optimizer = kinds[kind](params)
    for number in range(8):
        if number == stopped:
            write_tensors(tmp_path / "optimizer.safetensors", optimizer_tensors(optimizer))
            from safetensors.torch import load_file

            saved = load_file(tmp_path / "optimizer.safetensors")
            resumed = [p.detach().clone().requires_grad_() for p in params]
            other = kinds[kind](resumed)
            load_optimizer_tensors(other, saved)
        step(params, optimizer, number)
    for number in range(stopped, 8):
        step(resumed, other, number)
    for one, two in zip(params, resumed, strict=True):
        assert torch.equal(one, two)
