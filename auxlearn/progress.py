"""The interface of progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

#: ``progress_bar(title, total)`` returns a context manager that yields ``advance(n)``, which moves
#: the bar by ``n``.
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def no_progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show nothing: a :data:`ProgressBar` for callers without a display.

    Args:
        title: Ignored.
        total: Ignored.
    """
    yield lambda count: None
