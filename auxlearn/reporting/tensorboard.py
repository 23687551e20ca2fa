"""The rows of ``metrics.jsonl`` as TensorBoard event files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from auxlearn.errors import ConfigError
from auxlearn.reporting.reporter import Reporter


class TensorBoardReporter(Reporter):
    """Passes everything on to another reporter, and writes each row to event files as well.

    A resumed run goes on in the same folder; steps that it makes again replace the old ones.

    Args:
        reporter: Who else is told.
        folder: Where the event files go; made with the first row.

    Raises:
        ConfigError: TensorBoard is not installed.
    """

    def __init__(self, reporter: Reporter, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "tensorboard is asked for but not installed: pip install 'auxlearn[tensorboard]'"
            ) from None
        self._open = SummaryWriter
        self._reporter = reporter
        self._folder = folder
        self._writer: Any = None

    def message(self, text: str) -> None:
        """Pass a sentence on."""
        self._reporter.message(text)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Pass a progress bar on; what was written within it is on disk afterwards."""
        try:
            with self._reporter.progress(title, total) as advance:
                yield advance
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def row(self, row: dict[str, Any]) -> None:
        """Write every figure of a row under its own name, and pass the row on."""
        if self._writer is None:
            self._writer = self._open(str(self._folder), purge_step=row["step"])
        for name, value in row.items():
            if name not in ("kind", "step"):
                self._writer.add_scalar(name, value, row["step"])
        self._reporter.row(row)
