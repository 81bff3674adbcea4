"""Output to a console that lacks some letters."""

from __future__ import annotations

import io
import sys


def allow_every_letter() -> None:
    """Print a question mark for a letter that the console lacks, instead of stopping there.

    A Windows console with the code page 1252, for example, has no ≥ and no →.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
