"""Stopping on Ctrl-C or SIGTERM between two steps, so that nothing is lost."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class StopRequest:
    """Within the block, the first signal only sets :attr:`asked`; a second one interrupts.

    Signals can be caught in the main thread only; elsewhere this does nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
