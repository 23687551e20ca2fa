"""State of a rule that is no fixed set of buffers: it comes as training goes on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class State(nn.Module):
    """A part of a rule that says itself which tensors a checkpoint has of it.

    Checkpoints hold tensors alone, without pickle: nested state has names such as ``0/exp_avg``.
    """

    @abstractmethod
    def tensors(self) -> Mapping[str, Tensor]:
        """Return what a resumed run needs, by name; names have no dot."""

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what :meth:`tensors` returned; the tensors are copies, on the CPU."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, tensor in self.tensors().items():
            destination[f"{prefix}{name}"] = tensor.detach()

    def _load_from_state_dict(self, state: Mapping[str, Tensor], prefix: str, *_: Any) -> None:
        names = [name for name in state if name.startswith(prefix)]
        self.restore({name.removeprefix(prefix): state[name].clone() for name in names})


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer as named tensors, which can be stored without pickle."""
    return {
        f"{number}/{key}": torch.as_tensor(value)
        for number, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore what :func:`optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, key = name.partition("/")
        state.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


class OptimizerState(State):
    """What the optimizer of a rule's own tensors keeps of them: ``TENSOR/KEY``."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self._optimizer = optimizer

    def tensors(self) -> dict[str, Tensor]:
        return optimizer_tensors(self._optimizer)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        restore_optimizer(self._optimizer, tensors)
