"""Output to a console that cannot show some characters."""

from __future__ import annotations

import io
import sys


def allow_every_letter() -> None:
    """Let the console print a question mark for a character that it cannot show, not an error.

    A Windows console with the code page 1252, for example, cannot show ≥ and →.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
