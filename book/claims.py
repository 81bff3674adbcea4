"""The words that a page has for a claim, held to the record.

A page says a claim as ``{verdict}`5 % ahead <text at 1,000 steps: ELU, GLA>```, and what it says of
several as ``<family: one | another>`` or, of all, ``<family>``; * stands for any text.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from book.family import Family
from book.verdicts import FAMILIES

SAYS = {
    "ahead": "ahead gain gains helps better worth within faster",
    "behind": "behind lose loses lost hurts costs worse slow",
    "suggestive": "suggestive",
    "open": "open told nothing level",
}
"""What a claim is made of → words that say it."""
NUMBER = re.compile(r"\d*\.?\d+")
COUNTS = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)


def cells_of(name: str, cells: str) -> list[str]:
    """Return the cells that a claim is of: those between bars, or all of the family.

    Raises:
        ValueError: If there is no such claim.
    """
    known = [*FAMILIES[name].claims] if name in FAMILIES else []
    asked = []
    for pattern in cells.split(" | ") if cells else ["*"]:
        matching = [cell for cell in known if fnmatchcase(cell, pattern)]
        if not matching:
            told = known or [*FAMILIES]
            raise ValueError(f"there is no claim {name!r}: {pattern!r}, expected one of {told}")
        asked += matching
    return asked


def faults(words: str, name: str, cells: str) -> list[str]:
    """Return what is wrong with the words that a page has for a claim.

    Of one comparison they have its mean, or its mean and both ends of its interval; of several the
    least and the largest mean, or one number if they round to it. "Six of twelve" counts.

    Args:
        words: As they stand on the page.
        name: The family.
        cells: What is compared.
    """
    try:
        asked = cells_of(name, cells)
    except ValueError as error:
        return [str(error)]
    family = FAMILIES[name]
    spoken = re.findall("[a-z]+", words.lower())
    return [f"{words!r} {fault}" for fault in (
        *_direction(spoken, family, asked), *_numbers(words, family, asked)
    )]  # fmt: skip


def _direction(spoken: list[str], family: Family, cells: list[str]) -> list[str]:
    """Return where words and claims differ."""
    held = [family.claims[cell] for cell in cells]
    counted = [n for n in spoken if n in COUNTS]
    if len(counted) == 2 and "of" in spoken:
        kind = next(part for part, said in SAYS.items() if {*spoken} & {*said.split()})
        right = [COUNTS[held.count(kind)], COUNTS[len(held)]]
        return [] if counted == right else [f"counts {counted}, the record {right}"]
    says, wrong = SAYS, []
    if {*spoken} & {"above", "below"}:  # an estimate, whatever can be told
        says = {"above": "above", "below": "below"}
        held = ["above" if family.found(cell)[0] > 0 else "below" for cell in cells]
    for part, synonyms in says.items():
        said = bool({*spoken} & {*synonyms.split()})
        if any((part in claim) != said for claim in held):
            wrong.append(f"{'says' if said else 'does not say'} {part!r}")
    return wrong


def _numbers(words: str, family: Family, cells: list[str]) -> list[str]:
    """Return which numbers are not the record's."""
    numbers = NUMBER.findall(words)
    if not numbers:
        return []
    found = [family.found(cell) for cell in cells]
    means = sorted(abs(middle) for middle, _, _ in found)
    if len(cells) > 1:
        right = [means[0], means[-1]] if len(numbers) == 2 else means
    else:
        right = [abs(x) for x in found[0]] if len(numbers) == 3 else means
    if len(numbers) == 1:
        numbers *= len(right)
    if len(numbers) != len(right):
        return ["must have a mean, or a mean and both ends, or of several the least and largest"]
    return [
        f"says {number}, the record {value:.{digits + 1}f} {family.unit}".rstrip()
        for number, value in zip(numbers, right, strict=True)
        for digits in [len(number.partition(".")[2])]
        if float(number) != round(value, digits)
    ]
