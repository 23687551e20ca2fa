"""Stopping on Ctrl-C, SIGTERM or SIGHUP (a lost connection): while training, the first of them asks
for a checkpoint; at any other time it interrupts the command at once, or after the import that it
came in. Python drops an exception in a callback of its own, such as that of a weak reference: the
signal is then sent again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Signal handler for a block in the main thread: the first signal sets :attr:`requested`, a
    second one interrupts. In other threads, where Python handles none, it has no effect.
    """

    def __init__(self, requested: bool = False) -> None:
        self.requested = requested
        self._previous: dict[int, Any] = {}
        self._again: threading.Timer | None = None
        self._block: CodeType | None = None
        self._number = signal.SIGINT  # the last that has interrupted
        self._report_dropped = sys.unraisablehook

    def __enter__(self) -> StopRequest:
        self._block = sys._getframe(1).f_code
        if threading.current_thread() is threading.main_thread():
            self._report_dropped, sys.unraisablehook = sys.unraisablehook, self._hear_dropped
            for number in SIGNALS:
                # SIGHUP is ignored under nohup; None is a handler that is not of Python.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        if sys.unraisablehook == self._hear_dropped:
            sys.unraisablehook = self._report_dropped
        if self._again is not None:
            self._again.cancel()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        _leave_terminal(number)
        if self.requested:
            if self._again is None and _is_importing(frame, self._block):
                self._send_soon(number)
                return
            self._number = signal.Signals(number)
            cause = "" if number == signal.SIGINT else f"by {signal.Signals(number).name}"
            raise KeyboardInterrupt(cause)
        self.requested = True

    def _hear_dropped(self, dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            self._send_soon(self._number)
        else:
            self._report_dropped(dropped)

    def _send_soon(self, number: int) -> None:
        self._again = threading.Timer(0.05, self._send_again, [number])
        self._again.daemon = True
        self._again.start()

    def _send_again(self, number: int) -> None:
        self._again = None
        os.kill(os.getpid(), number)


def _is_importing(frame: FrameType | None, block: CodeType | None) -> bool:
    """Whether a module is being imported in a block, which an exception would leave half imported;
    some libraries then ignore it or abort the process.
    """
    while frame is not None and frame.f_code is not block:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def interruptible() -> StopRequest:
    """Raise ``KeyboardInterrupt`` in the block on each of :data:`SIGNALS`; its text says why."""
    return StopRequest(requested=True)


def ignore_signals() -> None:
    """Let a command that has ended end: an interruption would be a traceback of the interpreter."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


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
