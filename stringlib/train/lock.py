"""Files that one process holds alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[TextIOWrapper]:
    """Open a file to append to, for this process alone; the lock ends with the process.

    Raises:
        BlockingIOError: If another process has it.
    """
    while True:
        with path.open("a", encoding="utf8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # whoever had the lock before may have removed the file meanwhile
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield file
                return
