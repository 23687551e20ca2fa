"""Console output of the commands: results on standard output, the rest on standard error.

Results can therefore be piped.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.text import Text

from auxlearn.results.console import ConsoleReporter as ConsoleReporter, output as output


def print_results(*items: Any) -> None:
    """Print lines and tables to standard output; lines are never broken."""
    console = output()
    for item in items:
        if isinstance(item, str):
            console.print(item, soft_wrap=True, markup=False)
        else:
            console.print(item)


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
