"""Checkpoints for resuming a run.

A checkpoint is a folder of its own, complete before ``latest.json`` points to it; a kill at any
moment therefore leaves the previous checkpoint intact. It holds no generator states: batches,
dropout masks and corruption follow from the seed and the step. On the CPU a resumed run ends with
the same digits as an uninterrupted one; on a GPU it sees the same batches and random numbers, but
rounds differently (:mod:`auxlearn.rng`).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from auxlearn.errors import RunError
from auxlearn.files import write_bytes, write_json


@dataclass
class TrainingState:
    """How far a run is.

    Attributes:
        step: Optimizer steps made.
        best_step: Step of the best dev metric; -1 before the first evaluation.
        best_value: The best dev metric.
        evaluations_since_best: Evaluations without improvement that count towards patience.
        seconds: Wall time of training so far.
        primary_only_from: Step at which the primary-only phase began; -1 before it.
        pending_losses: Steps and losses since the last training entry of ``metrics.jsonl``.
    """

    step: int = 0
    best_step: int = -1
    best_value: float = float("-inf")
    evaluations_since_best: int = 0
    seconds: float = 0.0
    primary_only_from: int = -1
    pending_losses: list[tuple[int, dict[str, float]]] = field(default_factory=list)


class CheckpointFolder:
    """The checkpoints of one run: the latest, and the weights of the best evaluation.

    Args:
        path: ``checkpoint/`` of the run folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pointer = path / "latest.json"

    def save(self, state: TrainingState, tensors: dict[str, dict[str, Tensor]]) -> None:
        """Write a checkpoint and delete the previous one.

        Args:
            state: How far the run is.
            tensors: Groups of tensors: "encoder", "optimizer", and the state of plug-ins.
        """
        folder = self.path / f"step-{state.step:08d}"
        for group, values in tensors.items():
            write_tensors(folder / f"{group}.safetensors", values)
        content = {"folder": folder.name, "groups": list(tensors), "state": asdict(state)}
        write_json(self._pointer, content)
        for other in self.path.glob("step-*"):
            if other != folder:
                shutil.rmtree(other)
        for other in self.path.glob("best-*.safetensors"):
            if other != self.best_path(state.best_step):
                other.unlink()

    @property
    def any(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return self._pointer.is_file()

    def load(self) -> tuple[TrainingState, dict[str, dict[str, Tensor]]] | None:
        """Return the latest checkpoint, or ``None`` if there is none.

        Raises:
            RunError: It is damaged.
        """
        if not self.any:
            return None
        try:
            content = json.loads(self._pointer.read_text(encoding="utf-8"))
            folder = self.path / content["folder"]
            tensors = {
                group: load_file(folder / f"{group}.safetensors") for group in content["groups"]
            }
            return TrainingState(**content["state"]), tensors
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise RunError(
                f"the checkpoint in {self.path} is damaged ({error}): delete that folder to "
                "start the run again"
            ) from None

    def best_path(self, step: int) -> Path:
        """Return the path of the encoder's weights at the best evaluation."""
        return self.path / f"best-{step:08d}.safetensors"

    def delete(self) -> None:
        """Delete all checkpoints, once the run is finished."""
        shutil.rmtree(self.path, ignore_errors=True)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file atomically."""
    write_bytes(path, save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}))


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer as named tensors, which can be stored without pickle."""
    return {
        f"{number}/{key}": torch.as_tensor(value)
        for number, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
        if value is not None
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore what :func:`optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, key = name.split("/", 1)
        state.setdefault(int(number), {})[key] = value
    content = optimizer.state_dict()
    optimizer.load_state_dict({**content, "state": state})
