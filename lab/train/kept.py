"""The finished runs of a study, one line of JSON each, in a file that one process writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.files import append, read_lines

Cells = Mapping[str, Mapping[str, Any]]
THEN = "the runs before it are kept; make room, and the same command goes on"


class Kept:
    """Finished runs, read from a file and added to it.

    Attributes:
        found: ``(cell, seed)`` → what the run returned, as JSON gives it back, and in ``made`` a
            list of one: its commit, hardware and versions. Lines of other arguments, another number
            of steps or other code do not count.
        changed: How many lines are of other code.

    Args:
        path: The file.
        cells: Name → arguments of its runs.
        steps: How many steps each.
        code: Digest of the code that runs now.
    """

    def __init__(self, path: Path, cells: Cells, steps: int, code: str) -> None:
        self.path, self._steps, self._code = path, steps, code
        self._told = {name: plain(told) for name, told in cells.items()}
        self.found: dict[tuple[str, int], dict[str, Any]] = {}
        self.changed = 0
        text = path.read_text(encoding="utf8") if path.exists() else ""
        if text and not text.endswith("\n"):  # a line was cut off: the next one starts afresh
            append(path, "\n", THEN)
        for run in read_lines(path):
            self._read(run)

    def add(self, cell: str, seed: int, found: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        """Keep one run, at once.

        Args:
            cell: Name of its cell.
            seed: Its seed.
            found: What it returned, as :func:`plain` gives it.
            made: What it was made with, as :func:`~lab.records.stamp` says.

        Raises:
            OSError: If it cannot be written.
        """
        line = {"cell": cell, "seed": seed, "steps": self._steps, "told": self._told[cell]}
        line |= {"code": self._code, "made": made, "found": found}
        append(self.path, json.dumps(line) + "\n", THEN)
        self._read(line)

    def _read(self, run: dict[str, Any]) -> None:
        told = self._told.get(run["cell"])
        if told is None or run["steps"] != self._steps or run.get("told") != told:
            return
        if run.get("code") != self._code:
            self.changed += 1
            return
        self.found[run["cell"], run["seed"]] = {**run["found"], "made": [run["made"]]}


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back: tuples are lists.

    Raises:
        TypeError: If it holds what JSON cannot hold.
        ValueError: If it holds a number that is not finite.
    """
    return json.loads(json.dumps(value, allow_nan=False))
