"""Interface through which a run reports its progress; the command line implements it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Reporter:
    """Receives messages, progress and log entries of a run; this base class ignores them."""

    def message(self, text: str) -> None:
        """Show one sentence."""

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar within the block.

        Args:
            title: What is in progress.
            total: Number of steps.

        Yields:
            A function that advances the bar by a number of steps.
        """
        yield lambda amount: None

    def log(self, entry: dict[str, Any]) -> None:
        """Show an entry of ``metrics.jsonl`` when it is written."""
