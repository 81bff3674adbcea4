"""Print which goals are met or missed now, unlike in the committed records.

The command `make bench` ends with python -m benchmarks.moved.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from lab.console import allow_every_letter
from lab.records import read_record

Outcomes = Sequence[dict[str, Any]]


def moved(before: Outcomes, after: Outcomes) -> list[str]:
    """Return a line for each goal that was met and is now missed, or the other way round."""
    then = {row["goal"]: row for row in before}
    lines = []
    for row in after:
        was = then.get(row["goal"], row)
        if row["ratio"] and was["ratio"] and was["met"] != row["met"]:
            by = f"{was['ratio'][1]:.2f} → {row['ratio'][1]:.2f}"
            lines.append(f"{'WON ' if row['met'] else 'LOST'} {by:>15}  {row['goal']}")
    return lines


def committed(path: Path) -> Outcomes:
    """Return the goals of a record in the last commit, or an empty list without such a file."""
    name = path.relative_to(ROOT).as_posix()
    shown = subprocess.run(["git", "show", f"HEAD:{name}"], cwd=ROOT, capture_output=True)
    return json.loads(shown.stdout)["data"].get("goals", ()) if shown.returncode == 0 else ()


def main(suites: Sequence[str]) -> None:
    """Print the changed goals in all records of some suites."""
    pairs = [
        (committed(path), read_record(path)["data"].get("goals", ()))
        for suite in suites
        for path in sorted((ROOT / "results").glob(f"bench-{suite}-*.json"))
    ]
    lines = [line for before, after in pairs for line in moved(before, after)]
    told = {row["goal"] for before, _ in pairs for row in before}
    new = sum(row["goal"] not in told for _, after in pairs for row in after)
    print("\nGoals that moved since the committed record:" + (" none" if not lines else ""))
    for line in lines:
        print(f"  {line}")
    if new:
        print(f"  ({new} are not in that record)")


if __name__ == "__main__":
    allow_every_letter()
    main(sys.argv[1:])
