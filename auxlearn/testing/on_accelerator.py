"""The same optimizer steps on the pretend accelerator, in a process of its own.

The pretend accelerator changes a process for good (:mod:`auxlearn.testing.accelerator`), so it is
installed in a new one, which prints the losses of its steps.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS, Registry, load_plugin
from auxlearn.testing.tiny_run import Choice, Circumstances, Objectives, TinyRun

#: Largest relative difference between the losses of the two devices.
TOLERANCE = 1e-4


def compare(registry: Registry, choice: Choice, objectives: Objectives, folder: Path) -> str:
    """Compare the losses of some steps, without dropout, with those on the CPU.

    Args:
        registry: Kind of the plug-in.
        choice: Its class and options.
        objectives: What is trained.
        folder: A temporary folder.

    Returns:
        What was found, one line.

    Raises:
        AssertionError: The losses differ, or the process fails.
    """
    expected = TinyRun(objectives, Circumstances(folder / "cache", dropout=False)).train()
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(
            {
                "files": _files(objectives),
                "tasks": [_named(one) for one in objectives.tasks],
                "loss": _named(objectives.loss),
                "weighting": _named(objectives.weighting),
                "cache": str(folder / "cache"),
            }
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stderr.strip().splitlines()[-1] if done.stderr else "failed")
    found: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    for number, (one, other) in enumerate(zip(expected, found, strict=True), 1):
        for name, loss in one.items():
            assert abs(loss - other[name]) <= TOLERANCE * max(1.0, abs(loss)), (
                f"the loss of '{name}' at step {number} is {loss} on the CPU, {other[name]} there"
            )
    return "losses equal to those on the CPU"


def _named(choice: Choice) -> tuple[str, dict[str, Any]]:
    cls, options = choice
    return cls if isinstance(cls, str) else cls.name, dict(options)


def _files(objectives: Objectives) -> dict[str, str]:
    """Return the file of each plug-in that is given as a class, by name."""
    classes = [cls for cls, _ in (*objectives.tasks, objectives.loss, objectives.weighting)]
    return {
        cls.name: str(sys.modules[cls.__module__].__file__)
        for cls in classes
        if not isinstance(cls, str)
    }


def main() -> None:
    """Read a request, train on the pretend accelerator, and print the losses of each step."""
    from auxlearn.testing import accelerator

    request = json.load(sys.stdin)
    accelerator.install()
    for registry, choices in (
        (TASKS, request["tasks"]),
        (LOSSES, [request["loss"]]),
        (WEIGHTINGS, [request["weighting"]]),
    ):
        for name, _ in choices:
            try:
                registry.get(name)
            except ConfigError:  # neither built in nor of an installed package
                load_plugin(request["files"][name])
    objectives = Objectives(
        [tuple(one) for one in request["tasks"]],
        tuple(request["loss"]),
        tuple(request["weighting"]),
    )
    circumstances = Circumstances(
        Path(request["cache"]), dropout=False, device=accelerator.device()
    )
    print(json.dumps(TinyRun(objectives, circumstances).train()))


if __name__ == "__main__":
    main()
