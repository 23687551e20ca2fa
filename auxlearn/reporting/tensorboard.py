"""Export of ``metrics.jsonl`` to TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from auxlearn.errors import ConfigError
from auxlearn.reporting.reporter import Reporter


class TensorBoardReporter(Reporter):
    """Writes each log entry to TensorBoard event files, and forwards all calls to a reporter.

    A resumed run writes to the same folder; the steps that it repeats replace the earlier ones.

    Args:
        reporter: The reporter to which all calls are forwarded.
        folder: Where the event files are written; created with the first entry.

    Raises:
        ConfigError: TensorBoard is not installed.
    """

    def __init__(self, reporter: Reporter, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "tensorboard is requested but not installed: pip install 'auxlearn[tensorboard]'"
            ) from None
        self._make_writer = SummaryWriter
        self._reporter = reporter
        self._folder = folder
        self._writer: Any = None

    def message(self, text: str) -> None:
        """Forward a message."""
        self._reporter.message(text)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Forward a progress bar; all entries logged within the block are on disk after it."""
        try:
            with self._reporter.progress(title, total) as advance:
                yield advance
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def log(self, entry: dict[str, Any]) -> None:
        """Write every number of an entry under its key, and forward the entry."""
        if self._writer is None:
            self._writer = self._make_writer(str(self._folder), purge_step=entry["step"])
        for name, value in entry.items():
            if name not in ("kind", "step"):
                self._writer.add_scalar(name, value, entry["step"])
        self._reporter.log(entry)
