"""Event files of TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auxlearn.registry import register_reporter
from auxlearn.reporters.base import ReportedRun, RunReporter, not_installed, numbers


@register_reporter("tensorboard")
class TensorBoard(RunReporter):
    """Writes event files to ``tensorboard/`` of the run folder.

    A resumed run writes to the same folder; the steps that it repeats replace the earlier ones.
    """

    def __init__(self, run: ReportedRun) -> None:
        super().__init__(run)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise not_installed("tensorboard") from None
        self._make_writer = SummaryWriter
        self._writer: Any = None

    def log(self, entry: Mapping[str, Any]) -> None:
        """Write every number of an entry under its key."""
        if self._writer is None:
            folder = self.run.folder / "tensorboard"
            self._writer = self._make_writer(str(folder), purge_step=entry["step"])
        for name, value in numbers(entry).items():
            self._writer.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        """Write what is buffered."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
