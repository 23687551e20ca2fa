"""Progress: what long work reports to, and its form in a notebook."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from auxlearn.core.metric_names import Quantity

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


#: Shows nothing: a :data:`ProgressBar` for callers without a display.
no_progress_bar: ProgressBar = Reporter().progress

#: Seconds between two updates of the display.
EVERY = 0.5

#: Messages and evaluations that are kept on display.
SHOWN = 12


def in_notebook() -> bool:
    """Return whether the code runs in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


class NotebookReporter(Reporter):
    """Shows the progress of a run below the cell; one display is updated in place."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._lines: list[str] = []
        self._status = ""
        self._bar: tuple[str, int, int] | None = None
        self._shown = float("-inf")

    def message(self, text: str) -> None:
        """Show one sentence."""
        self._lines.append(text)
        self._show()

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar within the block."""
        done = 0
        self._bar = (title, done, total)

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            self._bar = (title, done, total)
            self._show(force=False)

        try:
            self._show()
            yield advance
        finally:
            self._bar = None
            self._status = ""
            self._show()

    def log(self, entry: dict[str, Any]) -> None:
        """Show losses and weights as they change, and keep a line for each evaluation."""
        quantities = (Quantity.LOSS, Quantity.WEIGHT, Quantity.DEV)
        parts = [f"step {entry['step']}"]
        for quantity in quantities:
            values = quantity.read(entry)
            if values:
                shown = " ".join(f"{name} {value:.3f}" for name, value in values.items())
                parts.append(f"{quantity.name.lower()} {shown}")
        line = "; ".join(parts)
        if entry["kind"] == "train":
            self._status = line
            self._show(force=False)
        else:
            self.message(line)

    def _show(self, force: bool = True) -> None:
        now = time.monotonic()
        if not force and now - self._shown < EVERY:
            return
        self._shown = now
        from IPython.display import HTML, display

        content = HTML(self._html())
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

    def _html(self) -> str:
        lines = [html.escape(line) for line in self._lines[-SHOWN:]]
        if self._bar is not None:
            title, done, total = self._bar
            lines.append(
                f'<progress value="{done}" max="{max(1, total)}"></progress> '
                f"{html.escape(title)}: {done:,} of {total:,}"
            )
        if self._status:
            lines.append(html.escape(self._status))
        return f"<small>{'<br>'.join(lines)}</small>"
