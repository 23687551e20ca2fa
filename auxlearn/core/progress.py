"""Progress: what long work reports to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from auxlearn.core.errors import printable

#: ``progress_bar(title, total)`` returns a context manager that yields ``advance(n)``, which moves
#: the bar by ``n``.
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


class Reporter:
    """Receives messages, progress and log entries of a run; this base class ignores them."""

    def message(self, text: str) -> None:
        """Show one sentence."""

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar within the block."""
        yield lambda amount: None

    def log(self, entry: dict[str, Any]) -> None:
        """Show an entry of ``metrics.jsonl`` when it is written."""

    def progress_of_rest(
        self, title: str, total: int, done: int
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Show a progress bar of what resumed work has still to do: its times are of that alone."""
        title = f"{title}, {done:,} done before" if done else title
        return self.progress(title, total - done)


class LogReporter(Reporter):
    """Keeps messages and adds them to a file, a line each: for the log of a process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{printable(text)}\n")


#: Shows nothing: a :data:`ProgressBar` for callers without a display.
no_progress_bar: ProgressBar = Reporter().progress
