"""Progress that is shown and sent to experiment trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from auxlearn.reporters.base import RunReporter
from auxlearn.reporting.reporter import Reporter


class ForwardingReporter(Reporter):
    """Forwards all calls to a reporter, and log entries to experiment trackers as well.

    A tracker that fails, because its server cannot be reached for example, is left out from then
    on; the run does not end with it.

    Args:
        reporter: Shows messages and progress.
        trackers: Receive the log entries.
    """

    def __init__(self, reporter: Reporter, trackers: Sequence[RunReporter]) -> None:
        self._reporter = reporter
        self._trackers = list(trackers)

    def message(self, text: str) -> None:
        """Forward a message."""
        self._reporter.message(text)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Forward a progress bar; what is logged within the block has been sent after it."""
        try:
            with self._reporter.progress(title, total) as advance:
                yield advance
        finally:
            self._each(RunReporter.close.__name__)

    def log(self, entry: dict[str, Any]) -> None:
        """Forward an entry."""
        self._each(RunReporter.log.__name__, entry)
        self._reporter.log(entry)

    def _each(self, method: str, *arguments: Any) -> None:
        for tracker in list(self._trackers):
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:
                self._trackers.remove(tracker)
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                self.message(
                    f"reporter {tracker.name} has failed ({reason}): the run continues without it"
                )
