"""Checkpoints for resuming a run.

A checkpoint is a folder of its own, complete before ``latest.json`` points to it and describes all
files to resume from: tensors, best weights, and the logs as long as they were. It needs no states
of generators, as all random numbers follow from the seed and the step.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from auxlearn.core.errors import RunError
from auxlearn.core.files import (
    Damaged,
    Description,
    describe_bytes,
    read_checked_json,
    tensors_of,
    unusable,
    verify_file,
    write_bytes,
    write_checked_json,
)
from auxlearn.results.record import LOGS
from auxlearn.weighting.state import restore_optimizer

#: Why a phase of training ended: all of its epochs are done, or dev has stopped improving.
EndedBy = Literal["epochs", "patience"]


@dataclass
class TrainingState:
    """How far a run is."""

    step: int = 0  # optimizer steps made
    best_step: int = -1  # step of the best dev metric; -1 before the first evaluation
    best_value: float = float("-inf")
    evaluations_since_best: int = 0  # evaluations without improvement that count towards patience
    seconds: float = 0.0  # wall time of training so far
    primary_only_from: int = -1  # step at which the primary-only phase began; -1 before it
    joint_ended_by: EndedBy | None = None  # that of training with all objectives
    micro_batches: int = 0  # of a step, which random numbers depend on; 0: the configuration's
    # since the last entry
    pending_metrics: list[tuple[int, dict[str, float]]] = field(default_factory=list)


class CheckpointFolder:
    """The latest checkpoint of a ``run`` (settings and inputs), and the best weights; ``check`` is
    called before anything is written.
    """

    def __init__(self, path: Path, run: str = "", check: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self._run, self._check = run, check
        self._pointer = path / "latest.json"
        self._best: Description | None = None

    def save(self, state: TrainingState, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Write a checkpoint and delete the previous one."""
        self._check()
        folder = self._unused_folder(state.step)
        content = {
            "run": self._run,
            "folder": folder.name,
            "groups": {
                group: write_tensors(folder / f"{group}.safetensors", values)
                for group, values in tensors.items()
            },
            "best": self._best if state.best_step >= 0 else None,
            "logs": {name: describe_bytes(log) for name, log in self._logs().items()},
            "state": asdict(state),
        }
        write_checked_json(self._pointer, content)
        for other in self.path.glob("step-*"):
            if other != folder:
                shutil.rmtree(other)
        for other in self.path.glob("best-*.safetensors"):
            if other != self.best_path(state.best_step):
                other.unlink()

    def _unused_folder(self, step: int) -> Path:
        """Return a folder for a checkpoint; the latest one, which may be of this step, is kept."""
        folder = self.path / f"step-{step:08d}"
        with suppress(OSError, ValueError, KeyError):  # damaged, or none yet
            if read_checked_json(self._pointer)["folder"] == folder.name:
                folder = folder.with_name(f"{folder.name}-again")
        shutil.rmtree(folder, ignore_errors=True)  # left by a kill
        return folder

    def _logs(self) -> dict[str, bytes]:
        files = {name: self.path.parent / name for name in LOGS}
        return {name: file.read_bytes() for name, file in files.items() if file.is_file()}

    @property
    def any(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return self._pointer.is_file()

    def micro_batches(self) -> int:
        """Return how many micro-batches the steps so far had; 0 if that is not known."""
        with suppress(OSError, ValueError, KeyError, TypeError):  # damage is said by load
            return int(read_checked_json(self._pointer)["state"]["micro_batches"])
        return 0

    def load(self) -> tuple[TrainingState, dict[str, dict[str, Tensor]]] | None:
        """Return the latest checkpoint, if any, and cut the logs of the run to what they were."""
        if not self.any:
            return None
        try:
            content = read_checked_json(self._pointer, required=True)
            if content["run"] != self._run:
                raise Damaged("it is of another run, with other settings or inputs")
            folder = self.path / content["folder"]
            if folder.parent != self.path:
                raise Damaged("latest.json names a folder elsewhere")
            for group, description in content["groups"].items():
                verify_file(folder / f"{group}.safetensors", description)
            state = TypeAdapter(TrainingState).validate_python(content["state"])
            if (state.best_step >= 0) != (content["best"] is not None):
                raise Damaged("latest.json does not describe the best weights")
            if content["best"] is not None:
                verify_file(self.best_path(state.best_step), content["best"])
            self._best = content["best"]
            logs = self._verified_logs(content["logs"])
            tensors = {
                group: load_file(folder / f"{group}.safetensors") for group in content["groups"]
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise self._damaged(error) from None
        for name, log in logs.items():
            write_bytes(self.path.parent / name, log)
        return state, tensors

    def _verified_logs(self, descriptions: Mapping[str, Description]) -> dict[str, bytes]:
        """Return the logs of the run as they were when the checkpoint was written."""
        present, logs = self._logs(), {}
        for name in {*descriptions, *present}:
            expected = descriptions.get(name, describe_bytes(b""))
            log = present.get(name, b"")[: expected["bytes"]]
            if describe_bytes(log) != expected:
                raise Damaged(f"{name} of the run has changed or is missing")
            logs[name] = log
        return logs

    def _damaged(self, error: Exception) -> RunError:
        advice = "delete that folder to start the run again"
        return RunError(f"the checkpoint in {unusable(self.path, error, advice)}")

    def best_path(self, step: int) -> Path:
        return self.path / f"best-{step:08d}.safetensors"

    def save_best(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Write the weights of the best evaluation so far; :meth:`save` makes them the ones."""
        self._check()
        self._best = write_tensors(self.best_path(step), tensors)

    def load_best(self, step: int) -> dict[str, Tensor]:
        path = self.best_path(step)
        try:
            verify_file(path, self._best or {})
            return load_file(path)
        except (OSError, Damaged, SafetensorError) as error:
            raise self._damaged(error) from None

    def delete(self) -> None:
        """Delete all checkpoints, once the run is finished."""
        shutil.rmtree(self.path, ignore_errors=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Description:
    """Write a safetensors file atomically, and return its description for a manifest."""
    kept = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    places = Counter(value.untyped_storage().data_ptr() for value in kept.values())
    for name, value in kept.items():  # safetensors refuses those that share their memory
        if places[value.untyped_storage().data_ptr()] > 1:
            kept[name] = value.clone()
    content = save(kept)
    write_bytes(path, content)
    return {**describe_bytes(content), "tensors": tensors_of(path)}


def check_tensors(what: str, current: Mapping[str, Tensor], restored: Mapping[str, Tensor]) -> None:
    """Refuse tensors of a checkpoint whose names, shapes or dtypes do not fit."""
    expected = {name: (tensor.shape, tensor.dtype) for name, tensor in current.items()}
    stored = {name: (tensor.shape, tensor.dtype) for name, tensor in restored.items()}
    if differing := sorted({name for name, _ in expected.items() ^ stored.items()}):
        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise _misfit(what, differing[0] + more)


def _misfit(what: str, where: str) -> RunError:
    return RunError(
        f"the checkpoint does not fit {what} ({where}): delete the folder checkpoint of the run to "
        "start it again"
    )


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore what ``optimizer_tensors`` returned, if it is of such an optimizer."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for name, value in tensors.items():
        number = int(name.partition("/")[0])
        shape = parameters[number].shape if number < len(parameters) else None
        if shape is None or (value.dim() and value.shape != shape):
            raise _misfit("the optimizer", name)
    restore_optimizer(optimizer, tensors)
