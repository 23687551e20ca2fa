"""How a run tells what it is doing; the command line shows it, a library call stays silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Reporter:
    """Receives what a person watching would like to know. This one ignores it all."""

    def message(self, text: str) -> None:
        """Say one sentence."""

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar within the block; call the given function to advance it."""
        yield lambda amount: None

    def row(self, row: dict[str, Any]) -> None:
        """Show a row of ``metrics.jsonl`` as it is written."""
