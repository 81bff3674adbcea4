"""Where Chromium is: one answer for the tests of the pages, the posters and the PDF."""

from __future__ import annotations

import os
import shutil

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
MISSING = "no browser: install Chromium or Chrome, or set CHROMIUM to where it is"


def chromium() -> str | None:
    """Return the path of Chromium or Chrome, ``$CHROMIUM`` first; None without one."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def needed() -> str:
    """Return the path of Chromium or Chrome, or end with one line that says what to do."""
    path = chromium()
    if path is None:
        raise SystemExit(f"error: {MISSING}")
    return path
