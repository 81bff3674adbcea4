"""What a claim rests on, in words: the note that a role or a cell of a table opens."""

from __future__ import annotations

from book.cells import shown
from book.family import Family
from book.verdicts import FAMILIES
from lab.explore import Noted

__all__ = ["note", "noted"]

SIDES = {"ahead": " better", "behind": " worse"}
"""What the record says of a comparison → the word for it in a table."""


def noted(numbers: str, name: str, cell: str) -> Noted | str:
    """Return a cell of a table, with a word where the difference is significant, and a note.

    Args:
        numbers: What the cell shows.
        name: The family of comparisons.
        cell: The comparison; of one that is not in the family there is no note.
    """
    family = FAMILIES[name]
    if cell not in family.claims:
        return numbers
    return Noted(numbers + SIDES.get(family.claims[cell], ""), note(family, [cell]))


def note(family: Family, cells: list[str]) -> str:
    """Return what comparisons found, and what they rest on.

    Args:
        family: The comparisons that are corrected together.
        cells: Those to tell of.

    Returns:
        For each the difference with its interval, then the correction, which direction is better,
        the number of runs and their study.
    """
    digits = 1 if family.unit.startswith("%") else 3
    than, sign = ("divided by", "") if family.unit == "times" else ("minus", "+")
    found = []
    for cell in cells:
        middle, low, high = (f"{x:{sign}.{digits}f}".replace("-", "−") for x in family.found(cell))
        unit = f"{middle} {family.unit}".rstrip()
        one, other = (shown(name, family.record) for name in (cell, family.other(cell)))
        found.append(f"“{one}” {than} “{other}”: {unit} [{low}, {high}]")
    size, count = len(family.claims), len(family.runs()[cells[0]])
    corrected = f", corrected for {size} comparisons" if size > 1 else ""
    corrected += f" at {family.looks} stages of the study" if family.looks > 1 else ""
    better = "Lower" if family.less else "Higher"
    studies = " and ".join(f"results/{name}.py" for name in family.record.split(", "))
    runs = f"{count} seeds of {studies}"
    if family.record.startswith("bench-"):
        runs = f"{count} rounds of one run, results/{family.record}.json"
    return f"{'; '.join(found)} (95% interval{corrected}). {better} is better. {runs}."
