"""Stopping on Ctrl-C or SIGTERM at a safe point, so that no work is lost."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class StopRequest:
    """Signal handler for a block: the first signal sets :attr:`requested`, a second interrupts.

    Python handles signals in the main thread only; in other threads the block has no effect.

    Attributes:
        requested: Whether Ctrl-C or SIGTERM has been received.
    """

    def __init__(self) -> None:
        self.requested = False
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
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
