"""Checkpoints: complete or absent, and restored in full."""

import pytest
import torch
from safetensors.torch import load_file

from auxlearn.core import files
from auxlearn.core.errors import RunError
from auxlearn.training import checkpoint
from auxlearn.training.checkpoint import CheckpointFolder, TrainingState, write_tensors
from auxlearn.weighting.state import optimizer_tensors
from tests.helpers import generator, one_line

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
    assert found == state_at(4, best=1)
    same(tensors, TENSORS)
    same({"best": folder.load_best(1)}, {"best": TENSORS["encoder"]})
    folder.save(TrainingState(step=1), TENSORS)  # without an evaluation yet
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


def test_a_damaged_checkpoint_is_one_line(tmp_path):
    """Every other damage is among the bad inputs."""
    folder = CheckpointFolder(tmp_path)
    folder.save(state_at(4), TENSORS)
    (tmp_path / "step-00000004" / "encoder.safetensors").write_bytes(b"")
    with one_line(RunError, "is damaged", "delete that folder to start the run again"):
        folder.load()


OPTIMIZERS = {
    "adamw": lambda params: torch.optim.AdamW(
        [{"params": params[:1], "weight_decay": 0.1}, {"params": params[1:]}]
    ),
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "plain": lambda params: torch.optim.SGD(params, lr=0.1),
}


def test_tensors_that_share_their_memory_are_written(tmp_path):
    whole = torch.arange(6.0)
    given = {"a": whole, "b": whole, "part": whole[2:4], "other": torch.ones(2)}
    write_tensors(tmp_path / "x.safetensors", given)
    found = load_file(tmp_path / "x.safetensors")
    assert all(torch.equal(found[name], value) for name, value in given.items())


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("stopped", [0, 4])
def test_a_resumed_optimizer_continues_as_if_never_interrupted(tmp_path, kind, stopped):
    def step(params, optimizer, number):
        for index, parameter in enumerate(params[:2]):  # the third never has a gradient
            parameter.grad = torch.randn(parameter.shape, generator=generator(10 * number + index))
        optimizer.step()

    path = tmp_path / "optimizer.safetensors"
    params = [torch.randn(*shape, generator=generator()) for shape in ((3, 2), (4,), (2,))]
    params = [parameter.requires_grad_() for parameter in params]
    optimizer = OPTIMIZERS[kind](params)
    for number in range(8):
        if number == stopped:
            write_tensors(path, optimizer_tensors(optimizer))
            resumed = [p.detach().clone().requires_grad_() for p in params]
            other = OPTIMIZERS[kind](resumed)
            checkpoint.load_optimizer_tensors(other, load_file(path))
        step(params, optimizer, number)
    for number in range(stopped, 8):
        step(resumed, other, number)
    for one, two in zip(params, resumed, strict=True):
        assert torch.equal(one, two)
