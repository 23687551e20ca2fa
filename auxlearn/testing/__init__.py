"""Checks of plug-ins, for an author's tests and for ``auxlearn check``.

In a test of a task, a loss of the primary task, or a weighting::

    from auxlearn.testing import check_task

    def test_my_task():
        check_task(MyTask)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Check": "auxlearn.testing.check_base",
    "Report": "auxlearn.testing.check_base",
    "TinyRun": "auxlearn.testing.tiny_run",
    "check_loss": "auxlearn.testing.checks",
    "check_task": "auxlearn.testing.checks",
    "check_weighting": "auxlearn.testing.checks",
    "write_dataset": "auxlearn.testing.tiny_run",
}

__all__ = sorted(_PUBLIC)  # noqa: PLE0605

if TYPE_CHECKING:
    from auxlearn.testing.check_base import Check as Check, Report as Report
    from auxlearn.testing.checks import (
        check_loss as check_loss,
        check_task as check_task,
        check_weighting as check_weighting,
    )
    from auxlearn.testing.tiny_run import TinyRun as TinyRun, write_dataset as write_dataset


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'auxlearn.testing' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
