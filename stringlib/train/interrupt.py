"""Ctrl-C and SIGTERM: asked to stop, a run ends its step and saves first."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run was stopped and saved; the message says where, and how to go on."""


class StopRequest:
    """While entered, a first signal is noted in ``asked``; a second one interrupts at once.

    In the midst of an update the parameters are neither those before it nor those after it:
    nothing that could be resumed exactly. Outside the main thread, where Python gives no
    signals, it does nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        """Take over the signals."""
        if threading.current_thread() is threading.main_thread():
            self._old = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
