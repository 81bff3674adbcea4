"""Ctrl-C and SIGTERM: asked to stop, a run ends its step and saves first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run was stopped and saved; the message says where, and how to go on."""


class StopRequest:
    """A first signal is noted in ``asked``; a second one of its kind interrupts at once.

    In the midst of an update the parameters are neither those before it nor those after it:
    nothing that could be resumed exactly. Ctrl-C reaches all processes of a terminal; one whose
    parent then ends it by SIGTERM has been asked once, not twice.
    """

    _all = False

    def __init__(self) -> None:
        self._seen: set[int] = set()

    @property
    def asked(self) -> bool:
        """Whether there was a signal, or all were asked."""
        return bool(self._seen) or StopRequest._all

    @classmethod
    def ask_all(cls) -> None:
        """Ask all runs of this process, for no signal reaches one outside of its main thread."""
        StopRequest._all = True

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if number in self._seen:
            raise KeyboardInterrupt
        self._seen.add(number)


@contextmanager
def handled(handler: Callable[[int, FrameType | None], Any], *signals: int) -> Iterator[None]:
    """Let a function handle signals; outside the main thread, where Python gives none, do nothing.

    Args:
        handler: As :func:`signal.signal` takes it.
        *signals: Their numbers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)
