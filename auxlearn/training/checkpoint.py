"""What an unfinished run goes on from.

A checkpoint is a folder of its own, complete before ``latest.json`` points to it; so a kill at any
moment leaves the one before. No generator states are in it: batches and draws follow from the
seed and the step. A resumed run ends with the digits of one that was not stopped on the CPU; on a
GPU it sees the same batches and draws, but rounds differently (:mod:`auxlearn.rng`).
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
class Progress:
    """How far a run is.

    Attributes:
        step: Updates made.
        best_step: Step of the best dev metric; -1 before the first evaluation.
        best_value: The best dev metric.
        stale: Evaluations since then.
        seconds: Wall time of training so far.
        final_from: Step at which the last stage, on the primary task alone, began; -1 before it.
        pending: Steps and losses since the last row of ``metrics.jsonl``.
    """

    step: int = 0
    best_step: int = -1
    best_value: float = float("-inf")
    stale: int = 0
    seconds: float = 0.0
    final_from: int = -1
    pending: list[tuple[int, dict[str, float]]] = field(default_factory=list)


class CheckpointFolder:
    """The checkpoints of one run: the latest, and the weights of the best evaluation.

    Args:
        path: ``checkpoint/`` of the run folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pointer = path / "latest.json"

    def save(self, progress: Progress, tensors: dict[str, dict[str, Tensor]]) -> None:
        """Write a checkpoint and drop the one before.

        Args:
            progress: How far the run is.
            tensors: Groups of tensors: "encoder", "optimizer", and what plug-ins keep.
        """
        folder = self.path / f"step-{progress.step:08d}"
        for group, values in tensors.items():
            write_tensors(folder / f"{group}.safetensors", values)
        found = {"folder": folder.name, "groups": list(tensors), "progress": asdict(progress)}
        write_json(self._pointer, found)
        for other in self.path.glob("step-*"):
            if other != folder:
                shutil.rmtree(other)
        for other in self.path.glob("best-*.safetensors"):
            if other != self.best_path(progress.best_step):
                other.unlink()

    @property
    def any(self) -> bool:
        """Whether there is one to resume from."""
        return self._pointer.is_file()

    def load(self) -> tuple[Progress, dict[str, dict[str, Tensor]]] | None:
        """Return the latest checkpoint, or ``None`` if there is none.

        Raises:
            RunError: It is damaged.
        """
        if not self.any:
            return None
        try:
            found = json.loads(self._pointer.read_text(encoding="utf-8"))
            folder = self.path / found["folder"]
            tensors = {
                group: load_file(folder / f"{group}.safetensors") for group in found["groups"]
            }
            return Progress(**found["progress"]), tensors
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise RunError(
                f"the checkpoint in {self.path} is damaged ({error}): delete that folder to "
                "start the run anew"
            ) from None

    def best_path(self, step: int) -> Path:
        """Where the encoder of the best evaluation lies."""
        return self.path / f"best-{step:08d}.safetensors"

    def delete(self) -> None:
        """Remove everything, once the run is finished."""
        shutil.rmtree(self.path, ignore_errors=True)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file, whole or not at all."""
    write_bytes(path, save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}))


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer as named tensors, which need no pickle."""
    return {
        f"{number}/{key}": torch.as_tensor(value)
        for number, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
        if value is not None
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Take back what :func:`optimizer_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, key = name.split("/", 1)
        state.setdefault(int(number), {})[key] = value
    whole = optimizer.state_dict()
    optimizer.load_state_dict({**whole, "state": state})
