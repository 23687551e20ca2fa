"""Stopping on a signal at a safe point, so that no work is lost.

Ctrl-C, SIGTERM and SIGHUP (a lost connection) are treated alike. While training, the first of them
asks for a checkpoint (:class:`StopRequest`); at any other time it interrupts the command at once
(:func:`interruptible`). Both end with one line. A signal that was ignored when the program was
started, as ``nohup`` ignores SIGHUP, stays ignored.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Signal handler for a block in the main thread: the first signal sets :attr:`requested`, a
    second one interrupts. In other threads, where Python handles none, it has no effect.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        self._previous = _handle_with(self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        _restore(self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        _leave_terminal(number)
        if self.requested:
            raise KeyboardInterrupt(_name(number))
        self.requested = True


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` in the block on each of :data:`SIGNALS`; its text says why."""

    def handle(number: int, frame: FrameType | None) -> None:
        _leave_terminal(number)
        raise KeyboardInterrupt(_name(number))

    previous = _handle_with(handle)
    try:
        yield
    finally:
        _restore(previous)


def _handle_with(handler: object) -> dict[int, object]:
    """Set a handler, and return the earlier ones."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in numbers}  # type: ignore[arg-type]


def _restore(previous: dict[int, object]) -> None:
    for number, handler in previous.items():
        signal.signal(number, handler)  # type: ignore[arg-type]


def _name(number: int) -> str:
    return "" if number == signal.SIGINT else f"by {signal.Signals(number).name}"


def _leave_terminal(number: int) -> None:
    """After SIGHUP, write to nowhere: the terminal is gone, and writing to it would fail."""
    if number != signal.SIGHUP:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            if os.isatty(stream.fileno()):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
