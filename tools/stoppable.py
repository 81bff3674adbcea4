"""Run a command that Ctrl-C ends quietly: the caller says what happened, not the command."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

STOPPED = "\nStopped. The same command goes on from here."
PACKAGE = re.compile(rb" (\x1b(\[[\d;]*m?)?)*([-+~].*)?$")
"""A line of uv that names a package, or the beginning of such a line."""


def run(
    words: Sequence[str],
    *,
    output: IO[Any] | None = None,
    each_minute: Callable[[int], None] = lambda minutes: None,
    **options: Any,
) -> int:
    """Run a command and return its exit status.

    The command has a group of processes of its own, so that Ctrl-C reaches this process alone,
    which then ends the whole group and raises ``KeyboardInterrupt``.

    Args:
        words: The command.
        output: Where it writes; by default where this process does.
        each_minute: Called with the number of minutes that it has run.
        **options: Further arguments of ``subprocess.Popen``.
    """
    began = time.monotonic()
    with _begun(words, output, **options) as process:
        while True:
            try:
                return process.wait(60)
            except subprocess.TimeoutExpired:
                each_minute(round((time.monotonic() - began) / 60))


def run_uv(words: Sequence[str], **options: Any) -> int:
    """Run uv in this terminal, without its list of packages, and return its exit status."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, termios.tcgetwinsize(sys.stdout))
    with _begun(words, its, **options) as process, os.fdopen(ours, "rb", buffering=0) as text:
        os.close(its)
        for part in without_packages(_pieces(text)):
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
        return process.wait()


def without_packages(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a text in pieces, without the lines that name packages; the others at once."""
    line = b""
    for piece in pieces:
        *done, line = (line + piece).split(b"\n")
        yield b"".join(one + b"\n" for one in done if not PACKAGE.match(one.rstrip()))
        if not PACKAGE.match(line):  # a bar, which is drawn over and over before its line ends
            yield line
            line = b""


def _pieces(text: IO[bytes]) -> Iterator[bytes]:
    """Yield what a terminal shows until its last process has ended."""
    try:
        while piece := text.read(4096):
            yield piece
    except OSError:  # on Linux the end is an error
        return


@contextmanager
def _begun(words: Sequence[str], output: Any, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Begin a command, and end it with the context."""
    process = subprocess.Popen(
        words, stdout=output, stderr=output, start_new_session=True, **options
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if sys.stdout.isatty():
                sys.stdout.write("\x1b[?25h")  # the cursor, which bars hide
