"""Check a task, a loss or a weighting, and report what was found."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from auxlearn.registry import LOSSES, TASKS, WEIGHTINGS, Registry
from auxlearn.testing.check_lists import ObjectiveChecks, WeightingChecks
from auxlearn.testing.harness import Choice
from auxlearn.testing.report import Check, Report


def check_task(
    cls: Any, options: Mapping[str, Any] | None = None, *, accelerator: bool = False
) -> Report:
    """Check an auxiliary task, with a fixed seed on a tiny model.

    Args:
        cls: The class, or its registered name.
        options: Its options.
        accelerator: Also check it on a pretend accelerator, in a process of its own (some seconds).

    Raises:
        AssertionError: A check does not hold; the message lists those that do not.
    """
    return report(TASKS, (cls, options or {}), accelerator=accelerator).require()


def check_loss(
    cls: Any, options: Mapping[str, Any] | None = None, *, accelerator: bool = False
) -> Report:
    """Check a loss of the primary task; arguments and errors as for :func:`check_task`."""
    return report(LOSSES, (cls, options or {}), accelerator=accelerator).require()


def check_weighting(
    cls: Any, options: Mapping[str, Any] | None = None, *, accelerator: bool = False
) -> Report:
    """Check a weighting; arguments and errors as for :func:`check_task`."""
    return report(WEIGHTINGS, (cls, options or {}), accelerator=accelerator).require()


def report(
    registry: Registry, choice: Choice, *, accelerator: bool = False, resume: bool = True
) -> Report:
    """Return the report of a plug-in of any kind, whatever it finds.

    Args:
        registry: Says which kind of plug-in it is.
        choice: The class or name, and its options.
        accelerator: Also check it on a pretend accelerator.
        resume: Also kill and resume a whole run, which takes as long as all other checks.
    """
    left_out = {*["accelerator"] * (not accelerator), *["resume"] * (not resume)}
    with tempfile.TemporaryDirectory(prefix="auxlearn-check-") as folder:
        kind = WeightingChecks if registry is WEIGHTINGS else ObjectiveChecks
        checks = kind(registry, choice, Path(folder))
        found = Report(f"{registry.kind} '{checks.name}'")
        for name, check in checks.all():
            if name in left_out:
                continue
            found.checks.append(_result(name, check))
            if found.failed and name in ("options", "loss", "weights"):
                return found  # nothing else can be said
        found.checks.append(Check("cost", None, checks.cost()))
    return found


def _result(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except Exception as error:
        message = " ".join(str(error).split()) or "failed"
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        return Check(name, False, f"{kind}{message}"[:500])
