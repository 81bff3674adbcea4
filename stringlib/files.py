"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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


def _named(path: Path, error: OSError, then: str) -> OSError:
    """Return an error of the same kind that names the file and says what to do."""
    return OSError(error.errno, f"{path} could not be written: {error.strerror or error}; {then}")
