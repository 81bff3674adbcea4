"""Files that are written whole or not at all, and that one process holds alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: Path, then: str) -> Iterator[Path]:
    """Give a path to write to, which in the end takes the place of the file.

    Whatever happens meanwhile, the file is the old one or the new, and nothing else is left.

    Args:
        path: The file; its folder is made.
        then: What is kept if it cannot be written, and what to do: the end of the message.

    Raises:
        OSError: If it cannot be written, for the disk is full, for instance.
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
    """Add text to a file, all of it or nothing; for the arguments see :func:`whole`.

    Raises:
        OSError: If it cannot be written.
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
    """Return the lines of JSON of a file, but for one that was cut off; none without the file."""
    found = []
    for line in path.read_text(encoding="utf8").splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


@contextmanager
def locked(path: Path, otherwise: str) -> Iterator[None]:
    """Hold a file for this process alone, at most until it ends; an empty one is removed then.

    Args:
        path: The file; it and its folder are made.
        otherwise: What to say if another process has it.

    Raises:
        BlockingIOError: If another process has it.
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
    """Return an error of the same kind that names the file and says what to do."""
    return OSError(error.errno, f"{path} could not be written: {error.strerror or error}; {then}")
