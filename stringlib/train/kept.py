"""The finished runs of a study, one line of JSON each, in a file that one process writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from stringlib.train.lock import locked

Cells = Mapping[str, Mapping[str, Any]]


class Kept:
    """Finished runs, locked against a second process while open.

    Attributes:
        path: The file, ``<record>.runs.jsonl``.
        found: ``(cell, seed)`` → what the run returned, as JSON gives it back. Lines of other
            arguments or another number of steps do not count.
    """

    def __init__(self, path: Path, file: TextIOWrapper, cells: Cells, steps: int) -> None:
        self.path, self._file, self._steps = path, file, steps
        self._told = {name: _plain(told) for name, told in cells.items()}
        self.found: dict[tuple[str, int], dict[str, Any]] = {}
        text = path.read_text(encoding="utf8")
        if text and not text.endswith("\n"):  # a line was cut off: the next one starts afresh
            file.write("\n")
        for line in text.splitlines():
            self._read(line)

    @classmethod
    @contextmanager
    def open(cls, record: Path, cells: Cells, steps: int) -> Iterator[Kept]:
        """Open the runs of a record, and leave no empty file behind.

        Raises:
            SystemExit: If another process has them open.
        """
        path = record.with_suffix(".runs.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                file = stack.enter_context(locked(path))
            except BlockingIOError:
                raise SystemExit(f"another process runs this study and writes {path}") from None
            kept = cls(path, file, cells, steps)
            try:
                yield kept
            finally:
                if path.exists() and not path.stat().st_size:
                    kept.remove()

    def add(self, cell: str, seed: int, found: Mapping[str, Any]) -> None:
        """Keep one run, at once.

        Raises:
            ValueError: If it holds a number that is not finite, or what JSON cannot hold.
        """
        line = {"cell": cell, "seed": seed, "steps": self._steps, "told": self._told[cell]}
        try:
            text = json.dumps({**line, "found": found}, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"run of {cell!r} with seed {seed} must return JSON: {error}"
            ) from None
        self._file.write(text + "\n")
        self._file.flush()
        self.found[cell, seed] = _plain(found)

    def remove(self) -> None:
        """Remove the file: the record holds all of it, or nothing was in it."""
        self.path.unlink()

    def _read(self, line: str) -> None:
        try:
            run = json.loads(line)
        except json.JSONDecodeError:  # cut off
            return
        told = self._told.get(run["cell"])
        if told is not None and run["steps"] == self._steps and run.get("told") == told:
            self.found[run["cell"], run["seed"]] = run["found"]


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it back: tuples are lists."""
    return json.loads(json.dumps(value))
