"""What the tests let the process with the pretend accelerator do; see :mod:`.conftest`.

Everything here runs in that process, is given plain values, and returns plain values.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.accelerator import device as pretend

#: Waits of a process that has the device: for each step of a training, and for the rest of it.
Report = dict[str, Any]


def begin() -> None:
    """Make the process what the tests expect: the device is there, and ``auto`` chooses it."""
    torch.set_num_threads(1)
    pretend.install()
    from auxlearn import devices

    devices.default_device = pretend.device


def call(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call a function with warnings as errors, as pytest does in the process of the tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return function(*arguments, **named)


def train(config: dict[str, Any], stop_after: int | None = None) -> Report:
    """Train with the public function.

    Args:
        config: Keys of :class:`auxlearn.RunConfig`; ``device`` is left at ``auto``.
        stop_after: Steps after which the user asks to stop; a later call with the same
            configuration resumes.

    Returns:
        ``results``: the results as JSON values, ``None`` of a run that was stopped; ``steps``:
        the waits of each step, as lists of ``(what, place)``; ``others``: all other waits;
        ``parameters``: kinds of devices that the trained parameters were on.
    """
    from auxlearn import RunConfig
    from auxlearn import train as run
    from auxlearn.analysis import plots
    from auxlearn.errors import Interrupted
    from auxlearn.training.loop import TrainingLoop

    steps: list[list[pretend.Wait]] = []
    where: set[str] = set()
    real = TrainingLoop._step

    def step(loop: TrainingLoop) -> None:
        with pretend.counted() as waits:
            real(loop)
        steps.append(waits)
        where.update(parameter.device.type for parameter in loop.objectives.parameters)
        if loop.progress.step == stop_after:
            signal.raise_signal(signal.SIGTERM)

    results = None
    with pretend.counted() as every, pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", step)
        patch.setattr(plots, "plot_run", lambda *given: [])  # figures take longer than the run
        try:
            results = run(RunConfig.model_validate(config)).figures()
        except Interrupted:
            assert stop_after is not None
    others = list(every)
    for wait in (wait for waits in steps for wait in waits):
        others.remove(wait)
    return {
        "results": results,
        "steps": [[tuple(wait) for wait in waits] for waits in steps],
        "others": [tuple(wait) for wait in others],
        "parameters": sorted(where),
    }
