"""Write files completely or not at all, and lock files for one process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: Path, then: str) -> Iterator[Path]:
    """Return a context manager that gives a temporary path, which replaces a file at the end.

    If an error interrupts the writing, the old file stays unchanged and the temporary file is
    removed.

    Args:
        path: The file to be written. Its folder is created.
        then: End of the error message: what is kept if the file cannot be written, and what to do.

    Raises:
        OSError: If the file cannot be written, for example because the disk is full.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(path)
    except BaseException as error:  # half a file helps nobody, least of all on a full disk
        with suppress(OSError):
            part.unlink()
        # PyTorch goes on after the disk has refused, and says that it lost its place
        cause = error if isinstance(error, OSError) else error.__context__
        if isinstance(error, Exception) and isinstance(cause, OSError):
            raise _named(path, cause, then) from error
        raise


def append(path: Path, text: str, then: str) -> None:
    """Append text to a file, either completely or not at all.

    Args:
        path: The file.
        text: The text to append.
        then: End of the error message: what is kept if the file cannot be written, and what to do.

    Raises:
        OSError: If the file cannot be written.
    """
    size = path.stat().st_size if path.exists() else 0
    try:
        with path.open("a", encoding="utf8") as file:
            file.write(text)
    except OSError as error:
        if path.exists():
            os.truncate(path, size)
        raise _named(path, error, then) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a file with one line of JSON per object.

    Lines that are not valid JSON, such as a line that was cut off, are left out. If the file does
    not exist, the list is empty.
    """
    found = []
    for line in path.read_text(encoding="utf8").splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


@contextmanager
def locked(path: Path, otherwise: str) -> Iterator[None]:
    """Return a context manager that locks a file for this process.

    The lock ends with the context, or with the process. If the file is empty at the end of the
    context, it is removed.

    Args:
        path: The file. The file and its folder are created if they do not exist.
        otherwise: Error message if another process has locked the file.

    Raises:
        BlockingIOError: If another process has locked the file.
    """
    import fcntl  # not everywhere

    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a", encoding="utf8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(otherwise) from None
            # whoever had the lock before may have removed the file meanwhile
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                try:
                    yield
                finally:
                    if path.exists() and not path.stat().st_size:
                        path.unlink()
                return


def _named(path: Path, error: OSError, then: str) -> OSError:
    """Return an error with the same number that names the file and says what to do."""
    return OSError(error.errno, f"{path} could not be written: {error.strerror or error}; {then}")
