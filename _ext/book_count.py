"""Counts the pages while they are built: read first, then written.

In a terminal the count stays on one line, elsewhere there is a line every ten seconds. Where pages
are read and written by several processes, they count together.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from multiprocessing import get_context
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

EVERY = 10.0  # seconds


class Count:
    """How many of some pages are done. Made before the processes part, and shared by them."""

    def __init__(self, doing: str) -> None:
        shared = get_context("fork") if hasattr(os, "fork") else get_context()
        self.doing, self.total = doing, 0
        self.done, self.told = shared.Value("i", 0), shared.Value("d", time.monotonic())

    def one_more(self) -> None:
        """Count a page, and say so if it is time to."""
        with self.done.get_lock():
            self.done.value += 1
            done, last = self.done.value, self.done.value == self.total
            line = f"{self.doing}: {done} of {self.total} pages"
            if sys.stdout.isatty():
                print(f"\r{line}", end="\n" if last else "", flush=True)
            elif last or time.monotonic() - self.told.value > EVERY:
                self.told.value = time.monotonic()
                print(line, flush=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Count, if tools/build.py asks for it."""
    if "BOOK_COUNT" in os.environ:
        read, written = Count("Reading"), Count("Writing")

        def begin(app: Sphinx, env: BuildEnvironment, names: Iterable[str]) -> None:
            read.total, written.total = len([*names]), len(env.found_docs)

        def write(app: Sphinx, page: str, *_: Any) -> None:
            if page in app.env.found_docs:
                written.one_more()

        app.connect("env-before-read-docs", begin)
        app.connect("source-read", lambda *_: read.one_more())
        app.connect("html-page-context", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
