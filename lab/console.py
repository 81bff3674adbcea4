"""Output to a console that cannot show some characters."""

from __future__ import annotations

import io
import sys


def allow_every_letter() -> None:
    """Print a question mark for each character that the console cannot show, instead of an error.

    A Windows console with the code page 1252, for example, cannot show ≥ and →.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
