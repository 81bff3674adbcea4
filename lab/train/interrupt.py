"""Ctrl-C and SIGTERM: a run that is asked to stop ends its step and is saved first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run was stopped and saved. The message says where, and how to continue the run."""


class StopRequest:
    """Stores a first signal in ``asked``; a second signal of the same kind interrupts at once.

    During an update, some parameters are already changed and others are not, so a run that is
    interrupted then could not be continued exactly. Ctrl-C reaches all processes of a terminal. If
    the parent of a process then also sends SIGTERM, this counts as one request, not as two.
    """

    _all = False

    def __init__(self) -> None:
        self._seen: set[int] = set()

    @property
    def asked(self) -> bool:
        """Whether a signal arrived in this process, or all runs were asked to stop."""
        return bool(self._seen) or StopRequest._all

    @classmethod
    def ask_all(cls) -> None:
        """Ask all runs of this process to stop. Signals reach only the main thread."""
        StopRequest._all = True

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if number in self._seen:
            raise KeyboardInterrupt
        self._seen.add(number)


@contextmanager
def handled(handler: Callable[[int, FrameType | None], Any], *signals: int) -> Iterator[None]:
    """Let a function handle signals. Outside the main thread, Python handles none, so do nothing.

    Args:
        handler: The function, as :func:`signal.signal` takes it.
        *signals: Numbers of the signals.
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
