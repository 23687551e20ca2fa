"""The console: results on standard output, progress and messages on standard error.

Results can therefore be piped. On a terminal, progress bars and a status line are shown;
elsewhere, whole lines without colours.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from auxlearn.core.errors import printable
from auxlearn.core.metric_names import Quantity
from auxlearn.core.progress import Reporter
from auxlearn.kinds.metrics import all_metrics

if TYPE_CHECKING:
    from pandas import DataFrame

#: Width of tables that go to a file or a pipe, in characters.
PIPE_WIDTH = 160

#: Seconds between two lines of progress where there is no terminal.
LINE_EVERY = 60.0


def output(*, stderr: bool = False) -> Console:
    """Return a console for standard output, or for standard error."""
    # names of users are no markup, nor their colons emoji
    console = _PlainConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


class _PlainConsole(Console):
    """A console that writes control characters as escapes, and what a terminal lacks as "?"."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if not segment.control and not text.isprintable():
                # rich breaks the lines of a cell by line feeds within a segment
                text = "\n".join(map(printable, text.split("\n")))
            if not text.isascii():
                text = text.encode(self.encoding, "replace").decode(self.encoding)
            yield segment._replace(text=text)


def default_reporter(verbose: bool = True) -> Reporter:
    """Return what shows the progress of a call from Python."""
    return ConsoleReporter() if verbose else Reporter()


def in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


class ConsoleReporter(Reporter):
    """Shows the progress of a run on the console."""

    def __init__(self) -> None:
        self.console = output(stderr=not in_notebook())  # which shows errors on red
        self._last: dict[str, Any] = {}
        self._status = Text("")

    def message(self, text: str) -> None:
        self.console.print(Text(printable(text)), soft_wrap=True)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show a spinner on a terminal while the block runs."""
        if self.console.is_terminal:
            with self.console.status(Text(what)):
                yield
        else:
            yield

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar on a terminal; elsewhere a line per minute and one at the end."""
        if not self.console.is_terminal:
            started = time.perf_counter()
            done, due = 0, started + LINE_EVERY

            def count(amount: int) -> None:
                nonlocal done, due
                done += amount
                now = time.perf_counter()
                if now >= due and done < total:
                    due = now + LINE_EVERY
                    self.message(f"{title}: {done:,} of {total:,} in {now - started:.0f} s")

            yield count
            share = "" if done == total else f" of {total:,}"
            self.message(f"{title}: {done:,}{share} in {time.perf_counter() - started:.1f} s")
            return
        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        task = bar.add_task(title, total=total)
        self._status = Text("", no_wrap=True, overflow="ellipsis")
        with Live(Group(bar, self._status), console=self.console, refresh_per_second=4) as live:
            yield lambda amount: bar.update(task, advance=amount)
            live.update(bar)

    def log(self, entry: dict[str, Any]) -> None:
        """Show losses and weights as they move, and print a line for each evaluation."""
        if entry["kind"] == "train":
            self._last = entry
            self._status.plain = "\n".join(_parts(entry))
            return
        same_step = self._last if self._last.get("step") == entry["step"] else {}
        self.console.print(Text(describe_row({**same_step, **entry})), soft_wrap=True)


def describe_row(row: Mapping[str, Any]) -> str:
    """Return a row of ``metrics.jsonl`` as one line, such as ``step 64  loss primary 0.910``."""
    return "  ".join([f"step {row['step']}", *_parts(row)])


def _parts(row: Mapping[str, Any]) -> list[str]:
    quantities = (Quantity.WEIGHT, Quantity.LOSS, Quantity.DEV)
    weights, losses, dev = (quantity.read(row) for quantity in quantities)
    in_order = {name: losses[name] for name in weights if name in losses}  # the primary task first
    shown = {
        "loss": in_order | losses,
        "weights": weights if len(weights) > 1 else {},
        "dev": {metric.title: dev[key] for key, metric in all_metrics().items() if key in dev},
    }
    parts = [f"epoch {row['epoch']:.1f}"] if "epoch" in row else []
    for title, numbers in shown.items():
        if numbers:
            parts.append(" ".join([title, *(f"{n} {value:.3f}" for n, value in numbers.items())]))
    return parts


def print_results(*items: str | DataFrame | Table) -> None:
    """Print lines and tables on standard output."""
    from auxlearn.results.tables import rich_table

    console = output()
    for item in items:
        if isinstance(item, str):
            console.print(item, soft_wrap=True)
        else:
            console.print(item if isinstance(item, Table) else rich_table(item))


@contextmanager
def clean_output(debug: bool) -> Iterator[None]:
    """Show the log messages of this package on one line each, and hide those of libraries."""
    logger = logging.getLogger("auxlearn")
    handler = _LineHandler()
    others = logging.NullHandler()  # without one, Python prints the warnings of every library
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    logger.propagate = False
    if not debug:
        logging.getLogger().addHandler(others)
    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logging.getLogger().removeHandler(others)
            logger.level, logger.propagate = before


class _LineHandler(logging.Handler):
    """Prints a record as ``level: message`` above the progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else "dim"
        line = Text(f"{record.levelname.lower()}: {record.getMessage()}", style=style)
        # A live display takes over sys.stderr, which the console looks up each time it prints.
        output(stderr=True).print(line, soft_wrap=True)
