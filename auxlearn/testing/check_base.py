"""What the checks of tasks, losses and weightings share.

Each check is a method that returns a sentence about what it has found, or raises; the message of
the exception is the detail of a failed check.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from auxlearn.core.config import RunConfig
from auxlearn.core.progress import Reporter
from auxlearn.core.registry import LOSSES, WEIGHTINGS, Registry
from auxlearn.encoders.load import save_untrained
from auxlearn.kinds.base import Kind
from auxlearn.testing.tiny_run import (
    BATCH_SIZE,
    STEPS,
    Choice,
    Circumstances,
    Objectives,
    TinyRun,
    build,
    kind_for,
    write_dataset,
)
from auxlearn.training.train import train

CPU = torch.device("cpu")

#: Largest relative difference between the losses of two devices, whose rounding is not the same.
DEVICE_TOLERANCE = 1e-3


#: The checks of objectives and weightings alike.
SHARED = ("seed", "checkpoint", "resume", "accumulation", "device")


class Checks(ABC):
    """What the checks of objectives and weightings share: each is a method ``check_NAME``."""

    #: Names of the checks in their order.
    ALL: ClassVar[tuple[str, ...]]

    def __init__(
        self, registry: Registry, choice: Choice, folder: Path, device: torch.device = CPU
    ) -> None:
        cls, options = choice
        self.cls = registry.get(cls) if isinstance(cls, str) else cls
        self.registry = registry
        self.options = options
        self.choice: Choice = (self.cls, options)
        self.name = getattr(self.cls, "name", self.cls.__name__)
        self.folder = folder
        self.device = device

    def tiny(self, objectives: Objectives | None = None, **changes: Any) -> TinyRun:
        """Return a run with the plug-in, or some objectives, and changed circumstances."""
        circumstances = Circumstances(self.folder / "cache", **changes)
        return TinyRun(objectives or self.objectives(), circumstances)

    def check_options(self) -> str:
        """The plug-in is built, and each of its options has a description."""
        arguments = [("primary", "other")] if self.is_weighting else []
        build(self.registry, self.choice, *arguments)
        fields = self.cls.Options.model_fields
        bare = [name for name, field in fields.items() if not field.description]
        assert not bare, f"options without a description: {', '.join(bare)}"
        return ", ".join(fields) or "none"

    @property
    def is_weighting(self) -> bool:
        return self.registry is WEIGHTINGS

    @abstractmethod
    def objectives(self) -> Objectives:
        """Return what the runs of the checks are trained with."""

    @abstractmethod
    def cost(self) -> str:
        """Return what the plug-in costs, one line."""

    def check_seed(self) -> str:
        """Two runs with one seed are equal in every digit."""
        first, second = (self.tiny(seed=1) for _ in range(2))
        assert first.train() == second.train(), "two runs with one seed have other losses"
        require_equal(first.tensors(), second.tensors(), "two runs with one seed")
        return f"{STEPS} steps, every digit equal"

    def check_checkpoint(self) -> str:
        """Restore a checkpoint into a new run, as a resumed process does."""
        whole = self.tiny()
        whole.train(0, STEPS - 1)
        checkpoint = whole.tensors()
        whole.train(STEPS - 1, STEPS)
        resumed = self.tiny()
        resumed.load(checkpoint)
        resumed.train(STEPS - 1, STEPS)
        require_equal(whole.tensors(), resumed.tensors(), "a resumed and an uninterrupted run")
        return "checkpoint restored, every digit equal"

    def check_resume(self) -> str:
        """Kill a whole run between two checkpoints, resume it, and compare its files."""
        if self.is_weighting and build(self.registry, self.choice, ("primary", "other")).branches:
            return "none: it compares runs of its own, which have fixed weights"
        kind = kind_for(build(LOSSES, self.objectives().loss))
        write_dataset(self.folder / "data", kind)
        save_untrained(self.folder / "encoder")
        whole, killed = self.folder / "whole", self.folder / "killed"
        train(self.config(kind, whole), verbose=False)
        try:
            train(self.config(kind, killed), _Killer(STEPS))
        except _Killed:
            train(self.config(kind, killed), verbose=False)
        else:
            raise AssertionError("the run was not interrupted")
        compared = [p for p in sorted(whole.rglob("*")) if p.suffix in (".safetensors", ".jsonl")]
        for place in (path.relative_to(whole) for path in compared):
            same = (whole / place).read_bytes() == (killed / place).read_bytes()
            assert same, f"{place} differs"
        assert len(compared) >= 2, "a run has left no files to compare"
        return f"killed at step {STEPS}, {len(compared)} files byte-equal"

    def config(self, kind: Kind, output: Path) -> RunConfig:
        """Return the configuration of a whole run with the plug-in."""
        objectives = self.objectives()
        tasks, loss, weighting = (
            [{cls if isinstance(cls, str) else cls.name: dict(options)} for cls, options in choices]
            for choices in (objectives.tasks, [objectives.loss], [objectives.weighting])
        )
        return RunConfig.model_validate(
            {
                "dataset": str(self.folder / "data"),
                "kind": kind.name,
                "encoder": str(self.folder / "encoder"),
                "aux": tasks,
                "loss": loss[0],
                "weights": weighting[0],
                "epochs": 1,
                "batch_size": BATCH_SIZE,
                "eval_steps": 2,
                "learning_rate": 1e-3,
                "device": "cpu",
                "output": str(output),
                "cache_dir": str(self.folder / "cache"),
            }
        )

    def check_accumulation(self) -> str:
        """Losses are finite when gradients are accumulated."""
        require_finite(self.tiny(gradient_accumulation_steps=2).train())
        return "2 micro-batches per step"

    def check_device(self) -> str:
        """Without dropout, the losses of some steps are those of the CPU."""
        here, there = (
            self.tiny(dropout=False, device=device).train() for device in (CPU, self.device)
        )
        for number, (losses, other) in enumerate(zip(here, there, strict=True), 1):
            for name, loss in losses.items():
                assert abs(loss - other[name]) <= DEVICE_TOLERANCE * max(1.0, abs(loss)), (
                    f"the loss of '{name}' at step {number} is {loss} on the CPU, {other[name]} "
                    f"on {self.device}"
                )
        return f"losses on {self.device} equal to those on the CPU"


class _Killed(Exception):
    """A run was killed on purpose."""


class _Killer(Reporter):
    """Interrupts a run after some optimizer steps, without a checkpoint."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            if title == "training" and done >= self._steps:
                raise _Killed

        yield advance


def require_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor], what: str) -> None:
    """Raise ``AssertionError`` unless both hold the same names and equal tensors."""
    assert first.keys() == second.keys(), f"{what} hold other tensors"
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different, f"{what} differ in {', '.join(different[:3])}"


def require_finite(steps: list[dict[str, float]]) -> None:
    """Raise ``AssertionError`` unless every loss of every step is finite."""
    for number, losses in enumerate(steps, 1):
        for name, loss in losses.items():
            assert math.isfinite(loss), f"the loss of '{name}' is {loss} at step {number}"


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str  # what was checked
    passed: bool | None  # whether it holds; None for a measurement, which cannot fail
    detail: str = ""  # what was found, one line


@dataclass
class Report:
    """The results of all checks of a plug-in, in the order in which they were made."""

    plugin: str  # its kind and name
    checks: list[Check] = field(default_factory=list)

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.passed is False]

    def require(self) -> Report:
        """Return this report; an AssertionError lists the checks that do not hold, if any."""
        if self.failed:
            lines = [f"{check.name}: {check.detail}" for check in self.failed]
            raise AssertionError("\n".join([f"{self.plugin} does not pass:", *lines]))
        return self
